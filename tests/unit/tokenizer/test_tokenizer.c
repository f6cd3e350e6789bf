/* Makes ids of text with small vocabularies, one rule at a time. test_tokenizer_files.c tests the files. */
#include "harness.h"

#include <stdlib.h>

#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

#define FLAGS(single, left, right, normal)                                                                             \
    "\"single_word\":" single ",\"lstrip\":" left ",\"rstrip\":" right ",\"normalized\":" normal ",\"special\":true}"
#define TOKENIZER(strip, lower, vocabulary, more)                                                                      \
    "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"                  \
    "\"strip_accents\":" strip ",\"lowercase\":" lower "},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"          \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","                  \
    "\"max_input_chars_per_word\":10,\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2" vocabulary "}},"                  \
    "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",1],\"sep\":[\"[SEP]\",2]},"                    \
    "\"added_tokens\":[{\"id\":2,\"content\":\"[SEP]\"," FLAGS("false", "false", "false", "false") more "]}"

enum { MOST = 64, END = -1 };

static struct tokenizer *open_text(const char *json)
{
    struct tokenizer_spec spec = {0};
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    if (tokenizer_json_parse(json, strlen(json), tokenizer_class_of_file, &(struct tokenizer_files){0}, &spec, &err) !=
            STATUS_OK ||
        tokenizer_build(&spec, &tokenizer, &err) != STATUS_OK) {
        fail_msg("%s", err.message);
    }
    tokenizer_spec_free(&spec);
    return tokenizer;
}

/* `expected` are the ids between [CLS] and [SEP]. */
static void check(const struct tokenizer *tokenizer, const char *text, const int32_t *expected)
{
    int32_t ids[MOST];
    uint32_t count, wanted = 0;
    bool truncated;
    struct err err = {0};
    while (expected[wanted] != END) { wanted++; }
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), MOST, ids, &count, &truncated, &err), STATUS_OK);
    assert_false(truncated);
    assert_int_equal(count, wanted + 2);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[count - 1], 2);
    assert_memory_equal(ids + 1, expected, wanted * sizeof *ids);
    assert_true(count <= tokenizer_bound(tokenizer, strlen(text)));
}

#define CHECK(tokenizer, text, ...) check(tokenizer, text, (const int32_t[]){__VA_ARGS__, END})

TEST(takes_the_longest_pieces)
{
    struct tokenizer *t = open_text(
        TOKENIZER("null", "true", ",\"un\":3,\"unaff\":4,\"##aff\":5,\"##able\":6,\"##a\":7,\"able\":8,\"!\":9", ""));
    CHECK(t, "unaffable", 4, 6);
    CHECK(t, "Un ABLE", 3, 8);
    CHECK(t, "unaffa", 4, 7);
    CHECK(t, "unaffx able", 0, 8); /* one gap makes the whole word unknown */
    CHECK(t, "a", 0);              /* only known inside words */
    CHECK(t, "un!able!!", 3, 9, 8, 9, 9);
    CHECK(t, "", END);
    CHECK(t, " \t\n ", END);
    tokenizer_close(t);
}

/* Also without special tokens. `expected` are the places of the tokens between [CLS] and [SEP]. */
static void check_places(const struct tokenizer *tokenizer, const char *text, const struct span *expected,
                         uint32_t wanted)
{
    struct tokenizer_token *tokens, *bare;
    uint32_t count, bare_count;
    struct err err = {0};
    assert_int_equal(tokenizer_tokens(tokenizer, text, strlen(text), true, &tokens, &count, &err), STATUS_OK);
    assert_int_equal(tokenizer_tokens(tokenizer, text, strlen(text), false, &bare, &bare_count, &err), STATUS_OK);
    assert_int_equal(count, wanted + 2);
    assert_int_equal(bare_count, wanted);
    for (uint32_t i = 0; i < wanted; i++) {
        assert_int_equal(tokens[i + 1].from, expected[i].from);
        assert_int_equal(tokens[i + 1].until, expected[i].until);
        assert_memory_equal(&tokens[i + 1], &bare[i], sizeof *bare);
        assert_false(bare[i].special);
    }
    assert_true(tokens[0].special && tokens[0].id == 1 && tokens[0].until == 0);
    assert_true(tokens[count - 1].special && tokens[count - 1].id == 2);
    free(tokens);
    free(bare);
}

#define PLACES(tokenizer, text, ...)                                                                                   \
    check_places(tokenizer, text, (const struct span[]){__VA_ARGS__},                                                  \
                 sizeof((const struct span[]){__VA_ARGS__}) / sizeof(struct span))

TEST(tokens_have_places)
{
    struct tokenizer *t =
        open_text(TOKENIZER("null", "true", ",\"cafe\":3,\"##s\":4,\"!\":5,\"漢\":6",
                            ",{\"id\":7,\"content\":\"<m>\"," FLAGS(
                                "false", "true", "true",
                                "false") ",{\"id\":8,\"content\":\"É!\"," FLAGS("false", "false", "false", "true")));
    size_t length;
    PLACES(t, " cafés!", {1, 6}, {6, 7}, {7, 8});
    PLACES(t, "CAFE\u0301S \u6f22\u6f22", {0, 4}, {6, 7}, {8, 11}, {11, 14});
    PLACES(t, "cafex \acafe", {0, 5}, {7, 11});        /* an unknown word; a control character is not its place */
    PLACES(t, "cafe <m> !", {0, 4}, {4, 9}, {9, 10});  /* with the white space that it strips */
    PLACES(t, "cafe\u00c9!s", {0, 4}, {4, 7}, {7, 8}); /* found in the normal form */
    assert_memory_equal(tokenizer_token_name(t, 8, &length), "É!", 3);
    assert_int_equal(length, 3);
    assert_string_equal(tokenizer_token_name(t, 99, &length), "");
    tokenizer_close(t);
}

TEST(long_words_are_unknown)
{
    struct tokenizer *t = open_text(TOKENIZER("false", "false", ",\"a\":3,\"##a\":4,\"##\u00E9\":5", ""));
    CHECK(t, "aaaaaaaaaa", 3, 4, 4, 4, 4, 4, 4, 4, 4, 4);
    CHECK(t, "aaaaaaaaaaa", 0);
    CHECK(t, "a\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9", 3, 5, 5, 5, 5, 5, 5, 5, 5,
          5); /* characters, not bytes */
    CHECK(t, "aaaaaaaaaaaaaaaaaaaa a", 0, 3);
    tokenizer_close(t);
}

TEST(isolates_punctuation_and_cjk)
{
    struct tokenizer *t = open_text(
        TOKENIZER("null", "true", ",\"a\":3,\",\":4,\"\u6F22\":5,\"\u302E\":6,\"##\u302E\":7,\"\u00BF\":8", ""));
    CHECK(t, "a,a\u00BFa", 3, 4, 3, 8, 3);
    CHECK(t, "a\u6F22\u6F22a", 3, 5, 5, 3);
    CHECK(t, "a\u302E \u6F22\u302E,\u302E", 3, 7, 5, 6, 4, 6); /* a mark after a word of its own starts the next */
    tokenizer_close(t);
}

TEST(added_tokens_stand_in_the_text)
{
    struct tokenizer *t = open_text(
        TOKENIZER("null", "true", ",\"a\":3,\"sep\":4,\"[\":5,\"]\":6",
                  ",{\"id\":7,\"content\":\"<x\"," FLAGS(
                      "false", "true", "true",
                      "false") ",{\"id\":8,\"content\":\"<x y>\"," FLAGS("false", "false", "false",
                                                                         "false") ",{\"id\":9,\"content\":"
                                                                                  "\"Foo\"," FLAGS("true", "false",
                                                                                                   "false", "false")));
    CHECK(t, "a[SEP]a", 3, 2, 3);
    CHECK(t, "[SEP][SEP]", 2, 2);
    CHECK(t, "[sep]", 5, 4, 6); /* not normalised, so case counts */
    CHECK(t, "a <x a", 3, 7, 3);
    CHECK(t, "a<x y>a", 3, 8, 3);                     /* the longest */
    CHECK(t, "Foo aFoo Foo_ Foo.", 9, 0, 0, 0, 9, 0); /* "_" is its own word, and yet counts as a word character */
    CHECK(t, "Foo\u0301 \u00E9Foo", 0, 0);            /* marks and letters are parts of words */
    assert_int_equal(tokenizer_vocabulary(t), 10);
    tokenizer_close(t);
}

TEST(normalized_tokens_stand_in_normalized_text)
{
    struct tokenizer *t = open_text(TOKENIZER(
        "null", "true", ",\"a\":3",
        ",{\"id\":4,\"content\":\"\u00C9A b\"," FLAGS(
            "false", "false", "false",
            "true") ",{\"id\":5,\"content\":\"<\"," FLAGS("false", "true", "true",
                                                          "false") ",{\"id\":6,\"content\":\" \"," FLAGS("false",
                                                                                                         "false",
                                                                                                         "false",
                                                                                                         "true")));
    CHECK(t, "aea Ba", 3, 4, 3);
    CHECK(t, "a\u00C9\u00C1\tba", 3, 4, 3);
    CHECK(t, "a a", 3, 6, 3);
    CHECK(t, "a < a", 3, 5, 3); /* the blanks belong to "<" */
    CHECK(t, "\u6F22", 6, 0, 6);
    tokenizer_close(t);
}

#define ADDED(id, content, left, right, normal)                                                                        \
    ",{\"id\":" id ",\"content\":\"" content "\"," FLAGS("false", left, right, normal)
#define BLANK_TOKENS(normal)                                                                                           \
    ADDED("4", "<q>", "false", "true", normal)                                                                         \
    ADDED("5", "\\t\\t", "false", "false", "false")                                                                    \
    ADDED("6", "\\t", "true", "true", "false")                                                                         \
    ADDED("7", " ", "false", "true", normal) ADDED("8", "\\n<l>", "true", "false", "false")

/* Ids of tokenizers 0.23.3. */
TEST(a_token_that_takes_white_space_leaves_the_tokens_in_it)
{
    struct tokenizer *t = open_text(TOKENIZER("null", "true", ",\"a\":3", BLANK_TOKENS("false")));
    CHECK(t, "<q>\t\ta", 4, 5, 3);
    CHECK(t, "a<q> \t\t a", 3, 4, 7, 5, 7, 3);
    CHECK(t, "<q>\t\t", 4, 5);
    CHECK(t, "<q>\ta", 4, 3); /* the token takes the white space on both sides, so nothing is left of the tab */
    CHECK(t, "<q>\t", 4);
    CHECK(t, "<q>  \n<l>a", 4, 7, 7, 8, 3);
    CHECK(t, "<q>\u3000\t\t\t a", 4, 5, 6, 7, 3);
    CHECK(t, "a\t\u3000\ta", 3, 6, 3);
    tokenizer_close(t);
    t = open_text(TOKENIZER("null", "true", ",\"a\":3", BLANK_TOKENS("true")));
    CHECK(t, "a<q> \t\t a", 3, 4, 7, 5, 7, 3);
    CHECK(t, "<q>\ta", 4, 6, 3);
    CHECK(t, "<q>  \n<l>a", 4, 8, 3);
    CHECK(t, "<q>\u3000\t\t\t a", 4, 7, 5, 6, 3);
    CHECK(t, "  <q>  ", 7, 7, 4, 7, 7);
    tokenizer_close(t);
}

/* A search that looked at white space again for each token would take minutes for this megabyte. */
TEST(white_space_is_looked_through_once)
{
    enum { LENGTH = 1 << 20 };
    char *text = malloc(LENGTH + 8);
    int32_t *ids = calloc(LENGTH + 8, sizeof *ids);
    assert_non_null(text);
    assert_non_null(ids);
    memcpy(text, "<q>", 3);
    for (int with = 0; with < 3; with++) {
        static const char *const added[] = {
            ADDED("4", "<q>", "false", "true", "false") ADDED("5", " ", "true", "true", "false"),
            ADDED("4", "<q>", "false", "true", "false") ADDED("5", " ", "false", "true", "false"),
            ADDED("4", "<q>", "false", "true", "true") ADDED("5", " ", "true", "false", "true")};
        char json[4096];
        snprintf(json, sizeof json, TOKENIZER("null", "true", ",\"a\":3", "%s"), added[with]);
        struct tokenizer *t = open_text(json);
        uint32_t count;
        bool truncated;
        struct err err = {0};
        memset(text + 3, ' ', LENGTH);
        assert_int_equal(tokenizer_encode(t, text, 3 + LENGTH, LENGTH + 8, ids, &count, &truncated, &err), STATUS_OK);
        assert_int_equal(count, with == 1 ? 3 + LENGTH : 3);
        assert_int_equal(ids[1], 4);
        tokenizer_close(t);
    }
    free(ids);
    free(text);
}

/* The text ends inside a character, in the white space that a token takes. A sanitizer sees a byte too many. */
TEST(white_space_ends_where_a_broken_text_does)
{
    enum { LENGTH = 6 };
    struct tokenizer *t = open_text(TOKENIZER("null", "true", ",\"a\":3", BLANK_TOKENS("false")));
    char *text = malloc(LENGTH);
    assert_non_null(text);
    memcpy(text, "<q> \xE3\x80", LENGTH);
    int32_t ids[MOST];
    uint32_t count;
    bool truncated;
    struct err err = {0};
    assert_int_equal(tokenizer_encode(t, text, LENGTH, MOST, ids, &count, &truncated, &err), STATUS_BAD_INPUT);
    free(text);
    tokenizer_close(t);
}

/* A smaller limit gives the first ids of a larger one. */
TEST(every_limit_gives_a_beginning)
{
    static const char text[] = "unaffable [SEP] unaffx un \u6F22un, unaff able   ";
    struct tokenizer *t =
        open_text(TOKENIZER("null", "true", ",\"un\":3,\"unaff\":4,\"##able\":5,\"##a\":6,\"able\":7", ""));
    int32_t all[MOST], some[MOST];
    uint32_t all_count, count;
    bool truncated;
    struct err err = {0};
    assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, MOST, all, &all_count, &truncated, &err), STATUS_OK);
    assert_int_equal(all_count, 12);
    for (uint32_t limit = 2; limit <= all_count + 1; limit++) {
        assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, limit, some, &count, &truncated, &err), STATUS_OK);
        assert_int_equal(truncated, limit < all_count);
        assert_int_equal(count, limit < all_count ? limit : all_count);
        assert_memory_equal(some, all, (count - 1) * sizeof *all);
        assert_int_equal(some[count - 1], 2);
    }
    assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, 1, some, &count, &truncated, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "special tokens"));
    tokenizer_close(t);
}

TEST(refuses_bad_utf8_that_it_reads)
{
    struct tokenizer *t = open_text(TOKENIZER("null", "true", ",\"a\":3", ""));
    const char *bad[] = {"a\xFF", "\xC3", "a \xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80", "a\xE6\xBC"};
    int32_t ids[MOST];
    uint32_t count;
    bool truncated;
    struct err err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tokenizer_encode(t, bad[i], strlen(bad[i]), MOST, ids, &count, &truncated, &err),
                         STATUS_BAD_INPUT);
        assert_non_null(strstr(err.message, "UTF-8"));
    }
    tokenizer_close(t);
}

/* The window's border falls on every byte of every character, and on added tokens. */
TEST(windows_do_not_show)
{
    struct tokenizer *t = open_text(TOKENIZER("null", "true", ",\"a\":3,\"\u6F22\":4,\"##\u044F\":5", ""));
    static const char tail[] = "a\u044F\u6F22[SEP]\u6F22a\u00E9";
    char text[1200];
    for (size_t blanks = 480; blanks < 540; blanks++) {
        memset(text, ' ', blanks);
        memcpy(text + blanks, tail, sizeof tail);
        CHECK(t, text, 3, 5, 4, 2, 4, 0);
    }
    tokenizer_close(t);
}
