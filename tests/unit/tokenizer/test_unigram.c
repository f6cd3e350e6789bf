/* Unigram and the steps before it, with small vocabularies, one rule at a time. */
#include "harness.h"

#include <stdlib.h>

#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

#define MARK "\u2581"
#define ALWAYS "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"always\",\"split\":true}"
#define FLAGS(single, left, right, normal)                                                                             \
    "\"single_word\":" single ",\"lstrip\":" left ",\"rstrip\":" right ",\"normalized\":" normal ",\"special\":true}"
#define VOCABULARY                                                                                                     \
    "[[\"<s>\",0],[\"<pad>\",0],[\"</s>\",0],[\"<unk>\",0],[\"" MARK "\",-2],[\"a\",-3],[\"b\",-3],[\"ab\",-5],"       \
    "[\"" MARK "a\",-4.5],[\"abab\",-10],[\"fi\",-4],[\"i\",-3],[\"f\",-3],[\"<0xC3>\",-9],[\"<0xA9>\",-9]]"
#define TOKENIZER(normalizer, splits, model, added)                                                                    \
    "{\"normalizer\":" normalizer ",\"pre_tokenizer\":" splits                                                         \
    ",\"model\":{\"type\":\"Unigram\",\"vocab\":" VOCABULARY "," model                                                 \
    "},\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"<s>\",0],\"sep\":[\"</s>\",2],"                   \
    "\"trim_offsets\":true,\"add_prefix_space\":true},\"added_tokens\":[" added "]}"

enum { S = 0, E = 2, UNK = 3, SP, A, B, AB, SPA, ABAB, FI, I, F, C3, A9, VOCAB, MOST = 64, END = -1 };

static enum status open_json(const char *json, struct tokenizer **tokenizer, struct err *err)
{
    struct tokenizer_spec spec = {0};
    *tokenizer = NULL;
    enum status status =
        tokenizer_json_parse(json, strlen(json), tokenizer_class_of_file, &(struct tokenizer_files){0}, &spec, err);
    if (status == STATUS_OK) { status = tokenizer_build(&spec, tokenizer, err); }
    tokenizer_spec_free(&spec);
    return status;
}

/* `expected` are the ids between <s> and </s>. */
static void check(const char *json, const char *text, const int32_t *expected)
{
    struct tokenizer *tokenizer;
    int32_t ids[MOST];
    uint32_t count, wanted = 0;
    bool truncated;
    struct err err = {0};
    if (open_json(json, &tokenizer, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    while (expected[wanted] != END) { wanted++; }
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), MOST, ids, &count, &truncated, &err), STATUS_OK);
    assert_int_equal(ids[0], S);
    assert_int_equal(ids[count - 1], E);
    assert_int_equal(count, wanted + 2);
    assert_memory_equal(ids + 1, expected, wanted * sizeof *ids);
    assert_true(count <= tokenizer_bound(tokenizer, strlen(text)));
    tokenizer_close(tokenizer);
}

#define CHECK(json, text, ...) check(json, text, (const int32_t[]){__VA_ARGS__, END})

TEST(tokens_have_places)
{
    const char *json = TOKENIZER("{\"type\":\"NFKC\"}", ALWAYS, "\"unk_id\":3,\"byte_fallback\":true", "");
    static const struct span expected[] = {
        {0, 1}, {1, 2}, {2, 5}, {5, 6}, {6, 8}, {6, 8}, {8, 9}, {9, 11},
    };
    static const int32_t ids[] = {SPA, SP, FI, SP, C3, A9, SP, AB};
    struct tokenizer *tokenizer;
    struct tokenizer_token *tokens;
    uint32_t count;
    struct err err = {0};
    const char *text = "a \ufb01 \u00e9 ab";
    assert_int_equal(open_json(json, &tokenizer, &err), STATUS_OK);
    assert_int_equal(tokenizer_tokens(tokenizer, text, strlen(text), false, &tokens, &count, &err), STATUS_OK);
    assert_int_equal(count, sizeof ids / sizeof ids[0]);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(tokens[i].id, ids[i]);
        assert_int_equal(tokens[i].from, expected[i].from);
        assert_int_equal(tokens[i].until, expected[i].until);
    }
    free(tokens);
    tokenizer_close(tokenizer);
}

TEST(takes_the_best_way)
{
    const char *json = TOKENIZER("null", ALWAYS, "\"unk_id\":3", "");
    CHECK(json, "a", SPA);
    CHECK(json, "ab", SP, AB);     /* -7 against -7.5 */
    CHECK(json, "abab", SP, ABAB); /* no better than "ab" twice: the one that begins first */
    CHECK(json, "a b", SPA, SP, B);
    CHECK(json, "a a ab ab", SPA, SPA, SP, AB, SP, AB); /* the second time from the cache of the first */
    CHECK(json, "", END);
    CHECK(json, "  ", SP, SP);
    CHECK(json, "a" MARK "b", SPA, SP, B); /* the mark itself counts as a blank */
}

TEST(unknown_characters_are_one_token_or_bytes)
{
    const char *plain = TOKENIZER("null", ALWAYS, "\"unk_id\":3", "");
    const char *bytes = TOKENIZER("null", ALWAYS, "\"unk_id\":3,\"byte_fallback\":true", "");
    CHECK(plain, "ax\u00E9\u6F22yb", SPA, UNK, B);
    CHECK(plain, "x <unk> y", SP, UNK, SP, UNK, SP, UNK); /* written in the text, it is that token as well */
    CHECK(bytes, "a\u00E9b", SPA, C3, A9, B);
    CHECK(bytes, "a\u00E9xb", SPA, UNK, B); /* one byte without a token makes them all unknown */
}

TEST(metaspace_in_all_spellings)
{
#define META(more)                                                                                                     \
    TOKENIZER("null", "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"" more "}", "\"unk_id\":3",                 \
              "{\"id\":2,\"content\":\"</s>\"," FLAGS("false", "false", "false", "false"))
    CHECK(META(""), "i</s>i", SP, I, E, SP, I);
    CHECK(META(",\"add_prefix_space\":true,\"str_rep\":\"" MARK "\""), "i</s>i", SP, I, E, SP, I);
    CHECK(META(",\"prepend_scheme\":\"first\""), "i</s>i", SP, I, E, I);
    CHECK(META(",\"prepend_scheme\":\"never\",\"add_prefix_space\":false"), "i i", I, SP, I);
    CHECK(META(",\"prepend_scheme\":\"never\",\"split\":false"), "i i", I, SP, I);
    const char *words =
        TOKENIZER("null", "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"}," ALWAYS "]}",
                  "\"unk_id\":3", "");
    CHECK(words, " i\t\u3000 i ", SP, I, SP, I);
    CHECK(words, " \n", END);
#undef META
}

/* Ids of tokenizers 0.23.3. A text begins with the replacement of its first character, whatever a step made of it. */
TEST(metaspace_first_follows_the_first_character)
{
#define FIRST(normalizer)                                                                                              \
    TOKENIZER(normalizer, "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"first\"}",        \
              "\"unk_id\":3", "{\"id\":6,\"content\":\"b\"," FLAGS("false", "false", "false", "true"))
    const char *one = FIRST("{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"bi\"}");
    CHECK(one, "ai", B, SP, I, I); /* "b" and "i" both come from the "a" */
    CHECK(one, "abi", B, SP, I, B, I);
    CHECK(one, "bi", B, I);
    const char *two = FIRST("{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"i\"}");
    CHECK(two, "i", SP, I);
    CHECK(two, "abi", I, I); /* the first "i" comes from the "b" */
    const char *apart =
        FIRST("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKD\"},{\"type\":\"StripAccents\"}]}");
    CHECK(apart, "\uFB01", SP, FI);
    CHECK(apart, "\u0344i", I);
    CHECK(apart, "\u00E9i", SP, UNK, I);
    CHECK(FIRST("{\"type\":\"Prepend\",\"prepend\":\"f\"}"), "ii", SP, FI, I);
    CHECK(FIRST("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}"), " i", I);
}

/* The mark before the first word gives one id more than there are bytes; added tokens have a byte to spare for their
 * marks. */
TEST(the_bound_is_near)
{
#define LETTER(content)                                                                                                \
    TOKENIZER("null", ALWAYS, "\"unk_id\":3",                                                                          \
              "{\"id\":15,\"content\":\"" content "\"," FLAGS("false", "false", "false", "false"))
#define I16 "iiiiiiiiiiiiiiii"
#define TIMES_64 "{\"type\":\"Replace\",\"pattern\":{\"String\":\"xx\"},\"content\":\"" I16 I16 I16 I16 "\"}"
#define FOUR(what) what "," what "," what "," what
#define TIMES_2_TO_72                                                                                                  \
    "{\"type\":\"Sequence\",\"normalizers\":[" FOUR(TIMES_64) "," FOUR(TIMES_64) "," FOUR(TIMES_64) "]}"
    static const struct {
        const char *json, *text;
        size_t bound;
    } cases[] = {
        {TOKENIZER("null", ALWAYS, "\"unk_id\":3", ""), "a b b", 2 + 5 + 1},
        {LETTER("xx"), "bxxbxxb", 2 + 7 + 1},
        {LETTER("x"), "bxbxb", 2 + 2 * 5},
        {TOKENIZER("null", ALWAYS, "\"unk_id\":3,\"byte_fallback\":true", ""), "a b", 2 + 3 * 3 + 3},
        {TOKENIZER(TIMES_2_TO_72, ALWAYS, "\"unk_id\":3", ""), "b", (size_t)2 + UINT32_MAX + 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *tokenizer;
        int32_t ids[MOST];
        uint32_t count;
        bool truncated;
        struct err err = {0};
        assert_int_equal(open_json(cases[i].json, &tokenizer, &err), STATUS_OK);
        size_t length = strlen(cases[i].text);
        assert_int_equal(tokenizer_bound(tokenizer, length), cases[i].bound);
        assert_int_equal(tokenizer_encode(tokenizer, cases[i].text, length, MOST, ids, &count, &truncated, &err),
                         STATUS_OK);
        assert_true(count <= cases[i].bound);
        tokenizer_close(tokenizer);
    }
#undef LETTER
}

TEST(steps_of_the_normalizer)
{
#define STEPS(steps) TOKENIZER("{\"type\":\"Sequence\",\"normalizers\":[" steps "]}", ALWAYS, "\"unk_id\":3", "")
    CHECK(STEPS("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}"), "i   i i", SP, I, SP, I,
          SP, I);
    CHECK(STEPS("{\"type\":\"Replace\",\"pattern\":{\"String\":\"xx\"},\"content\":\"i\"}"), "xxxxf", SP, I, I, F);
    CHECK(STEPS("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}"), " \ti \u3000", SP, I);
    CHECK(STEPS("{\"type\":\"Lowercase\"},{\"type\":\"Prepend\",\"prepend\":\"f\"}"), "I", SP, FI);
    CHECK(STEPS("{\"type\":\"StripAccents\"},{\"type\":\"Nmt\"}"), "i\u0301\x01\ti", SP, I, SP, I);
#undef STEPS
}

TEST(added_tokens_take_blanks_in_normalized_text_too)
{
#define ADDED(left, right, normal)                                                                                     \
    TOKENIZER("{\"type\":\"Lowercase\"}", ALWAYS, "\"unk_id\":3",                                                      \
              "{\"id\":15,\"content\":\"<M>\"," FLAGS("false", left, right, normal))
    CHECK(ADDED("true", "false", "false"), "i  <M> i", SP, I, VOCAB, SP, I);
    CHECK(ADDED("false", "true", "false"), "i <M>  i", SP, I, SP, VOCAB, SP, I);
    CHECK(ADDED("true", "false", "true"), "i  <m> i", SP, I, VOCAB, SP, I);
    CHECK(ADDED("false", "true", "true"), "i <m>  i", SP, I, SP, VOCAB, SP, I);
    CHECK(ADDED("false", "false", "false"), "<m>", SP, UNK);
#undef ADDED
}

/* A window ends at some blank: its place must not affect the ids under any limit, after any length of text. */
TEST(windows_do_not_show)
{
    static char text[9000];
    static int32_t all[9000], some[9000];
    struct tokenizer *t;
    uint32_t all_count, count;
    bool truncated;
    struct err err = {0};
    const char *json =
        TOKENIZER("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", ALWAYS, "\"unk_id\":3",
                  "{\"id\":15,\"content\":\"i i\"," FLAGS("false", "true", "true", "false"));
    assert_int_equal(open_json(json, &t, &err), STATUS_OK);
    for (size_t length = 8000; length < 8006; length++) {
        for (size_t i = 0; i < length; i++) { text[i] = "a b  fi"[i % 7]; }
        memcpy(text + 2040, " i i i i i i i", 14);
        assert_int_equal(tokenizer_encode(t, text, length, 9000, all, &all_count, &truncated, &err), STATUS_OK);
        assert_false(truncated);
        uint32_t added = 0;
        for (uint32_t i = 0; i < all_count; i++) { added += all[i] == VOCAB; }
        assert_int_equal(added, 3);
        for (uint32_t limit = 2; limit <= all_count; limit += 37) {
            assert_int_equal(tokenizer_encode(t, text, length, limit, some, &count, &truncated, &err), STATUS_OK);
            assert_int_equal(count, limit);
            assert_memory_equal(some, all, (limit - 1) * sizeof *all);
        }
    }
    memcpy(text + 6000, "\xFF", 1);
    assert_int_equal(tokenizer_encode(t, text, 8000, 9000, all, &all_count, &truncated, &err), STATUS_BAD_INPUT);
    assert_int_equal(tokenizer_encode(t, text, 8000, 16, all, &all_count, &truncated, &err), STATUS_OK);
    tokenizer_close(t);
}

/* One piece of a megabyte: its ids are produced while it is read. */
TEST(a_long_line_is_not_quadratic)
{
    static char text[1 << 20];
    struct tokenizer *t;
    int32_t *ids = malloc(sizeof text * sizeof *ids);
    uint32_t count;
    bool truncated;
    struct err err = {0};
    assert_non_null(ids);
    assert_int_equal(open_json(TOKENIZER("null", ALWAYS, "\"unk_id\":3", ""), &t, &err), STATUS_OK);
    memset(text, 'a', sizeof text);
    assert_int_equal(tokenizer_encode(t, text, sizeof text, sizeof text, ids, &count, &truncated, &err), STATUS_OK);
    assert_int_equal(count, sizeof text);
    assert_true(truncated); /* the two special tokens exceed the limit */
    memset(text, 'x', sizeof text);
    assert_int_equal(tokenizer_encode(t, text, sizeof text, MOST, ids, &count, &truncated, &err), STATUS_OK);
    assert_int_equal(count, 4);
    tokenizer_close(t);
    free(ids);
}

/* A charsmap as in the file: its size, units of four bytes, then the replacements. */

enum { UNITS = 1024 };

static uint32_t unit(size_t place, unsigned char label, bool leaf, size_t below)
{
    return (uint32_t)(label | (leaf ? 1u << 8 : 0) | (uint32_t)(place ^ below) << 10);
}

static void to_base64(const uint32_t *units, size_t count, const char *texts, size_t length, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static unsigned char blob[4 + 4 * UNITS + 64];
    uint32_t size = (uint32_t)(4 * count);
    memcpy(blob, &size, 4);
    memcpy(blob + 4, units, size);
    memcpy(blob + 4 + size, texts, length);
    size_t total = (4 + size + length) / 3 * 3; /* a few bytes of the last text may be missing */
    for (size_t i = 0; i < total; i += 3) {
        uint32_t bits = (uint32_t)blob[i] << 16 | (uint32_t)blob[i + 1] << 8 | blob[i + 2];
        for (int k = 18; k >= 0; k -= 6) { *out++ = digits[bits >> k & 63]; }
    }
    *out = '\0';
}

/* x -> "fi", U+0301 -> nothing, b U+0301 -> "a" (below b, which is no key itself). */
static char *charsmap_json(uint32_t damage_at, uint32_t damage)
{
    static char json[8192], base64[6000];
    static const char texts[] = "fi\0\0a\0\0\0\0";
    uint32_t units[UNITS] = {0};
    units['x'] = unit('x', 'x', true, 300);
    units[300] = 1u << 31 | 0;
    units['b'] = unit('b', 'b', false, 512);
    units[512 ^ 0xCC] = unit(512 ^ 0xCC, 0xCC, false, 768);
    units[768 ^ 0x81] = unit(768 ^ 0x81, 0x81, true, 301);
    units[301] = 1u << 31 | 4;
    units[0xCC] = unit(0xCC, 0xCC, false, 256);
    units[256 ^ 0x81] = unit(256 ^ 0x81, 0x81, true, 302);
    units[302] = 1u << 31 | 3;
    if (damage) { units[damage_at] = damage; }
    to_base64(units, UNITS, texts, sizeof texts, base64);
    snprintf(json, sizeof json,
             TOKENIZER("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}", ALWAYS, "\"unk_id\":3", ""),
             base64);
    return json;
}

TEST(precompiled_goes_by_graphemes)
{
    CHECK(charsmap_json(0, 0), "x", SP, FI);
    CHECK(charsmap_json(0, 0), "x\u0301", SP, FI); /* the whole grapheme is replaced */
    CHECK(charsmap_json(0, 0), "b\u0301", SPA);
    CHECK(charsmap_json(0, 0), "x\u0301\u0301\u0301i", SP, FI, I); /* if too long, character by character */
    CHECK(charsmap_json(0, 0), "b\u0301\u0301\u0301", SP, B);
    CHECK(charsmap_json(0, 0), "b \u0301", SP, B, SP);
    CHECK(charsmap_json(0, 0), "b\u00AD\u0301", SP, B, UNK); /* a control joins nothing */
    CHECK(charsmap_json(0, 0), "i\xF0\x9D\x90\x80", SP, I, UNK);
}

TEST(broken_charsmaps_are_refused)
{
    const struct {
        uint32_t at, unit;
        const char *message;
    } broken[] = {
        {300, 1u << 31 | 1000000, "out of range"},
        {302, 1u << 31 | 5000, "out of range"},
    };
    struct tokenizer *t;
    struct err err = {0};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        assert_int_equal(open_json(charsmap_json(broken[i].at, broken[i].unit), &t, &err), STATUS_BAD_INPUT);
        assert_non_null(strstr(err.message, broken[i].message));
    }
    static const char *const texts[] = {"", "A", "AAAA", "////", "AAA=", "AAAAAA==", "CAAAAAAA", "!AAA", "AA=A"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char json[2048];
        snprintf(json, sizeof json,
                 TOKENIZER("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}", ALWAYS, "\"unk_id\":3", ""),
                 texts[i]);
        assert_int_equal(open_json(json, &t, &err), STATUS_BAD_INPUT);
        assert_non_null(strstr(err.message, "tokenizer.json: normalizer: precompiled_charsmap"));
    }
}

TEST(what_is_not_known_is_refused_by_name)
{
    static const struct {
        const char *json;
        enum status status;
        const char *message;
    } cases[] = {
        {TOKENIZER("{\"type\":\"Whatever\"}", ALWAYS, "\"unk_id\":3", ""), STATUS_UNSUPPORTED,
         "normalizer: type Whatever"},
        {TOKENIZER("{\"type\":\"Lowercase\",\"more\":1}", ALWAYS, "\"unk_id\":3", ""), STATUS_UNSUPPORTED, "more"},
        {TOKENIZER("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+\"},\"content\":\"\"}", ALWAYS, "\"unk_id\":3",
                   ""),
         STATUS_UNSUPPORTED, "regular expression a+"},
        {TOKENIZER("null", "{\"type\":\"Whatever\"}", "\"unk_id\":3", ""), STATUS_UNSUPPORTED,
         "pre_tokenizer: type Whatever"},
        {TOKENIZER("null", "{\"type\":\"Metaspace\",\"replacement\":\"__\"}", "\"unk_id\":3", ""), STATUS_BAD_INPUT,
         "one character"},
        {TOKENIZER("null", "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false}", "\"unk_id\":3",
                   ""),
         STATUS_BAD_INPUT, "add_prefix_space is false"},
        {TOKENIZER("null", ALWAYS, "\"unk_id\":null", ""), STATUS_BAD_INPUT, "unk_id is missing"},
        {TOKENIZER("null", ALWAYS, "\"unk_id\":15", ""), STATUS_BAD_INPUT, "unk_id 15 is not in the vocabulary"},
        {TOKENIZER("null", ALWAYS, "\"unk_id\":3,\"alpha\":0.1", ""), STATUS_UNSUPPORTED, "alpha"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",0],[\"a\",1]]}}", STATUS_BAD_INPUT,
         "stands twice"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\"]]}}", STATUS_BAD_INPUT,
         "must be [token, score]"},
        {"{\"model\":{\"unk_id\":0,\"vocab\":[[\"a\",1e999]]}}", STATUS_BAD_INPUT, "must be [token, score]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *t;
        struct err err = {0};
        assert_int_equal(open_json(cases[i].json, &t, &err), cases[i].status);
        if (!strstr(err.message, cases[i].message)) { fail_msg("%s", err.message); }
    }
}
