/* The parallel loop: every chunk is done once, on one thread at a time, whether helpers come, come late or not at all;
 * and the bits of vectors do not depend on the threads.
 * ctest: threads */
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/backend.h"
#include "engine/cpu/parallel_for.h"
#include "engine/engine.h"
#include "memory_model.h"
#include "named_set.h"

enum { CHUNKS = 200, STEPS = 50, LONGEST = 40 };

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static struct parallel_for *open_team(unsigned threads)
{
    struct parallel_for *parallel;
    struct err err;
    assert_int_equal(parallel_for_open(threads, &parallel, &err), STATUS_OK);
    return parallel;
}

/* ---- chunks ---- */

/* The chunks of a step write plain numbers: TSan checks that each step is ordered after the one before it. */
struct chunks {
    unsigned number;
    unsigned done[CHUNKS];
    unsigned sums[PARALLEL_THREADS_MAX]; /* of the threads; written by their threads alone */
    atomic_uint on[PARALLEL_THREADS_MAX], clashes;
};

static void do_chunk(void *context, unsigned thread, unsigned chunk)
{
    struct chunks *chunks = context;
    if (atomic_fetch_add(&chunks->on[thread], 1) != 0) { atomic_fetch_add(&chunks->clashes, 1); }
    chunks->done[chunk]++;
    chunks->sums[thread] += chunks->number;
    if (chunk == 60) { sched_yield(); }
    atomic_fetch_sub(&chunks->on[thread], 1);
}

/* Steps of all sizes in computations of a few steps; returns what the threads' sums must be together. */
static unsigned do_steps(struct parallel_for *parallel, struct chunks *chunks, uint32_t seed)
{
    unsigned expected = 0;
    for (unsigned step = 0; step < STEPS;) {
        bool owns = parallel_for_enter(parallel, true);
        for (unsigned i = 0; i < 5; i++, step++) {
            unsigned count = 1 + next_random(&seed) % CHUNKS;
            chunks->number = next_random(&seed) % 10;
            memset(chunks->done, 0, sizeof chunks->done);
            for (unsigned r = 0; r < count && !owns; r++) { do_chunk(chunks, 0, r); }
            if (owns) { parallel_for_run(parallel, &(struct parallel_step){do_chunk, chunks, count}); }
            for (unsigned r = 0; r < CHUNKS; r++) { assert_int_equal(chunks->done[r], r < count); }
            expected += chunks->number * count;
        }
        parallel_for_leave(parallel, owns);
    }
    return expected;
}

TEST(every_chunk_is_done_once)
{
    for (unsigned threads = 1; threads <= 5; threads++) {
        struct parallel_for *parallel = open_team(threads);
        struct chunks chunks = {0};
        unsigned expected = do_steps(parallel, &chunks, threads), sum = 0;
        for (unsigned thread = 0; thread < PARALLEL_THREADS_MAX; thread++) { sum += chunks.sums[thread]; }
        assert_int_equal(sum, expected);
        assert_int_equal(chunks.clashes, 0);
        parallel_for_close(parallel);
    }
}

TEST(helpers_have_a_part)
{
    struct parallel_for *parallel = open_team(3);
    struct chunks chunks = {.number = 1};
    assert_int_equal(parallel_for_threads(parallel), 3);
    while (chunks.sums[1] == 0 || chunks.sums[2] == 0) {
        bool owns = parallel_for_enter(parallel, true);
        assert_true(owns);
        parallel_for_run(parallel, &(struct parallel_step){do_chunk, &chunks, CHUNKS});
        parallel_for_leave(parallel, owns);
    }
    parallel_for_close(parallel);
}

TEST(a_team_has_one_owner_and_no_more_hands_than_cores)
{
    struct parallel_for *parallel = open_team(3);
    assert_false(parallel_for_enter(parallel, false));
    assert_true(parallel_for_enter(parallel, true)); /* two compute, one helper is left */
    assert_false(parallel_for_enter(parallel, true));
    parallel_for_leave(parallel, false);
    parallel_for_leave(parallel, true);
    assert_true(parallel_for_enter(parallel, true));
    parallel_for_leave(parallel, true);
    assert_false(parallel_for_enter(parallel, false));
    assert_false(parallel_for_enter(parallel, true)); /* no: three compute */
    for (int i = 0; i < 3; i++) { parallel_for_leave(parallel, false); }
    assert_true(parallel_for_enter(parallel, true));
    parallel_for_leave(parallel, true);
    parallel_for_close(parallel);

    parallel = open_team(1);
    assert_int_equal(parallel_for_threads(parallel), 1);
    assert_false(parallel_for_enter(parallel, true));
    parallel_for_leave(parallel, false);
    parallel_for_close(parallel);

    parallel = open_team(2 * PARALLEL_THREADS_MAX);
    assert_int_equal(parallel_for_threads(parallel), PARALLEL_THREADS_MAX);
    parallel_for_close(parallel);
}

/* ---- vectors ---- */

struct disturbance {
    struct parallel_for *parallel;
    atomic_bool ends;
};

/* Another thread computes now and then, so that helpers leave and come back at any time. */
static void *disturb(void *argument)
{
    struct disturbance *disturbance = argument;
    uint32_t seed = 5;
    while (!atomic_load(&disturbance->ends)) {
        bool owns = parallel_for_enter(disturbance->parallel, false);
        for (uint32_t spins = next_random(&seed) % 2000; spins > 0; spins--) {
            atomic_signal_fence(memory_order_seq_cst);
        }
        parallel_for_leave(disturbance->parallel, owns);
        for (uint32_t yields = next_random(&seed) % 4; yields > 0; yields--) { sched_yield(); }
    }
    return NULL;
}

struct scene {
    struct model *model;
    struct engine *engine;
    struct parallel_for *parallel;
    int32_t ids[LONGEST];
    float *expected; /* [LONGEST + 1, dim] */
};

static bool embed(const struct scene *scene, struct encoder *encoder, uint32_t length, float *vector)
{
    const uint32_t start = 0;
    struct engine_batch batch = {1, length, scene->ids, &start, &length, vector};
    return encoder_run(encoder, &batch, NULL) == STATUS_OK;
}

/* Several texts in one pass, each of which begins with the same ids. */
static intptr_t embed_together(const struct scene *scene, struct encoder *encoder)
{
    enum { ROWS = 4 };
    const uint32_t lengths[ROWS] = {24, 3, 17, LONGEST};
    uint32_t start[ROWS], extent = 0, dim = scene->model->dim;
    int32_t ids[ROWS * LONGEST];
    float *vectors = calloc((size_t)ROWS * dim, sizeof *vectors);
    intptr_t wrong = vectors == NULL;
    for (uint32_t r = 0; r < ROWS; extent += lengths[r++]) {
        start[r] = extent;
        memcpy(ids + extent, scene->ids, lengths[r] * sizeof *ids);
    }
    struct engine_batch batch = {ROWS, extent, ids, start, lengths, vectors};
    wrong += encoder_run(encoder, &batch, NULL) != STATUS_OK;
    for (uint32_t r = 0; r < ROWS; r++) {
        wrong +=
            memcmp(vectors + (size_t)r * dim, scene->expected + (size_t)lengths[r] * dim, dim * sizeof *vectors) != 0;
    }
    free(vectors);
    return wrong;
}

/* Runs texts of all lengths in order and then some again in any order, on an encoder of its own that has joined;
 * returns how many vectors are not what they should be. */
static void *embed_all(void *argument)
{
    const struct scene *scene = argument;
    struct encoder *encoder;
    uint32_t seed = 7, dim = scene->model->dim;
    intptr_t wrong = 0;
    float *vector = calloc(dim, sizeof *vector);
    if (vector == NULL || encoder_open(scene->engine, &encoder, NULL) != STATUS_OK ||
        encoder_join(encoder, scene->parallel, NULL) != STATUS_OK) {
        abort();
    }
    for (unsigned i = 0; i < LONGEST + LONGEST / 4; i++) {
        uint32_t length = i < LONGEST ? i + 1 : 1 + next_random(&seed) % LONGEST;
        const float *expected = scene->expected + (size_t)length * dim;
        wrong += !embed(scene, encoder, length, vector) || memcmp(vector, expected, dim * sizeof *vector) != 0;
    }
    for (unsigned i = 0; i < LONGEST / 8; i++) { wrong += embed_together(scene, encoder); }
    encoder_close(encoder);
    free(vector);
    return (void *)wrong;
}

/* Frees the model. */
static void check_bits_of(struct model *model, enum precision precision)
{
    struct scene scene = {.model = model};
    struct engine_options options = {"cpu", precision};
    struct encoder *alone;
    struct err err;
    uint32_t seed = 1;
    for (uint32_t i = 0; i < LONGEST; i++) { scene.ids[i] = (int32_t)(next_random(&seed) % scene.model->vocabulary); }
    assert_int_equal(engine_open(scene.model, &options, &scene.engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(scene.engine, &alone, &err), STATUS_OK);
    scene.expected = calloc((LONGEST + 1) * (size_t)scene.model->dim, sizeof(float));
    assert_non_null(scene.expected);
    for (uint32_t length = 1; length <= LONGEST; length++) {
        assert_true(embed(&scene, alone, length, scene.expected + (size_t)length * scene.model->dim));
    }

    for (unsigned threads = 2; threads <= 4; threads += 2) {
        scene.parallel = open_team(threads);
        struct disturbance disturbance = {.parallel = scene.parallel};
        pthread_t others[2];
        assert_int_equal(pthread_create(&others[0], NULL, disturb, &disturbance), 0);
        assert_int_equal(pthread_create(&others[1], NULL, embed_all, &scene), 0);
        void *wrong[2] = {embed_all(&scene)};
        pthread_join(others[1], &wrong[1]);
        atomic_store(&disturbance.ends, true);
        pthread_join(others[0], NULL);
        parallel_for_close(scene.parallel);
        assert_null(wrong[0]);
        assert_null(wrong[1]);
    }
    encoder_close(alone);
    engine_close(scene.engine);
    memory_model_free(scene.model);
    free(scene.expected);
}

static void check_bits(struct memory_shape shape, enum precision precision)
{
    check_bits_of(memory_model(shape, 3), precision);
}

/* Runs a pass of `rows` rows of `tokens` tokens; returns whether it was helped. */
static bool helped_with(struct encoder *encoder, uint32_t rows, uint32_t tokens)
{
    enum { MOST = 8, TOKENS = 512 };
    int32_t ids[TOKENS] = {0};
    uint32_t start[MOST], length[MOST];
    float vectors[MOST * 128];
    struct err err;
    for (uint32_t r = 0; r < rows; r++) {
        start[r] = r * tokens;
        length[r] = tokens;
    }
    struct engine_batch batch = {rows, rows * tokens, ids, start, length, vectors};
    assert_int_equal(encoder_run(encoder, &batch, &err), STATUS_OK);
    return encoder_helped(encoder);
}

static const struct memory_shape wide = {100, 72, 64, 2, 2, 128};
static const struct memory_shape odd = {50, 72, 36, 2, 3, 70};
static const struct memory_shape qwen = {50, 72, 64, 2, 4, 112, .modern = true, .key_heads = 2, .head_dim = 24};
/* In sizes that products on tiles take. Chunks of a gated product may end within a block of its result, and a share of
 * the heads may begin within a group that has keys in common. */
static const struct memory_shape modern_on_tiles = {50, 72, 64, 3, 2, 288, .modern = true};
static const struct memory_shape qwen_on_tiles = {
    50, 72, 64, 2, 12, 96, .modern = true, .key_heads = 3, .head_dim = 32};
static const struct memory_shape roomy = {100, 512, 64, 2, 2, 128};
static const struct memory_shape deep = {100, 72, 64, 12, 2, 128}; /* int8 does not take all of its layers */
static const struct memory_shape deep_and_modern = {50, 72, 64, 12, 2, 96, .modern = true};

/* Passes of few tokens or of one text are helped with while nothing else computes. */
TEST(a_batch_says_whether_it_was_helped)
{
    struct model *model = memory_model(roomy, 3);
    struct engine_options options = {"cpu", PRECISION_F32};
    struct parallel_for *parallel = open_team(2);
    struct engine *engine;
    struct encoder *encoder;
    struct err err;
    assert_int_equal(engine_open(model, &options, &engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(engine, &encoder, &err), STATUS_OK);
    assert_false(helped_with(encoder, 1, 64));
    assert_int_equal(encoder_join(encoder, parallel, &err), STATUS_OK);
    assert_true(helped_with(encoder, 1, 64));
    assert_true(helped_with(encoder, 4, 64));
    assert_false(helped_with(encoder, 5, 64));
    assert_true(helped_with(encoder, 1, 300));
    assert_false(helped_with(encoder, 2, 200));
    bool owns = parallel_for_enter(parallel, false);
    assert_false(helped_with(encoder, 1, 64));
    parallel_for_leave(parallel, owns);
    assert_true(helped_with(encoder, 1, 64));
    encoder_close(encoder);
    parallel_for_close(parallel);
    engine_close(engine);
    memory_model_free(model);
}

TEST(f32_bits_do_not_show_who_helped)
{
    check_bits(wide, PRECISION_F32);
    check_bits(odd, PRECISION_F32);
    check_bits(qwen, PRECISION_F32);
}

/* A dense layer after pooling, as large as a layer's first product. */
TEST(bits_of_modules_do_not_show_who_helped)
{
    struct model *model = memory_model(wide, 3);
    const struct linear *linear = &model->layers[0].intermediate;
    struct model_module dense = {.kind = MODULE_DENSE,
                                 .activation = MODULE_TANH,
                                 .inputs = wide.hidden,
                                 .outputs = wide.intermediate,
                                 .biased = true,
                                 .weight = linear->weight,
                                 .bias = linear->bias};
    model->modules = &dense;
    model->module_count = 1;
    model->dim = wide.intermediate;
    check_bits_of(model, PRECISION_F32);
}

TEST(native_bits_do_not_show_who_helped)
{
    check_bits(wide, PRECISION_AUTO); /* bf16 where the processor has it */
    check_bits(odd, PRECISION_AUTO);
}

TEST(bf16_bits_do_not_show_who_helped)
{
    check_bits(modern_on_tiles, PRECISION_BF16);
    check_bits(qwen_on_tiles, PRECISION_BF16);
}

TEST(int8_bits_do_not_show_who_helped)
{
    check_bits(wide, PRECISION_INT8);
    check_bits(odd, PRECISION_INT8);
    check_bits(deep, PRECISION_INT8);
    check_bits(deep_and_modern, PRECISION_INT8);
}
