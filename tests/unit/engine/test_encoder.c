/* The encoder against plain f64 loops, and against itself: a text's vector has the same bits alone, in a packed batch
 * and in one with gaps.
 *
 * ctest-cost: 8 */
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "encoder_reference.h"
#include "engine/backend.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/pack.h"
#include "engine/engine.h"
#include "engine/vector.h"
#include "memory_model.h"
#include "named_set.h"

enum { MAX_ROWS = 64 };

static const struct memory_shape small = {200, 160, 64, 2, 2, 128};
static const struct memory_shape long_rows = {200, 300, 64, 2, 2, 128};
static const struct memory_shape odd = {50, 40, 36, 2, 3, 70}; /* no width is a multiple of a vector */
static const struct memory_shape biased = {200, 160, 64, 2, 2, 128, true};
static const struct memory_shape biased_and_odd = {50, 40, 36, 2, 3, 70, true};
static const struct memory_shape modern = {200, 160, 64, 3, 2, 112, .modern = true};
static const struct memory_shape modern_and_odd = {50, 140, 36, 4, 2, 48, .modern = true}; /* heads of 18 */
static const struct memory_shape qwen = {200, 160, 64, 3, 4, 112, .modern = true, .key_heads = 2, .head_dim = 32};
static const struct memory_shape qwen_and_odd = {50, 140, 36, 2, 3, 48, .modern = true, .key_heads = 1, .head_dim = 10};
static const struct memory_shape gemma = {
    200, 160, 64, 3, 4, 112, .modern = true, .key_heads = 2, .head_dim = 24, .gemma = true};
static const struct memory_shape gemma_and_odd = {
    50, 140, 36, 2, 3, 48, .modern = true, .key_heads = 1, .head_dim = 10, .gemma = true};
/* The same in sizes that products on tiles take. */
static const struct memory_shape modern_on_tiles = {200, 160, 64, 3, 2, 128, .modern = true};
static const struct memory_shape qwen_on_tiles = {200,           160, 64, 3, 4, 96, .modern = true, .key_heads = 2,
                                                  .head_dim = 32};
static const struct memory_shape gemma_on_tiles = {
    200, 160, 96, 3, 3, 128, .modern = true, .key_heads = 1, .head_dim = 64, .gemma = true};
static const struct memory_shape wide = {100, 48, 256, 1, 4, 3072};
static const struct memory_shape wide_and_short = {100, 12, 256, 1, 4, 3072};

/* With tiles and without: some layers in int8 and some not. */
static const struct memory_shape deep = {100, 48, 64, 12, 2, 128};
static const struct memory_shape deep_and_odd = {50, 40, 36, 12, 3, 70};

static uint32_t seed_state = 12345;

static uint32_t next_random(void)
{
    seed_state = seed_state * 1664525u + 1013904223u;
    return seed_state >> 8;
}

struct rows {
    uint32_t count, total;
    int32_t *ids[MAX_ROWS];
    uint32_t length[MAX_ROWS];
};

/* Rows of the given lengths with random ids; where a model numbers positions past padding, every third token is that.
 */
static struct rows make_rows(const struct model *model, const uint32_t *lengths, uint32_t count)
{
    struct rows rows = {.count = count};
    for (uint32_t r = 0; r < count; r++) {
        rows.length[r] = lengths[r];
        rows.total += lengths[r];
        rows.ids[r] = calloc(lengths[r], sizeof(int32_t));
        assert_non_null(rows.ids[r]);
        for (uint32_t t = 0; t < lengths[r]; t++) {
            bool padding = model->position_offset > 0 && t % 3 == 0;
            rows.ids[r][t] = (int32_t)(padding ? model->position_offset - 1 : next_random() % model->vocabulary);
        }
    }
    return rows;
}

static void free_rows(struct rows *rows)
{
    for (uint32_t r = 0; r < rows->count; r++) { free(rows->ids[r]); }
}

/* Runs rows as one batch, with `gap` ids that would be refused after each row. */
static enum status run(struct encoder *encoder, const struct rows *rows, uint32_t gap, float *output, struct err *err)
{
    uint32_t start[MAX_ROWS], extent = rows->total + rows->count * gap;
    int32_t *ids = malloc((extent + 1) * sizeof *ids);
    assert_non_null(ids);
    for (uint32_t i = 0; i < extent; i++) { ids[i] = -7; }
    for (uint32_t r = 0, at = 0; r < rows->count; r++) {
        start[r] = at;
        memcpy(ids + at, rows->ids[r], rows->length[r] * sizeof *ids);
        at += rows->length[r] + gap;
    }
    struct engine_batch batch = {rows->count, extent, ids, start, rows->length, output};
    enum status status = encoder_run(encoder, &batch, err);
    free(ids);
    return status;
}

struct opened {
    struct model *model;
    struct engine *engine;
    struct encoder *encoder;
};

static struct opened open_model(struct model *model, enum precision precision)
{
    struct opened opened = {.model = model};
    struct err err = {0};
    struct engine_options options = {"cpu", precision};
    if (engine_open(model, &options, &opened.engine, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    if (encoder_open(opened.engine, &opened.encoder, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    return opened;
}

static void close_model(struct opened *opened)
{
    encoder_close(opened->encoder);
    engine_close(opened->engine);
    memory_model_free(opened->model);
}

static double cosine(const float *a, const double *b, uint32_t dim)
{
    double ab = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < dim; i++) {
        ab += a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

/* Every row of a mixed batch against the reference; one is as long as the model takes. */
static void compare(struct model *model, enum precision precision, double least_cosine, double most_difference)
{
    const uint32_t lengths[] = {1, 2, 3, 5, 8, 9, 16, 17, 31, 33, model->max_tokens};
    enum { COUNT = sizeof lengths / sizeof lengths[0] };
    struct opened opened = open_model(model, precision);
    struct rows rows = make_rows(model, lengths, COUNT);
    float *output = calloc(COUNT * model->dim, sizeof *output);
    double *expected = calloc(model->dim, sizeof *expected);
    struct err err = {0};
    assert_int_equal(run(opened.encoder, &rows, 0, output, &err), STATUS_OK);
    for (uint32_t r = 0; r < COUNT; r++) {
        const float *vector = output + (size_t)r * model->dim;
        reference_encode(model, rows.ids[r], rows.length[r], expected);
        double worst = 0;
        for (uint32_t i = 0; i < model->dim; i++) { worst = fmax(worst, fabs(vector[i] - expected[i])); }
        if (cosine(vector, expected, model->dim) < least_cosine || !(worst <= most_difference)) {
            fail_msg("%u layers of %u, activation %d, pooling %d, length %u: cosine 1 - %g, largest difference %g",
                     model->layer_count, model->hidden, (int)model->activation, (int)model->pooling, rows.length[r],
                     1 - cosine(vector, expected, model->dim), worst);
        }
    }
    free(expected);
    free(output);
    free_rows(&rows);
    close_model(&opened);
}

/* A model that differs from what memory_model makes of its shape; a member that is 0 changes nothing. */
struct variant {
    const struct memory_shape *shape;
    uint32_t seed;
    enum activation activation;
    enum pooling pooling;
    uint32_t window, position_offset;
    bool not_normalized, no_types, post_norm, both_ways;
};

static struct model *make_variant(const struct variant *variant)
{
    struct model *model = memory_model(*variant->shape, variant->seed);
    if (variant->activation != 0) { model->activation = variant->activation; }
    if (variant->pooling != POOLING_UNSET) { model->pooling = variant->pooling; }
    if (variant->window != 0) { model->window = variant->window; }
    model->position_offset = variant->position_offset;
    model->max_tokens -= variant->position_offset;
    if (variant->not_normalized) { model->normalize = false; }
    if (variant->no_types) {
        model->token_types = 0;
        model->type_embeddings = (struct tensor){0};
    }
    if (variant->post_norm) { model->pre_norm = false; }
    if (variant->both_ways) { model->causal = false; }
    return model;
}

TEST(f32_matches_plain_loops)
{
    static const struct variant variants[] = {
        {&small, 1},
        {&odd, 2},
        {&small, 3, .pooling = POOLING_CLS},
        {&small, 5, .activation = ACTIVATION_GELU_TANH},
        {&small, 16, .no_types = true},
        {&small, 6, .activation = ACTIVATION_RELU, .position_offset = 2},
        {&biased, 22}, /* a relative bias */
        {&biased_and_odd, 23},
        /* as ModernBERT: norms before, gated, no biases, rotary positions, windows */
        {&modern, 30},
        {&modern_and_odd, 31},
        {&modern, 32, .activation = ACTIVATION_SILU, .post_norm = true},
        {&modern_and_odd, 33, .activation = ACTIVATION_GELU_TANH, .window = 200},
        /* as Qwen3: the same with RMS norms, also of each query and key, fewer heads of keys than of queries, heads
         * that together are wider or narrower than the model, and no look ahead; and once with one */
        {&qwen, 41, .pooling = POOLING_LAST},
        {&qwen_and_odd, 42},
        {&qwen, 43, .both_ways = true},
        /* as Gemma3: the same both ways with a norm of what each part adds, before it is added; gains less 1; words and
         * scores scaled */
        {&gemma, 50, .activation = ACTIVATION_GELU_TANH},
        {&gemma_and_odd, 51},
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        compare(make_variant(&variants[i]), PRECISION_F32, 0.9999999, 1e-6);
    }
    compare(make_variant(&(struct variant){&small, 4, .not_normalized = true}), PRECISION_F32, 0.9999999, 1e-5);
}

/* A model whose words are stored in 16 bits, subnormal numbers among them, or the same ones as f32. */
static struct model *with_halves(struct memory_shape shape, enum dtype dtype, bool stored)
{
    struct model *model = memory_model(shape, 40);
    struct tensor *words = &model->word_embeddings;
    uint16_t *halves = calloc(words->elements, sizeof *halves);
    assert_non_null(halves);
    seed_state = 99;
    for (size_t i = 0; i < words->elements; i++) {
        halves[i] = (uint16_t)next_random() & (dtype == DTYPE_F16 ? 0xBFFF : 0xBF7F); /* below 2 and 1 */
    }
    struct tensor narrow = {dtype, 2, {words->shape[0], words->shape[1]}, halves, words->elements};
    if (stored) {
        memcpy((void *)(uintptr_t)words->data, halves, words->elements * sizeof *halves);
        words->dtype = dtype;
    } else {
        tensor_read_f32(&narrow, 0, words->elements, (float *)(uintptr_t)words->data);
    }
    free(halves);
    return model;
}

/* Only as many bytes are kept as the file has, and no bit is lost, in any precision. */
TEST(words_of_16_bits_stay_as_they_are)
{
    static const struct {
        enum dtype dtype;
        enum precision precision;
        bool same; /* f32 words are rounded to bf16 */
    } cases[] = {
        {DTYPE_F16, PRECISION_F32, true},   {DTYPE_BF16, PRECISION_F32, true},  {DTYPE_F16, PRECISION_BF16, false},
        {DTYPE_BF16, PRECISION_BF16, true}, {DTYPE_F16, PRECISION_INT8, false}, {DTYPE_BF16, PRECISION_INT8, true},
    };
    const uint32_t lengths[] = {1, 9, 40};
    enum { COUNT = sizeof lengths / sizeof lengths[0] };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        struct memory_shape shape = i % 2 ? odd : small;
        enum precision precision = cases[i / 2].precision;
        struct opened kept = open_model(with_halves(shape, cases[i / 2].dtype, true), precision);
        struct opened widened = open_model(with_halves(shape, cases[i / 2].dtype, false), precision);
        struct rows rows = make_rows(kept.model, lengths, COUNT);
        float output[2][COUNT * 64];
        struct err err = {0};
        size_t bytes = COUNT * shape.hidden * sizeof(float), words = (size_t)shape.vocabulary * shape.hidden;
        assert_int_equal(run(kept.encoder, &rows, 0, output[0], &err), STATUS_OK);
        assert_int_equal(run(widened.encoder, &rows, 0, output[1], &err), STATUS_OK);
        if (cases[i / 2].same != (memcmp(output[0], output[1], bytes) == 0)) { fail_msg("case %zu", i / 2); }
        assert_int_equal(engine_weight_bytes(widened.engine) - engine_weight_bytes(kept.engine),
                         precision == PRECISION_F32 ? 2 * words : 0);
        free_rows(&rows);
        close_model(&kept);
        close_model(&widened);
    }
}

/* This process' "VmRSS", or "VmHWM", its peak since clear_refs was last written. */
static size_t resident_bytes(const char *what)
{
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, what, strlen(what)) == 0) { kilobytes = strtoull(line + strlen(what) + 1, NULL, 10); }
    }
    (void)fclose(file);
    assert_true(kilobytes > 0);
    return (size_t)kilobytes * 1024;
}

/* The words of a multilingual model are half a gigabyte: they are never in memory twice. */
TEST(words_are_given_back_while_they_are_copied)
{
    struct memory_shape many = {1 << 18, 40, 64, 1, 2, 128};
    size_t bytes = (size_t)many.vocabulary * many.hidden * sizeof(uint16_t);
    struct model *model = memory_model((struct memory_shape){50, 40, 64, 1, 2, 128}, 3);
    void *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(words != MAP_FAILED);
    memset(words, 0x11, bytes);
    model->vocabulary = many.vocabulary;
    model->word_embeddings =
        (struct tensor){DTYPE_BF16, 2, {many.vocabulary, many.hidden}, words, (size_t)many.vocabulary * many.hidden};
    model->read_once = true;
    size_t before = resident_bytes("VmRSS");
    FILE *clear = fopen("/proc/self/clear_refs", "w"); /* 5 resets the peak */
    assert_true(clear != NULL && fputs("5", clear) > 0 && fclose(clear) == 0);
    struct opened opened = open_model(model, PRECISION_BF16);
    size_t grown = resident_bytes("VmHWM") - before;
    if (grown > bytes / 2) { fail_msg("%zu bytes more, for words of %zu", grown, bytes); }
    close_model(&opened);
    (void)munmap(words, bytes);
}

/* The vectors are not normalised, because that would hide the divisor of a sum. */
TEST(f32_matches_with_every_pooling)
{
    for (unsigned pooling = POOLING_MEAN; pooling < POOLINGS; pooling++) {
        const struct variant variant = {&odd, 30 + pooling, .pooling = (enum pooling)pooling, .not_normalized = true};
        compare(make_variant(&variant), PRECISION_F32, 0.9999999, 2e-5);
    }
}

/* A raw engine gives vectors that a plain one would have normalised: the same bits in the end. */
TEST(raw_vectors_are_normalised_later)
{
    const uint32_t lengths[] = {1, 9, 40};
    enum { COUNT = sizeof lengths / sizeof lengths[0] };
    struct opened plain = open_model(memory_model(small, 5), PRECISION_F32), raw = {.model = memory_model(small, 5)};
    struct err err = {0};
    struct engine_options options = {.backend = "cpu", .precision = PRECISION_F32, .raw = true};
    assert_int_equal(engine_open(raw.model, &options, &raw.engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(raw.engine, &raw.encoder, &err), STATUS_OK);
    struct rows rows = make_rows(plain.model, lengths, COUNT);
    uint32_t dim = plain.model->dim;
    float *expected = calloc(COUNT * dim, sizeof *expected), *output = calloc(COUNT * dim, sizeof *output);
    assert_int_equal(run(plain.encoder, &rows, 0, expected, &err), STATUS_OK);
    assert_int_equal(run(raw.encoder, &rows, 0, output, &err), STATUS_OK);
    assert_memory_not_equal(output, expected, COUNT * dim * sizeof *output);
    for (uint32_t r = 0; r < COUNT; r++) { vector_normalize(output + (size_t)r * dim, dim); }
    assert_memory_equal(output, expected, COUNT * dim * sizeof *output);
    free(output);
    free(expected);
    free_rows(&rows);
    close_model(&raw);
    close_model(&plain);
}

/* A zero vector is not divided by its length. */
TEST(a_zero_vector_stays_zero)
{
    float zero[3] = {0}, large[2] = {3e38f, 3e38f};
    vector_normalize(zero, 3);
    vector_normalize(large, 2);
    for (int i = 0; i < 3; i++) { assert_true(zero[i] == 0); }
    assert_true(fabsf(large[0] - 0.70710678f) < 1e-6f);
}

TEST(refuses_to_gate_an_odd_width)
{
    struct memory_shape shape = modern;
    struct err err = {0};
    struct engine *engine;
    shape.intermediate = 72;
    struct model *model = memory_model(shape, 1);
    assert_int_equal(engine_open(model, &(struct engine_options){.backend = "cpu"}, &engine, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.message, "72 intermediate units are no multiple of 16");
    memory_model_free(model);
}

/* The scores of queries and keys with norms of their own are too sharp for it: cosines of 0.9985. */
TEST(refuses_int8_with_rms_norms)
{
    struct model *model = memory_model(qwen, 1);
    struct err err = {0};
    struct engine *engine;
    struct engine_options options = {"cpu", PRECISION_INT8};
    assert_int_equal(engine_open(model, &options, &engine, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.message,
                        "int8 does not hold the vectors of models with RMS norms near enough to f32; bf16 does");
    memory_model_free(model);
}

/* Otherwise the tests of those shapes would test less than their names say. */
TEST(shapes_on_tiles_are_on_tiles)
{
    const struct memory_shape shapes[] = {modern_on_tiles, qwen_on_tiles, gemma_on_tiles};
    if (instruction_set_pick()->bf16 == NULL) { skip(); }
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct model *model = memory_model(shapes[i], 1);
        struct cpu_weights *weights;
        struct engine_options options = {"cpu", PRECISION_BF16};
        struct err err = {0};
        assert_int_equal(cpu_weights_open(model, &options, &weights, &err), STATUS_OK);
        assert_int_equal(weights->kind, GEMM_BF16);
        cpu_weights_close(weights);
        memory_model_free(model);
    }
}

TEST(bf16_is_near_plain_loops)
{
    compare(memory_model(modern, 34), PRECISION_BF16, 0.9999, 0.01);
    compare(memory_model(modern_on_tiles, 35), PRECISION_BF16, 0.9999, 0.01);
    compare(memory_model(qwen_on_tiles, 46), PRECISION_BF16, 0.9999, 0.01);
    compare(memory_model(gemma_on_tiles, 54), PRECISION_BF16, 0.9999, 0.01);
    compare(memory_model(qwen, 44), PRECISION_BF16, 0.9999, 0.01);
    compare(memory_model(qwen_and_odd, 45), PRECISION_BF16, 0.9999, 0.02);
    compare(memory_model(gemma, 52), PRECISION_BF16, 0.9999, 0.01);
    compare(memory_model(gemma_and_odd, 53), PRECISION_BF16, 0.9999, 0.02);
    compare(memory_model(modern_and_odd, 35), PRECISION_BF16, 0.9999, 0.02);
    compare(memory_model(biased, 24), PRECISION_BF16, 0.9999, 0.01);
    compare(memory_model(biased_and_odd, 25), PRECISION_BF16, 0.9999, 0.02);
    compare(memory_model(small, 7), PRECISION_BF16, 0.9999, 0.01);
    compare(memory_model(odd, 8), PRECISION_BF16, 0.9999, 0.02);
}

/* In int8 a vector is near the model's own; how near depends on the model, and these random ones are small: with a few
 * dozen numbers a text of one token is several times as far off as the mean of a sample's texts. */
TEST(int8_is_near_plain_loops)
{
    compare(memory_model(small, 15), PRECISION_INT8, 0.9995, 0.02);
    compare(memory_model(odd, 16), PRECISION_INT8, 0.9995, 0.02);
    compare(memory_model(wide, 17), PRECISION_INT8, 0.9995, 0.02);
    compare(memory_model(modern, 36), PRECISION_INT8, 0.9995, 0.02);
    compare(memory_model(modern_on_tiles, 47), PRECISION_INT8, 0.9995, 0.02);
    compare(memory_model(modern_and_odd, 37), PRECISION_INT8, 0.998, 0.03);
    compare(memory_model(deep, 20), PRECISION_INT8, 0.99, 0.06);
    compare(memory_model(deep_and_odd, 21), PRECISION_INT8, 0.99, 0.06);
}

TEST(int8_is_near_with_other_activations)
{
    static const struct variant variants[] = {
        {&modern, 38, .activation = ACTIVATION_GELU_TANH},
        {&modern, 39, .activation = ACTIVATION_SILU},
        {&small, 18, .activation = ACTIVATION_GELU_TANH, .pooling = POOLING_CLS},
        {&small, 19, .activation = ACTIVATION_RELU},
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        compare(make_variant(&variants[i]), PRECISION_INT8, 0.9995, 0.02);
    }
}

/* Runs the same rows alone, packed, and in reverse with gaps, and compares bits. */
static void check_bits(struct memory_shape shape, enum precision precision)
{
    struct opened opened = open_model(memory_model(shape, 9), precision);
    uint32_t longest = opened.model->max_tokens, lengths[MAX_ROWS], count = 0;
    for (uint32_t length = 1; length <= 33 && length < longest; length++) { lengths[count++] = length; }
    for (int i = 0; i < 4; i++) { lengths[count++] = 1 + next_random() % longest; }
    lengths[count++] = longest;

    struct rows rows = make_rows(opened.model, lengths, count), turned = rows;
    for (uint32_t r = 0; r < count; r++) {
        turned.ids[r] = rows.ids[count - 1 - r];
        turned.length[r] = rows.length[count - 1 - r];
    }
    size_t dim = opened.model->dim, bytes = dim * sizeof(float);
    float *alone = malloc(count * bytes), *together = malloc(count * bytes);
    struct err err = {0};
    for (uint32_t r = 0; r < count; r++) {
        struct rows one = {1, rows.length[r], {rows.ids[r]}, {rows.length[r]}};
        assert_int_equal(run(opened.encoder, &one, 0, alone + r * dim, &err), STATUS_OK);
    }
    assert_int_equal(run(opened.encoder, &rows, 0, together, &err), STATUS_OK);
    assert_memory_equal(together, alone, count * bytes);
    assert_int_equal(run(opened.encoder, &turned, 3, together, &err), STATUS_OK);
    for (uint32_t r = 0; r < count; r++) {
        assert_memory_equal(together + (count - 1 - r) * dim, alone + r * dim, bytes);
    }
    free(alone);
    free(together);
    free_rows(&rows);
    close_model(&opened);
}

TEST(f32_bits_do_not_depend_on_the_batch)
{
    check_bits(long_rows, PRECISION_F32);
    check_bits(biased, PRECISION_F32);
    check_bits(modern, PRECISION_F32);
    check_bits(qwen, PRECISION_F32);
    check_bits(gemma, PRECISION_F32);
    check_bits(odd, PRECISION_F32);
    check_bits(wide_and_short, PRECISION_F32);
}

TEST(bf16_bits_do_not_depend_on_the_batch)
{
    check_bits(long_rows, PRECISION_BF16);
    check_bits(biased_and_odd, PRECISION_BF16);
    check_bits(modern_on_tiles, PRECISION_BF16);
    check_bits(qwen_on_tiles, PRECISION_BF16);
    check_bits(gemma_on_tiles, PRECISION_BF16);
    check_bits(modern_and_odd, PRECISION_BF16);
    check_bits(qwen_and_odd, PRECISION_BF16);
    check_bits(gemma_and_odd, PRECISION_BF16);
    check_bits(odd, PRECISION_BF16);
    check_bits(wide_and_short, PRECISION_BF16);
}

TEST(int8_bits_do_not_depend_on_the_batch)
{
    check_bits(small, PRECISION_INT8);
    check_bits(biased, PRECISION_INT8);
    check_bits(modern_on_tiles, PRECISION_INT8);
    check_bits(odd, PRECISION_INT8);
    check_bits(wide_and_short, PRECISION_INT8);
    check_bits(deep, PRECISION_INT8);
    check_bits(deep_and_odd, PRECISION_INT8);
}

TEST(two_encoders_give_the_same_bits)
{
    struct opened opened = open_model(memory_model(small, 10), PRECISION_AUTO);
    struct encoder *second;
    struct err err = {0};
    const uint32_t lengths[] = {7, 100, 30};
    struct rows rows = make_rows(opened.model, lengths, 3);
    float a[3 * 64], b[3 * 64];
    assert_int_equal(encoder_open(opened.engine, &second, &err), STATUS_OK);
    assert_int_equal(run(opened.encoder, &rows, 0, a, &err), STATUS_OK);
    assert_int_equal(run(second, &rows, 0, b, &err), STATUS_OK);
    assert_memory_equal(a, b, sizeof a);
    encoder_close(second);
    free_rows(&rows);
    close_model(&opened);
}

static void count_one(void *context)
{
    ++*(unsigned *)context;
}

/* The batch has more tokens than a pass has room for. */
TEST(a_pause_comes_before_every_layer)
{
    struct opened opened = open_model(memory_model(small, 12), PRECISION_AUTO);
    struct err err = {0};
    const uint32_t lengths[] = {100, 100, 100, 100, 100, 100, 12};
    struct rows rows = make_rows(opened.model, lengths, 7);
    float with[7 * 64], without[7 * 64];
    unsigned pauses = 0;
    assert_int_equal(run(opened.encoder, &rows, 0, without, &err), STATUS_OK);
    uint64_t passes = engine_counters(opened.engine).passes;
    encoder_set_pause(opened.encoder, (struct encoder_pause){count_one, &pauses});
    assert_int_equal(run(opened.encoder, &rows, 0, with, &err), STATUS_OK);
    passes = engine_counters(opened.engine).passes - passes;
    assert_true(passes > 1);
    assert_int_equal(pauses, passes * opened.model->layer_count);
    assert_memory_equal(with, without, sizeof with);
    encoder_set_pause(opened.encoder, (struct encoder_pause){NULL, NULL});
    assert_int_equal(run(opened.encoder, &rows, 0, with, &err), STATUS_OK);
    assert_int_equal(pauses, passes * opened.model->layer_count);
    free_rows(&rows);
    close_model(&opened);
}

TEST(reading_the_weights_once_changes_no_bit)
{
    const uint32_t lengths[] = {7, 40, 1};
    float vectors[2][3 * 64];
    struct rows rows = {0};
    for (int once = 0; once < 2; once++) {
        struct model *model = memory_model(small, 11);
        model->read_once = once == 1;
        struct opened opened = open_model(model, PRECISION_AUTO);
        struct err err = {0};
        if (once == 0) { rows = make_rows(model, lengths, 3); }
        assert_int_equal(run(opened.encoder, &rows, 0, vectors[once], &err), STATUS_OK);
        float first;
        tensor_read_f32(&model->layers[1].output.weight, 64 * 64, 1, &first); /* in the middle: a whole page */
        assert_true((first == 0.0f) == (once == 1));
        close_model(&opened);
    }
    free_rows(&rows);
    assert_memory_equal(vectors[0], vectors[1], sizeof vectors[0]);
}

static void expect_refused(struct encoder *encoder, struct engine_batch batch)
{
    struct err err = {0};
    float untouched[64];
    for (size_t i = 0; i < 64; i++) { untouched[i] = batch.output[i] = 42.0f; }
    assert_int_equal(encoder_run(encoder, &batch, &err), STATUS_BAD_INPUT);
    assert_true(strlen(err.message) > 0);
    assert_memory_equal(batch.output, untouched, sizeof untouched);
}

TEST(bad_batches_are_refused_whole)
{
    struct opened opened = open_model(memory_model(small, 11), PRECISION_F32);
    float output[4 * 64];
    int32_t ids[400] = {0}, negative[8] = {1, 2, -1, 3}, beyond[8] = {1, 2, 200, 3};
    const uint32_t zero[2] = {0, 0}, four[2] = {0, 4}, three[2] = {0, 3};
    const uint32_t fours[2] = {4, 4}, none[2] = {4, 0}, too_long[2] = {161, 4};
    expect_refused(opened.encoder, (struct engine_batch){2, 8, negative, four, fours, output});
    expect_refused(opened.encoder, (struct engine_batch){2, 8, beyond, four, fours, output});
    expect_refused(opened.encoder, (struct engine_batch){2, 8, ids, four, none, output});
    expect_refused(opened.encoder, (struct engine_batch){1, 400, ids, zero, too_long, output});
    expect_refused(opened.encoder, (struct engine_batch){2, 8, ids, three, fours, output});
    expect_refused(opened.encoder, (struct engine_batch){2, 8, ids, zero, fours, output});
    expect_refused(opened.encoder, (struct engine_batch){2, 7, ids, four, fours, output});
    close_model(&opened);
}

TEST(an_empty_batch_is_nothing_to_do)
{
    struct opened opened = open_model(memory_model(small, 12), PRECISION_F32);
    struct err err = {0};
    assert_int_equal(encoder_run(opened.encoder, &(struct engine_batch){0}, &err), STATUS_OK);
    close_model(&opened);
}

/* One weight that is not a number reaches the vectors and is reported, in the row that met it and no other. */
static void expect_non_finite(enum precision precision)
{
    struct model *model = memory_model(small, 13);
    ((float *)model->storage)[5 * 64 + 3] = NAN; /* word 5 */
    struct opened opened = open_model(model, precision);
    struct err err = {0};
    int32_t ids[6] = {1, 2, 3, 4, 5, 6};
    const uint32_t start[2] = {0, 3}, length[2] = {3, 3};
    float output[2 * 64];
    struct engine_batch batch = {2, 6, ids, start, length, output};
    assert_int_equal(encoder_run(opened.encoder, &batch, &err), STATUS_NON_FINITE);
    assert_non_null(strstr(err.message, "row 1"));
    for (size_t i = 0; i < 64; i++) { assert_true(isfinite(output[i])); }
    assert_true(isnan(output[64]));
    batch.rows = 1;
    assert_int_equal(encoder_run(opened.encoder, &batch, &err), STATUS_OK);
    close_model(&opened);
}

TEST(vectors_that_are_not_finite_are_reported)
{
    expect_non_finite(PRECISION_AUTO);
    expect_non_finite(PRECISION_F32);
    expect_non_finite(PRECISION_INT8);
}

TEST(weights_of_the_wrong_size_are_refused)
{
    struct model *model = memory_model(small, 14);
    struct engine *engine = NULL;
    struct err err = {0};
    model->layers[1].output.weight.elements--;
    assert_int_equal(engine_open(model, NULL, &engine, &err), STATUS_UNSUPPORTED);
    assert_null(engine);
    memory_model_free(model);
}
