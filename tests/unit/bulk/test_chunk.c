/* Chunks: within the bound, at ends of sentences, nothing lost, and the overlap. */
#include "harness.h"

#include <stdlib.h>

#include "bulk/lookahead.h"
#include "model/model.h"
#include "model_builder.h"

static struct model *model;
static char *directory;

static int open_model(void **state)
{
    (void)state;
    struct err err;
    struct model_spec spec = model_spec_tiny();
    directory = model_build(&spec);
    return model_open(directory, NULL, &model, &err) != STATUS_OK;
}

static int close_model(void **state)
{
    (void)state;
    model_close(model);
    model_build_remove(directory);
    return 0;
}

/* The chunks of a text; *count of them. */
static struct chunk *cut(const char *how, const char *text, size_t *count)
{
    struct chunking chunking;
    struct buffer chunks = {0}, scratch = {0};
    struct err err;
    assert_int_equal(chunking_parse(how, &chunking, &err), STATUS_OK);
    assert_int_equal(chunk_cut(&chunking, model, text, strlen(text), &chunks, &scratch, &err), STATUS_OK);
    buffer_free(&scratch);
    *count = chunks.length / sizeof(struct chunk);
    return (struct chunk *)(void *)chunks.data;
}

static uint32_t tokens_of(const char *text, size_t length)
{
    int32_t ids[4096];
    uint32_t count;
    bool truncated;
    struct err err;
    assert_int_equal(tokenizer_encode(model->tokenizer, text, length, 4096, ids, &count, &truncated, &err), STATUS_OK);
    return count;
}

static void expect(const char *how, const char *text, const char *const *expected, size_t expected_count)
{
    size_t count;
    struct chunk *chunks = cut(how, text, &count);
    assert_int_equal(count, expected_count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(chunks[i].end - chunks[i].begin, strlen(expected[i]));
        assert_memory_equal(text + chunks[i].begin, expected[i], strlen(expected[i]));
    }
    free(chunks);
}

/* Letters are words of one token in this vocabulary, and so are stops; two more are around every text. */
static void at_ends_of_sentences(void **state)
{
    (void)state;
    static const char *const sentences[] = {"a b c d. e f g.", "h i j k."};
    expect("tokens:12", "a b c d. e f g. h i j k.", sentences, 2);
    static const char *const words[] = {"a b c d e f", "g h i j"};
    expect("tokens:8", "a b c d e f g h i j", words, 2);
    static const char *const paragraphs[] = {"a b c d", "e f g h"};
    expect("tokens:9", "a b c d\n\ne f g h", paragraphs, 2);
    static const char *const whole[] = {" a b. "};
    expect("tokens:12", " a b. ", whole, 1);
    static const char *const nothing[] = {" \n "};
    expect("tokens:12", " \n ", nothing, 1);
}

static void overlap(void **state)
{
    (void)state;
    static const char *const chunks[] = {"a b c d e f", "e f g h i j"};
    expect("tokens:8,overlap:2", "a b c d e f g h i j", chunks, 2);
}

static void no_chunk_is_too_long_and_nothing_is_lost(void **state)
{
    (void)state;
    static const char *const words[] = {"the",
                                        "of.",
                                        "unaffable",
                                        "hello!",
                                        "\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82",
                                        "wordingwordingwordingwordingwordingwording",
                                        "a-b-c-d-e-f-g-h-i-j-k-l",
                                        "\n\n"};
    char text[8192] = "";
    unsigned seed = 7;
    for (int i = 0; i < 400; i++) {
        seed = seed * 1103515245 + 12345;
        strcat(text, words[seed >> 16 & 7]);
        strcat(text, (seed >> 20 & 3) == 0 ? "" : " ");
    }
    static const char *const ways[] = {"tokens:3", "tokens:10", "tokens:16,overlap:5", "overlap:9,tokens:40,mean"};
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        size_t count, reached = 0;
        struct chunk *chunks = cut(ways[w], text, &count);
        struct chunking chunking;
        struct err err;
        assert_int_equal(chunking_parse(ways[w], &chunking, &err), STATUS_OK);
        for (size_t i = 0; i < count; i++) {
            assert_in_range(tokens_of(text + chunks[i].begin, chunks[i].end - chunks[i].begin), 3, chunking.tokens);
            for (; reached < chunks[i].begin; reached++)
                assert_non_null(strchr(" \n", text[reached]));
            assert_true(i == 0 || chunks[i].begin > chunks[i - 1].begin);
            reached = chunks[i].end;
        }
        for (; reached < strlen(text); reached++)
            assert_non_null(strchr(" \n", text[reached]));
        free(chunks);
    }
}

static void options(void **state)
{
    (void)state;
    struct chunking chunking;
    struct err err;
    static const char *const bad[] = {"",     "overlap:3",      "tokens:",         "tokens:x", "tokens:8,overlap:8",
                                      "mean", "tokens:8 ,mean", "tokens:99999999", "chunks:3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(chunking_parse(bad[i], &chunking, &err), STATUS_BAD_INPUT);
    assert_int_equal(chunking_parse("mean,overlap:3,tokens:9", &chunking, &err), STATUS_OK);
    assert_true(chunking.mean && chunking.overlap == 3 && chunking.tokens == 9);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test_setup_teardown(at_ends_of_sentences, open_model, close_model),
    cmocka_unit_test_setup_teardown(overlap, open_model, close_model),
    cmocka_unit_test_setup_teardown(no_chunk_is_too_long_and_nothing_is_lost, open_model, close_model),
    cmocka_unit_test(options),
};

TEST_MAIN(cases)
