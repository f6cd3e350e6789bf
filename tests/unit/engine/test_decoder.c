/* A decoder against itself and against what it must refuse. golden.decoder has the numbers.
 *
 * ctest-cost: 8 */
#include "harness.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "engine/cpu/parallel_for.h"
#include "engine/decoder.h"
#include "memory_model.h"
#include "named_set.h"

enum {
    SEQUENCES = 5,
    LENGTH = 90,
    BLOCKS = (LENGTH + DECODER_BLOCK - 1) / DECODER_BLOCK,
    POOL = SEQUENCES * BLOCKS + 1
};

static const struct memory_shape plain = {203, 160, 64, 3, 4, 112, .modern = true, .key_heads = 2, .head_dim = 32};
static const struct memory_shape odd = {50, 140, 36, 2, 3, 48, .modern = true, .key_heads = 1, .head_dim = 10};
static const struct memory_shape windows = {
    201, 160, 96, 3, 3, 128, .modern = true, .key_heads = 1, .head_dim = 64, .gemma = true};

struct opened {
    struct model *model;
    struct engine *engine;
    struct decoder *decoder;
};

static struct opened open_model(struct memory_shape shape, enum precision precision)
{
    struct opened opened = {.model = memory_model(shape, 7)};
    struct err err = {0};
    struct engine_options options = {.backend = "cpu", .precision = precision};
    struct decoder_options sizes = {.blocks = POOL};
    opened.model->generates = opened.model->tied_head = opened.model->causal = true;
    if (engine_open(opened.model, &options, &opened.engine, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    if (decoder_open(opened.engine, &sizes, &opened.decoder, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    return opened;
}

static void close_model(struct opened *opened)
{
    decoder_close(opened->decoder);
    engine_close(opened->engine);
    memory_model_free(opened->model);
}

static float *step(struct decoder *decoder, const struct decoder_row *rows, uint32_t count)
{
    struct err err = {0};
    float *logits;
    if (decoder_step(decoder, rows, count, &logits, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    return logits;
}

static int32_t id_at(const struct model *model, uint32_t sequence, uint32_t position)
{
    return (int32_t)((sequence * 37 + position * 11 + position * position) % model->vocabulary);
}

struct sequence {
    int32_t ids[LENGTH];
    uint32_t blocks[BLOCKS], done;
    float *logits; /* [LENGTH, vocabulary] */
};

/* Sequences whose logits after each token are computed alone, one token at a time. */
static void run_alone(const struct opened *opened, struct sequence *all)
{
    size_t vocabulary = opened->model->vocabulary;
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        all[s].logits = calloc(LENGTH * vocabulary, sizeof(float));
        assert_non_null(all[s].logits);
        for (uint32_t b = 0; b < BLOCKS; b++) { all[s].blocks[b] = s * BLOCKS + b; }
        for (uint32_t t = 0; t < LENGTH; t++) {
            all[s].ids[t] = id_at(opened->model, s, t);
            struct decoder_row row = {all[s].ids + t, 1, t, all[s].blocks, true};
            memcpy(all[s].logits + t * vocabulary, step(opened->decoder, &row, 1), vocabulary * sizeof(float));
        }
    }
}

/* All together in parts of up to `part` tokens, which begin in different steps, some of one token in between; every
 * block is another one than the last time. */
static void run_together(const struct opened *opened, struct sequence *all, uint32_t part)
{
    size_t vocabulary = opened->model->vocabulary;
    uint32_t left = SEQUENCES;
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        all[s].done = 0;
        for (uint32_t b = 0; b < BLOCKS; b++) { all[s].blocks[b] = (b * SEQUENCES + s + part * 3) % POOL; }
    }
    for (uint32_t now = 0; left > 0; now++) {
        struct decoder_row rows[SEQUENCES];
        uint32_t count = 0, at = 0;
        for (uint32_t s = 0; s < SEQUENCES && s <= now; s++) {
            uint32_t rest = LENGTH - all[s].done, some = (now + s) % 4 == 0 ? 1 : part;
            if (rest == 0) { continue; }
            some = some < rest ? some : rest;
            rows[count++] = (struct decoder_row){all[s].ids + all[s].done, some, all[s].done, all[s].blocks, s != 1};
        }
        const float *logits = step(opened->decoder, rows, count);
        for (uint32_t s = 0; s < SEQUENCES && s <= now; s++) {
            if (all[s].done == LENGTH) { continue; }
            all[s].done += rows[at].count;
            left -= all[s].done == LENGTH;
            if (!rows[at++].logits) { continue; }
            const float *wanted = all[s].logits + (all[s].done - 1) * vocabulary;
            if (memcmp(wanted, logits, vocabulary * sizeof *logits) != 0) {
                fail_msg("sequence %u: in parts of %u its logits at %u have other bits", s, part, all[s].done);
            }
            logits += vocabulary;
        }
    }
}

static void check_bits(struct memory_shape shape, enum precision precision)
{
    static const uint32_t parts[] = {1, 2, 3, 7, 15, 16, 17, LENGTH};
    static struct sequence all[SEQUENCES];
    struct opened opened = open_model(shape, precision);
    struct parallel_for *parallel;
    struct err err = {0};
    run_alone(&opened, all);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) { run_together(&opened, all, parts[i]); }
    assert_int_equal(parallel_for_open(2, &parallel, &err), STATUS_OK);
    assert_int_equal(decoder_join(opened.decoder, parallel, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) { run_together(&opened, all, parts[i]); }
    for (uint32_t s = 0; s < SEQUENCES; s++) { free(all[s].logits); }
    close_model(&opened);
    parallel_for_close(parallel);
}

TEST(same_bits_alone_and_in_any_mix)
{
    static const enum precision precisions[] = {PRECISION_F32, PRECISION_BF16, PRECISION_INT8_ALL};
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        check_bits(plain, precisions[i]);
        check_bits(odd, precisions[i]);
        check_bits(windows, precisions[i]);
    }
}

/* What earlier uses of a block have left is never read: all of the pool is filled with NaN first. */
TEST(old_contents_of_blocks_do_not_matter)
{
    struct opened opened = open_model(windows, PRECISION_F32);
    size_t bytes = opened.model->vocabulary * sizeof(float);
    int32_t ids[LENGTH], bad = 3;
    uint32_t blocks[BLOCKS];
    float *wanted = malloc(bytes), *word = (float *)(uintptr_t)opened.model->word_embeddings.data;
    assert_non_null(wanted);
    for (uint32_t t = 0; t < LENGTH; t++) { ids[t] = (int32_t)(4 + t); }
    for (uint32_t b = 0; b < BLOCKS; b++) { blocks[b] = b; }
    struct decoder_row row = {ids, LENGTH - 20, 0, blocks, true};
    memcpy(wanted, step(opened.decoder, &row, 1), bytes);
    close_model(&opened);

    opened = open_model(windows, PRECISION_F32);
    word = (float *)(uintptr_t)opened.model->word_embeddings.data;
    for (uint32_t i = 0; i < opened.model->hidden; i++) { word[3 * opened.model->hidden + i] = NAN; }
    decoder_close(opened.decoder);
    engine_close(opened.engine);
    struct err err = {0};
    struct engine_options options = {.backend = "cpu", .precision = PRECISION_F32};
    assert_int_equal(engine_open(opened.model, &options, &opened.engine, &err), STATUS_OK);
    assert_int_equal(decoder_open(opened.engine, &(struct decoder_options){.blocks = POOL}, &opened.decoder, &err),
                     STATUS_OK);
    for (uint32_t t = 0; t < LENGTH; t++) {
        struct decoder_row nan = {&bad, 1, t, blocks, true};
        assert_true(isnan(step(opened.decoder, &nan, 1)[5]));
    }
    float *logits = step(opened.decoder, &row, 1);
    uint32_t differ = 0;
    for (uint32_t i = 0; i < opened.model->vocabulary; i++) { differ += i != 3 && logits[i] != wanted[i]; }
    assert_int_equal(differ, 0); /* lm_head is the words: the logit of the bad one is NaN */
    free(wanted);
    close_model(&opened);
}

TEST(a_copied_block_goes_on_for_another_sequence)
{
    struct opened opened = open_model(plain, PRECISION_F32);
    size_t bytes = opened.model->vocabulary * sizeof(float);
    int32_t ids[LENGTH];
    uint32_t first[] = {0, 1, 2}, second[] = {0, 5, 6};
    float *wanted = malloc(bytes);
    assert_non_null(wanted);
    for (uint32_t t = 0; t < LENGTH; t++) { ids[t] = id_at(opened.model, 1, t); }
    struct decoder_row whole = {ids, 40, 0, first, true}, begin = {ids, 20, 0, first, false};
    memcpy(wanted, step(opened.decoder, &whole, 1), bytes);
    step(opened.decoder, &begin, 1);
    decoder_copy_block(opened.decoder, 1, 5); /* positions 16 to 19 are in it */
    struct decoder_row rest[] = {{ids + 50, 20, 20, first, false}, {ids + 20, 20, 20, second, true}};
    assert_memory_equal(step(opened.decoder, rest, 2), wanted, bytes);
    free(wanted);
    close_model(&opened);
}

TEST(what_is_out_of_range_is_refused_as_a_whole)
{
    struct opened opened = open_model(plain, PRECISION_F32);
    int32_t ids[2] = {1, 2}, bad[] = {1, 203}, negative[] = {-1, 2};
    uint32_t blocks[BLOCKS * 2] = {0}, outside[] = {POOL};
    const struct decoder_row good = {ids, 2, 0, blocks, true};
    const struct {
        struct decoder_row row;
        const char *says;
    } cases[] = {
        {{bad, 2, 0, blocks, true}, "row 1: token 203 is none of 203"},
        {{negative, 2, 0, blocks, true}, "row 1: token -1 is none of 203"},
        {{ids, 0, 0, blocks, true}, "row 1: 0 tokens from position 0 on; the model has 160 positions"},
        {{ids, 2, 159, blocks, true}, "row 1: 2 tokens from position 159 on; the model has 160 positions"},
        {{ids, 2, UINT32_MAX, blocks, true},
         "row 1: 2 tokens from position 4294967295 on; the model has 160 positions"},
        {{ids, 2, 0, outside, true}, "row 1: block 31 is none of 31"},
    };
    struct err err = {0};
    float *logits;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct decoder_row rows[] = {good, cases[i].row};
        assert_int_equal(decoder_step(opened.decoder, rows, 2, &logits, &err), STATUS_BAD_INPUT);
        assert_string_equal(err.message, cases[i].says);
    }
    assert_int_equal(decoder_step(opened.decoder, &good, 0, &logits, &err), STATUS_BAD_INPUT);
    decoder_close(opened.decoder);
    struct decoder_options small = {.blocks = 3, .step_tokens = 3, .step_rows = 2};
    assert_int_equal(decoder_open(opened.engine, &small, &opened.decoder, &err), STATUS_OK);
    uint32_t other[] = {1};
    struct decoder_row rows[] = {good, {ids, 2, 0, other, true}, good};
    assert_int_equal(decoder_step(opened.decoder, rows, 2, &logits, &err), STATUS_BAD_INPUT);
    assert_string_equal(err.message, "more than 3 tokens in a step");
    rows[1].count = 1;
    assert_int_equal(decoder_step(opened.decoder, rows, 3, &logits, &err), STATUS_BAD_INPUT);
    assert_int_equal(decoder_step(opened.decoder, rows, 2, &logits, &err), STATUS_OK);
    close_model(&opened);
}

TEST(keys_and_values_are_in_16_bits_unless_products_are_in_f32)
{
    struct opened opened = open_model(plain, PRECISION_F32);
    assert_int_equal(decoder_block_bytes(opened.engine), 3 * 2 * 2 * 16 * 32 * 4);
    close_model(&opened);
    opened = open_model(plain, PRECISION_BF16);
    assert_int_equal(decoder_block_bytes(opened.engine), 3 * 2 * 2 * 16 * 32 * 2);
    close_model(&opened);
    opened = open_model(odd, PRECISION_F32); /* rows of 10 values are filled up to 16 */
    assert_int_equal(decoder_block_bytes(opened.engine), 2 * 1 * (16 * 10 + 16 * 16) * 4);
    close_model(&opened);
}

TEST(only_a_model_that_generates_has_a_decoder)
{
    struct model *model = memory_model(plain, 7);
    struct engine_options options = {.backend = "cpu", .precision = PRECISION_F32};
    struct decoder_options sizes = {.blocks = 1};
    struct engine *engine;
    struct decoder *decoder;
    struct err err = {0};
    assert_int_equal(engine_open(model, &options, &engine, &err), STATUS_OK);
    assert_int_equal(decoder_open(engine, &sizes, &decoder, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.message, "the model does not generate text");
    engine_close(engine);
    options.backend = "null";
    model->generates = true;
    assert_int_equal(engine_open(model, &options, &engine, &err), STATUS_OK);
    assert_int_equal(decoder_open(engine, &sizes, &decoder, &err), STATUS_UNSUPPORTED);
    engine_close(engine);
    memory_model_free(model);
}
