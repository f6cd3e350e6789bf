/* Batches in steady state allocate nothing: every call of malloc and its kin in this program is counted, those of the
 * libraries below included. */
#include "harness.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "engine/cpu/parallel_for.h"
#include "engine/decoder.h"
#include "engine/engine.h"
#include "memory_model.h"

enum { ROWS = 24, FEW_ROWS = 6, WARM = 4, BATCHES = 4 };

/* glibc's own functions, under the names that remain when a program has its own malloc. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_ulong calls;

void *malloc(size_t bytes)
{
    atomic_fetch_add(&calls, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&calls, 1);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&calls, 1);
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&calls, 1);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    atomic_fetch_add(&calls, 1);
    *out = __libc_memalign(alignment, bytes);
    return *out == NULL;
}

/* Runs a batch of `rows` rows of all lengths on a core, or with helpers, until every path has run, and then counts. */
static unsigned long run_batches(enum precision precision, uint32_t rows, unsigned threads)
{
    const struct memory_shape shape = {200, 160, 64, 2, 2, 128};
    struct model *model = memory_model(shape, 5);
    struct engine_options options = {.backend = "cpu", .precision = precision};
    struct engine *engine;
    struct encoder *encoder;
    struct parallel_for *parallel;
    struct err err;
    assert_int_equal(engine_open(model, &options, &engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(engine, &encoder, &err), STATUS_OK);
    assert_int_equal(parallel_for_open(threads, &parallel, &err), STATUS_OK);
    assert_int_equal(encoder_join(encoder, parallel, &err), STATUS_OK);

    uint32_t start[ROWS], length[ROWS], extent = 0;
    for (uint32_t r = 0; r < rows; r++) {
        start[r] = extent;
        length[r] = 1 + r * 4;
        extent += length[r];
    }
    int32_t *ids = calloc(extent, sizeof *ids);
    float *output = calloc((size_t)ROWS * model->dim, sizeof *output);
    assert_true(ids != NULL && output != NULL);
    struct engine_batch batch = {rows, extent, ids, start, length, output};
    for (unsigned i = 0; i < WARM + BATCHES; i++) {
        if (i == WARM) { atomic_store(&calls, 0); }
        assert_int_equal(encoder_run(encoder, &batch, &err), STATUS_OK);
    }
    unsigned long counted = atomic_load(&calls);
    free(ids);
    free(output);
    encoder_close(encoder);
    parallel_for_close(parallel);
    engine_close(engine);
    memory_model_free(model);
    return counted;
}

TEST(calls_are_counted)
{
    unsigned long before = atomic_load(&calls);
    void *volatile memory = malloc(3);
    free(memory);
    memory = calloc(1, 3);
    free(memory);
    assert_int_equal(atomic_load(&calls), before + 2);
}

TEST(batches_allocate_nothing)
{
    const enum precision all[] = {PRECISION_F32, PRECISION_BF16, PRECISION_INT8};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run_batches(all[i], ROWS, 1), 0);
        assert_int_equal(run_batches(all[i], FEW_ROWS, 3), 0);
    }
}

TEST(steps_of_a_decoder_allocate_nothing)
{
    const struct memory_shape shape = {200, 160, 64, 2, 4, 128, .modern = true, .key_heads = 2, .head_dim = 32};
    struct model *model = memory_model(shape, 5);
    struct engine_options options = {.backend = "cpu", .precision = PRECISION_BF16};
    struct engine *engine;
    struct decoder *decoder;
    struct parallel_for *parallel;
    struct err err;
    model->generates = model->tied_head = true;
    assert_int_equal(engine_open(model, &options, &engine, &err), STATUS_OK);
    assert_int_equal(decoder_open(engine, &(struct decoder_options){.blocks = 8}, &decoder, &err), STATUS_OK);
    assert_int_equal(parallel_for_open(3, &parallel, &err), STATUS_OK);
    assert_int_equal(decoder_join(decoder, parallel, &err), STATUS_OK);
    int32_t ids[40] = {0};
    uint32_t first[] = {0, 1, 2}, second[] = {3, 4, 5};
    for (uint32_t i = 0; i < WARM + BATCHES; i++) {
        float *logits;
        struct decoder_row rows[] = {{ids, 40, 0, first, true}, {ids, 1, i, second, true}};
        if (i == WARM) { atomic_store(&calls, 0); }
        assert_int_equal(decoder_step(decoder, rows, 2, &logits, &err), STATUS_OK);
    }
    assert_int_equal(atomic_load(&calls), 0);
    decoder_close(decoder);
    parallel_for_close(parallel);
    engine_close(engine);
    memory_model_free(model);
}
