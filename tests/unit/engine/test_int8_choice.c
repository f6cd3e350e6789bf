/* The choice of a model's products for int8: as many as keep its vectors near, kept for the next start. Whether it is a
 * good one, random weights cannot tell. */
#include "harness.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/decoder.h"
#include "engine/encoder.h"
#include "memory_model.h"

static const struct memory_shape shallow = {100, 48, 64, 2, 2, 128};
static const struct memory_shape odd = {50, 40, 36, 3, 3, 70}; /* not for tiles */
static const struct memory_shape gated = {100, 48, 64, 2, 2, 96, .modern = true};
static const struct memory_shape deep = {100, 48, 64, 12, 2, 128};
static const struct memory_shape writer = {203, 160, 64, 6, 4, 112, .modern = true, .key_heads = 2, .head_dim = 32};

static struct engine *open_int8(const struct model *model, enum precision precision, const char *folder)
{
    const struct engine_options options = {.backend = "cpu", .precision = precision, .cache_path = folder};
    struct engine *engine;
    struct err err = {0};
    assert_int_equal(engine_open(model, &options, &engine, &err), STATUS_OK);
    assert_int_equal(engine_precision(engine), precision);
    return engine;
}

/* The products in int8; -1: the engine does not choose any. Checks that the counts agree. */
static int total_of(const struct model *model, enum precision precision, const char *folder)
{
    struct engine *engine = open_int8(model, precision, folder);
    const struct engine_int8 *int8 = engine_int8(engine);
    int total = int8 ? 0 : -1;
    for (int product = 0; int8 && product < ENGINE_PRODUCTS; product++) {
        uint32_t count = 0;
        for (uint32_t layer = 0; layer < int8->layers; layer++) { count += int8->in_int8[layer][product]; }
        assert_int_equal(count, int8->count[product]);
        total += (int)count;
    }
    if (int8) { assert_int_equal(total, int8->total); }
    engine_close(engine);
    return total;
}

TEST(other_precisions_choose_nothing)
{
    struct model *model = memory_model(shallow, 1);
    assert_int_equal(total_of(model, PRECISION_F32, ""), -1);
    assert_int_equal(total_of(model, PRECISION_BF16, ""), -1);
    memory_model_free(model);
}

TEST(a_shallow_model_is_all_in_int8)
{
    struct model *model = memory_model(shallow, 2);
    struct engine *engine = open_int8(model, PRECISION_INT8, ""), *plain = open_int8(model, PRECISION_F32, "");
    const struct engine_int8 *int8 = engine_int8(engine);
    assert_int_equal(int8->total, 2 * ENGINE_PRODUCTS);
    assert_true(int8->mean_error > 0 && int8->mean_error <= int8->worst_error && int8->worst_error <= 5e-3);
    assert_true(engine_weight_bytes(engine) < engine_weight_bytes(plain) / 2);
    engine_close(engine);
    engine_close(plain);
    memory_model_free(model);
}

/* Scales the weights of queries and keys, and the gains of their norms, so that attention is sharp, and rounding turns
 * it to other tokens. */
static void sharpen(struct model *model, float by)
{
    for (uint32_t layer = 0; layer < model->layer_count; layer++) {
        const struct model_layer *at = &model->layers[layer];
        const struct tensor *weights[] = {&at->query.weight, &at->key.weight, &at->query_norm.gain, &at->key_norm.gain};
        for (unsigned w = 0; w < sizeof weights / sizeof weights[0]; w++) {
            for (size_t i = 0; i < weights[w]->elements; i++) { ((float *)(uintptr_t)weights[w]->data)[i] *= by; }
        }
    }
}

TEST(products_that_would_spoil_the_vectors_are_left_out)
{
    struct model *model = memory_model(deep, 3);
    sharpen(model, 4);
    struct engine *engine = open_int8(model, PRECISION_INT8, "");
    const struct engine_int8 *int8 = engine_int8(engine);
    assert_true(int8->total > 0 && int8->total < 12 * ENGINE_PRODUCTS);
    assert_true(int8->mean_error <= 4.7e-4 && int8->worst_error <= 5e-3 && int8->mean_error > 0);
    engine_close(engine);
    engine = open_int8(model, PRECISION_INT8_ALL, "");
    assert_int_equal(engine_int8(engine)->total, 12 * ENGINE_PRODUCTS);
    assert_true(isnan(engine_int8(engine)->mean_error) && isnan(engine_int8(engine)->worst_error));
    engine_close(engine);
    memory_model_free(model);
}

/* Nothing is near a model that is not finite, and yet it opens: its rows that are not finite are handled elsewhere. */
static void spoil(struct model *model)
{
    ((float *)(uintptr_t)model->layers[1].output.weight.data)[5] = NAN;
}

TEST(a_model_that_is_not_finite_has_nothing_in_int8)
{
    struct model *model = memory_model(shallow, 7);
    spoil(model);
    assert_int_equal(total_of(model, PRECISION_INT8, ""), 0);
    memory_model_free(model);
}

/* The model changes under its id, which a real one cannot: so it shows whether a choice was read or made. */
TEST(the_choice_is_kept_for_the_model)
{
    char folder[] = "/tmp/sluice-int8-XXXXXX", path[400] = "", command[64];
    struct model *model = memory_model(shallow, 8);
    assert_non_null(mkdtemp(folder));
    strcpy(model->id, "1");
    assert_int_equal(total_of(model, PRECISION_INT8, folder), 2 * ENGINE_PRODUCTS);
    spoil(model);
    assert_int_equal(total_of(model, PRECISION_INT8, folder), 2 * ENGINE_PRODUCTS);
    strcpy(model->id, "2");
    assert_int_equal(total_of(model, PRECISION_INT8, folder), 0);
    strcpy(model->id, "1");

    DIR *listing = opendir(folder);
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] == '.') { continue; }
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "r+e");
        assert_non_null(file);
        assert_int_equal(fseek(file, -30, SEEK_END), 0); /* a digit of the last layer */
        fputc('x', file);
        assert_int_equal(fclose(file), 0);
    }
    closedir(listing);
    assert_int_equal(total_of(model, PRECISION_INT8, folder), 0); /* damaged, so it is made again */
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    memory_model_free(model);
}

/* --- any mixture of products --- */

enum { TEXTS = 40 };

static void fill_texts(const struct model *model, int32_t *ids, uint32_t *start, uint32_t *length)
{
    uint32_t used = 0;
    for (uint32_t text = 0; text < TEXTS; text++) {
        start[text] = used;
        length[text] = 1 + text * 7 % (model->max_tokens - 1);
        for (uint32_t i = 0; i < length[text]; i++) {
            ids[used++] = (int32_t)((text * 31 + i * 17 + 1) % model->vocabulary);
        }
    }
}

/* Runs the texts in one batch, and one by one into `alone`. */
static void run_both(struct engine *engine, const struct model *model, float *together, float *alone)
{
    struct encoder *encoder;
    struct err err = {0};
    int32_t *ids = calloc((size_t)TEXTS * model->max_tokens, sizeof *ids);
    uint32_t start[TEXTS], length[TEXTS], first = 0;
    assert_true(ids != NULL);
    fill_texts(model, ids, start, length);
    assert_int_equal(encoder_open(engine, &encoder, &err), STATUS_OK);
    struct engine_batch all = {TEXTS, start[TEXTS - 1] + length[TEXTS - 1], ids, start, length, together, NULL};
    assert_int_equal(encoder_run(encoder, &all, &err), STATUS_OK);
    for (uint32_t text = 0; text < TEXTS; text++) {
        struct engine_batch one = {
            1, length[text], ids + start[text], &first, length + text, alone + (size_t)text * model->dim, NULL};
        assert_int_equal(encoder_run(encoder, &one, &err), STATUS_OK);
    }
    encoder_close(encoder);
    free(ids);
}

/* Every second product in int8, or every third, and so on: what one product writes, another kind reads. */
static void expect_mixture(struct memory_shape shape, unsigned nth, unsigned first)
{
    struct model *model = memory_model(shape, 5);
    struct engine *engine, *plain = open_int8(model, PRECISION_F32, "");
    struct err err = {0};
    bool in_int8[12][ENGINE_PRODUCTS];
    for (unsigned i = 0; i < model->layer_count * ENGINE_PRODUCTS; i++) {
        in_int8[i / ENGINE_PRODUCTS][i % ENGINE_PRODUCTS] = (i + first) % nth == 0;
    }
    const struct engine_int8 choice = {.layers = model->layer_count, .in_int8 = in_int8};
    const struct engine_options options = {.precision = PRECISION_INT8, .cache_path = "", .int8 = &choice};
    assert_int_equal(engine_open_with(&backend_cpu, model, &options, &engine, &err), STATUS_OK);
    size_t count = (size_t)TEXTS * model->dim;
    float *together = malloc(count * sizeof *together), *alone = malloc(count * sizeof *alone);
    float *expected = malloc(count * sizeof *expected);
    assert_true(together && alone && expected);
    run_both(plain, model, expected, alone);
    run_both(engine, model, together, alone);
    assert_memory_equal(together, alone, count * sizeof *together);
    for (size_t text = 0; text < TEXTS; text++) {
        double cosine = 0;
        for (size_t i = 0; i < model->dim; i++) {
            cosine += (double)together[text * model->dim + i] * (double)expected[text * model->dim + i];
        }
        if (!(cosine > 0.998)) { fail_msg("every %u. from %u: text %zu: cosine %.5f", nth, first, text, cosine); }
    }
    free(together);
    free(alone);
    free(expected);
    engine_close(engine);
    engine_close(plain);
    memory_model_free(model);
}

/* Runs all texts, then others from each layer on with what the layers of the first ones began with. */
static void expect_any_beginning(struct memory_shape shape, enum precision precision)
{
    struct model *model = memory_model(shape, 6);
    struct engine *engine = open_int8(model, precision, "");
    struct encoder *encoder;
    struct err err = {0};
    uint32_t start[TEXTS], length[TEXTS];
    size_t count = (size_t)TEXTS * model->dim;
    int32_t *ids = calloc((size_t)TEXTS * model->max_tokens, sizeof *ids);
    float *expected = malloc(count * sizeof *expected), *output = malloc(count * sizeof *output);
    assert_true(ids && expected && output);
    fill_texts(model, ids, start, length);
    struct engine_batch batch = {TEXTS, start[TEXTS - 1] + length[TEXTS - 1], ids, start, length, expected, NULL};
    struct layer_inputs inputs = {.extent = batch.extent};
    inputs.rows = malloc((size_t)model->layer_count * batch.extent * LAYER_INPUT * model->hidden * sizeof *inputs.rows);
    assert_non_null(inputs.rows);
    assert_int_equal(encoder_open(engine, &encoder, &err), STATUS_OK);
    encoder->inputs = &inputs;
    assert_int_equal(encoder_run(encoder, &batch, &err), STATUS_OK);
    for (uint32_t i = 0; i < batch.extent; i++) { ids[i] = (ids[i] + 1) % (int32_t)model->vocabulary; }
    batch.output = output;
    for (inputs.from = 1; inputs.from < model->layer_count; inputs.from++) {
        memset(output, 0, count * sizeof *output);
        assert_int_equal(encoder_run(encoder, &batch, &err), STATUS_OK);
        assert_memory_equal(output, expected, count * sizeof *output);
    }
    encoder_close(encoder);
    engine_close(engine);
    free(inputs.rows);
    free(output);
    free(expected);
    free(ids);
    memory_model_free(model);
}

TEST(a_run_may_begin_at_any_layer)
{
    const struct memory_shape shapes[] = {shallow, odd, gated};
    const enum precision precisions[] = {PRECISION_F32, PRECISION_BF16, PRECISION_INT8_ALL};
    for (unsigned s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (unsigned p = 0; p < 3; p++) { expect_any_beginning(shapes[s], precisions[p]); }
    }
}

/* The first engine has been through the trial, the second one has read its choice. */
TEST(a_trial_leaves_what_a_later_start_opens)
{
    char folder[] = "/tmp/sluice-int8-XXXXXX", command[64];
    struct model *model = memory_model(deep, 3);
    size_t count = (size_t)TEXTS * model->dim;
    float *vectors[2] = {malloc(count * sizeof **vectors), malloc(count * sizeof **vectors)};
    float *alone = malloc(count * sizeof *alone);
    struct engine *engines[2];
    assert_true(vectors[0] && vectors[1] && alone && mkdtemp(folder));
    strcpy(model->id, "1");
    sharpen(model, 4);
    for (int i = 0; i < 2; i++) {
        engines[i] = open_int8(model, PRECISION_INT8, folder);
        run_both(engines[i], model, vectors[i], alone);
    }
    uint32_t total = engine_int8(engines[0])->total;
    assert_true(total > 0 && total < 12 * ENGINE_PRODUCTS && total == engine_int8(engines[1])->total);
    assert_memory_equal(vectors[0], vectors[1], count * sizeof **vectors);
    assert_int_equal(engine_weight_bytes(engines[0]), engine_weight_bytes(engines[1]));
    assert_string_equal(engine_device(engines[0]), engine_device(engines[1]));
    for (int i = 0; i < 2; i++) {
        engine_close(engines[i]);
        free(vectors[i]);
    }
    free(alone);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    memory_model_free(model);
}

/* --- language models --- */

static struct model *language_model(uint64_t seed)
{
    struct model *model = memory_model(writer, seed);
    model->generates = model->tied_head = true;
    return model;
}

/* The logits after a text, some of it token by token. */
static void decode(struct engine *engine, const struct model *model, float *to)
{
    static const uint32_t blocks[] = {2, 0, 1};
    struct decoder *decoder;
    struct err err = {0};
    int32_t ids[40];
    for (int i = 0; i < 40; i++) { ids[i] = (i * 31 + 7) % (int)model->vocabulary; }
    assert_int_equal(decoder_open(engine, &(struct decoder_options){.blocks = 3}, &decoder, &err), STATUS_OK);
    for (uint32_t position = 0, count; position < 40; position += count) {
        float *logits;
        count = position == 0 ? 35 : 1;
        struct decoder_row row = {ids + position, count, position, blocks, true};
        assert_int_equal(decoder_step(decoder, &row, 1, &logits, &err), STATUS_OK);
        memcpy(to, logits, model->vocabulary * sizeof *to);
    }
    decoder_close(decoder);
}

TEST(a_language_model_is_in_int8_as_far_as_its_likelihoods_allow)
{
    enum { ALL = 6 * ENGINE_PRODUCTS + 1 };
    struct model *model = language_model(3);
    struct engine *engine = open_int8(model, PRECISION_INT8, ""), *plain = open_int8(model, PRECISION_F32, "");
    const struct engine_int8 *int8 = engine_int8(engine);
    assert_int_equal(int8->of, ALL);
    assert_int_equal(int8->total, ALL);
    assert_true(int8->lm_head);
    assert_true(int8->mean_error > 0 && int8->mean_error <= 0.01 && int8->worst_error <= 0.1);
    assert_true(engine_weight_bytes(engine) < engine_weight_bytes(plain) / 2);
    engine_close(engine);
    engine_close(plain);

    sharpen(model, 4);
    engine = open_int8(model, PRECISION_INT8, "");
    int8 = engine_int8(engine);
    assert_true(int8->total > 0 && int8->total < ALL);
    assert_true(int8->mean_error > 0 && int8->mean_error <= 0.01 && int8->worst_error <= 0.1);
    engine_close(engine);
    spoil(model);
    engine = open_int8(model, PRECISION_INT8, "");
    assert_int_equal(engine_int8(engine)->total, 0);
    engine_close(engine);
    memory_model_free(model);
}

TEST(a_language_models_trial_leaves_what_a_later_start_opens)
{
    char folder[] = "/tmp/sluice-int8-XXXXXX", command[64];
    struct model *model = language_model(3);
    float logits[2][203];
    uint32_t total[2];
    char kinds[2][ENGINE_KIND + 1];
    assert_non_null(mkdtemp(folder));
    strcpy(model->id, "1");
    sharpen(model, 4);
    for (int i = 0; i < 2; i++) {
        struct engine *engine = open_int8(model, PRECISION_INT8, folder);
        total[i] = engine_int8(engine)->total;
        engine_kind(engine, kinds[i]);
        decode(engine, model, logits[i]);
        engine_close(engine);
    }
    assert_int_equal(total[0], total[1]);
    assert_string_equal(kinds[0], kinds[1]);
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    memory_model_free(model);
}

/* lm_head in int8 and the layers not, and the other way around. */
TEST(lm_head_is_a_product_of_its_own)
{
    struct model *model = language_model(4);
    bool in_int8[6][ENGINE_PRODUCTS];
    float logits[2][203], plain[203];
    struct engine *f32 = open_int8(model, PRECISION_F32, "");
    decode(f32, model, plain);
    engine_close(f32);
    for (int lm_head = 0; lm_head < 2; lm_head++) {
        struct engine *engine;
        struct err err = {0};
        memset(in_int8, !lm_head, sizeof in_int8);
        const struct engine_int8 choice = {.layers = 6, .in_int8 = in_int8, .lm_head = lm_head};
        const struct engine_options options = {.precision = PRECISION_INT8, .cache_path = "", .int8 = &choice};
        assert_int_equal(engine_open_with(&backend_cpu, model, &options, &engine, &err), STATUS_OK);
        decode(engine, model, logits[lm_head]);
        engine_close(engine);
        float off = 0, largest = 0;
        for (int i = 0; i < 203; i++) {
            off = fmaxf(off, fabsf(logits[lm_head][i] - plain[i]));
            largest = fmaxf(largest, fabsf(plain[i]));
        }
        if (!(off > 0 && off < 0.1f * largest)) { fail_msg("off by %g of %g", (double)off, (double)largest); }
    }
    assert_memory_not_equal(logits[0], logits[1], sizeof logits[0]);
    memory_model_free(model);
}

TEST(products_of_all_kinds_work_together)
{
    const struct memory_shape shapes[] = {shallow, odd, gated};
    for (unsigned s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (unsigned nth = 2; nth <= 4; nth++) {
            for (unsigned first = 0; first < nth; first++) { expect_mixture(shapes[s], nth, first); }
        }
    }
}
