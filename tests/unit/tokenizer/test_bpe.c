/* BPE: its merges, its patterns and NFC, one rule at a time, and the refused parts of a tokenizer.json. */
#include "harness.h"

#include <stdlib.h>

#include "base/buffer.h"
#include "base/json_tree.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pattern.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

enum { LETTERS = 256, MOST = 4096, END = -1 };

/* Writes a byte in the alphabet. */
static size_t put_letter(char *to, unsigned int byte)
{
    unsigned int others = 0;
    for (unsigned int b = 0; b <= byte; b++) {
        bool visible = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
        if (b == byte && visible) { return utf8_put(to, byte); }
        others += !visible;
    }
    return utf8_put(to, 255 + others);
}

/* The letters, whose ids are their bytes, followed by the tokens that the merges make. */
struct parts {
    struct trie_key tokens[LETTERS + 64];
    struct bpe_merge merges[64];
    char letters[LETTERS][4], made[64][64];
    size_t token_count, merge_count;
};

static void put_letters(struct parts *parts)
{
    for (unsigned int byte = 0; byte < LETTERS; byte++) {
        size_t length = put_letter(parts->letters[byte], byte);
        parts->tokens[byte] = (struct trie_key){parts->letters[byte], length, (int32_t)byte};
    }
    parts->token_count = LETTERS;
    parts->merge_count = 0;
}

static void put_merge(struct parts *parts, const char *left, const char *right)
{
    for (size_t i = 0; i < parts->merge_count; i++) {
        if (strcmp(parts->merges[i].left, left) == 0 && strcmp(parts->merges[i].right, right) == 0) { return; }
    }
    char *text = parts->made[parts->merge_count];
    size_t length = (size_t)snprintf(text, sizeof parts->made[0], "%s%s", left, right);
    parts->merges[parts->merge_count++] = (struct bpe_merge){left, right, strlen(left), strlen(right)};
    for (size_t i = 0; i < parts->token_count; i++) {
        if (parts->tokens[i].length == length && memcmp(parts->tokens[i].bytes, text, length) == 0) { return; }
    }
    parts->tokens[parts->token_count] = (struct trie_key){text, length, (int32_t)parts->token_count};
    parts->token_count++;
}

static struct bpe *open_parts(const struct parts *parts, bool whole_first)
{
    struct bpe *bpe;
    struct err err = {0};
    if (bpe_build(parts->tokens, parts->token_count, parts->merges, parts->merge_count, whole_first, false, &bpe,
                  &err) != STATUS_OK) {
        fail_msg("%s", err.message);
    }
    return bpe;
}

static void check(const struct bpe *bpe, const char *piece, const int32_t *expected)
{
    int32_t ids[MOST];
    struct id_sink sink = {.ids = ids, .room = MOST};
    size_t wanted = 0;
    while (expected[wanted] != END) { wanted++; }
    assert_true(bpe_encode(bpe, piece, strlen(piece), &sink));
    assert_int_equal(sink.count, wanted);
    assert_memory_equal(ids, expected, wanted * sizeof *ids);
}

#define CHECK(bpe, piece, ...) check(bpe, piece, (const int32_t[]){__VA_ARGS__, END})

TEST(the_lowest_rank_is_merged_first)
{
    struct parts parts;
    put_letters(&parts);
    put_merge(&parts, "b", "c");           /* 256 */
    put_merge(&parts, "a", "b");           /* 257 */
    put_merge(&parts, "a", "bc");          /* 258 */
    put_merge(&parts, "a", "a");           /* 259 */
    put_merge(&parts, "\u0120", "a");      /* 260: a blank and a letter */
    put_merge(&parts, "\u00C3", "\u00A9"); /* 261: the two bytes of U+00E9 */
    struct bpe *bpe = open_parts(&parts, false);
    CHECK(bpe, "abc", 258);
    CHECK(bpe, "abab", 257, 257);
    CHECK(bpe, "aaa", 259, 'a'); /* of equal merges the leftmost */
    CHECK(bpe, " abc", ' ', 258);
    CHECK(bpe, " a", 260);
    CHECK(bpe, "\u00E9\xFF", 261, 0xFF);
    bpe_close(bpe);
}

TEST(a_token_that_merges_do_not_reach)
{
    struct parts parts;
    put_letters(&parts);
    put_merge(&parts, "a", "b"); /* 256 */
    put_merge(&parts, "b", "c"); /* 257 */
    parts.tokens[parts.token_count++] = (struct trie_key){"abc", 3, 258};
    struct bpe *by_merges = open_parts(&parts, false), *whole_first = open_parts(&parts, true);
    CHECK(by_merges, "abc", 256, 'c');
    CHECK(whole_first, "abc", 258);
    CHECK(whole_first, "abcc", 256, 'c', 'c');
    bpe_close(by_merges);
    bpe_close(whole_first);
}

TEST(characters_that_the_vocabulary_lacks_are_bytes)
{
    static const char *const more[] = {"a", "b", "\u2581", "ab", "\u2581ab", "\u2581b", "<0x43>a"}; /* 256 and on */
    struct trie_key tokens[LETTERS + 7];
    struct bpe_merge merges[] = {{"a", "b", 1, 1}, {"\u2581", "ab", 3, 2}, {"<0x43>", "a", 6, 1}};
    char names[LETTERS][8];
    struct bpe *by_merges, *whole_first;
    struct err err = {0};
    for (int i = 0; i < LETTERS; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned int)i);
        tokens[i] = (struct trie_key){names[i], 6, i};
    }
    for (int i = 0; i < 7; i++) { tokens[LETTERS + i] = (struct trie_key){more[i], strlen(more[i]), LETTERS + i}; }
    assert_int_equal(bpe_build(tokens, LETTERS + 7, merges, 3, false, true, &by_merges, &err), STATUS_OK);
    assert_int_equal(bpe_build(tokens, LETTERS + 7, merges, 3, true, true, &whole_first, &err), STATUS_OK);
    CHECK(by_merges, "\u2581ab\u2581abbab", 260, 260, 257, 259);
    CHECK(by_merges, "a\u00E9b", 256, 0xC3, 0xA9, 257);
    CHECK(by_merges, "bCab", 257, 0x43, 259); /* a, b first */
    CHECK(by_merges, "bCa", 257, 262);
    CHECK(by_merges, "\u2581b", 258, 257);
    CHECK(whole_first, "\u2581b", 261);
    CHECK(whole_first, "\u2581b\u2581b", 258, 257, 258, 257); /* the whole piece, not its parts */
    CHECK(by_merges, "<0x43>", '<', '0', 'x', '4', '3', '>');
    CHECK(whole_first, "<0x43>", 0x43);
    bpe_close(by_merges);
    bpe_close(whole_first);
    tokens[0x7F].bytes = "other";
    assert_int_equal(bpe_build(tokens, LETTERS + 7, merges, 3, false, true, &by_merges, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.message, "0x7F"));
}

/* Applies one merge at a time, searching from the beginning. */
static size_t merge_plainly(const struct parts *parts, const char *piece, size_t length, int32_t *ids)
{
    for (size_t i = 0; i < length; i++) { ids[i] = (unsigned char)piece[i]; }
    for (size_t rank = 0; rank < parts->merge_count; rank++) {
        const struct bpe_merge *merge = &parts->merges[rank];
        for (size_t i = 0; i + 1 < length; i++) {
            const struct trie_key *left = &parts->tokens[ids[i]], *right = &parts->tokens[ids[i + 1]];
            if (left->length != merge->left_length || memcmp(left->bytes, merge->left, left->length) != 0 ||
                right->length != merge->right_length || memcmp(right->bytes, merge->right, right->length) != 0) {
                continue;
            }
            const char *made = parts->made[rank];
            ids[i] = 0;
            while (parts->tokens[ids[i]].length != strlen(made) ||
                   memcmp(parts->tokens[ids[i]].bytes, made, strlen(made)) != 0) {
                ids[i]++;
            }
            memmove(ids + i + 1, ids + i + 2, (length - i - 2) * sizeof *ids);
            length--;
            rank = SIZE_MAX; /* a merge may make a pair of a lower rank */
            break;
        }
    }
    return length;
}

TEST(pieces_of_any_length_merge_alike)
{
    uint32_t seed = 7;
    for (int round = 0; round < 40; round++) {
        struct parts parts;
        put_letters(&parts);
        for (int i = 0; i < 30; i++) {
            const char *sides[2];
            for (int side = 0; side < 2; side++) {
                seed = seed * 1664525 + 1013904223;
                size_t made = parts.merge_count > 0 ? (seed >> 16) % parts.merge_count : 0;
                bool letter = parts.merge_count == 0 || (seed >> 8 & 1) || strlen(parts.made[made]) > 20;
                sides[side] = letter ? (const char *[]){"a", "b", "c"}[(seed >> 24) % 3] : parts.made[made];
            }
            put_merge(&parts, sides[0], sides[1]);
        }
        struct bpe *bpe = open_parts(&parts, false);
        for (size_t length = 1; length < 300; length = length * 5 / 4 + 1) {
            char piece[300];
            int32_t expected[300], ids[300];
            struct id_sink sink = {.ids = ids, .room = 300};
            for (size_t i = 0; i < length; i++) {
                seed = seed * 1664525 + 1013904223;
                piece[i] = "abc"[(seed >> 24) % 3];
            }
            size_t wanted = merge_plainly(&parts, piece, length, expected);
            assert_true(bpe_encode(bpe, piece, length, &sink));
            assert_int_equal(sink.count, wanted);
            assert_memory_equal(ids, expected, wanted * sizeof *ids);
        }
        bpe_close(bpe);
    }
}

/* Bytes without a token are left out before anything is merged. */
TEST(bytes_that_the_vocabulary_lacks_are_left_out)
{
    struct parts parts;
    put_letters(&parts);
    put_merge(&parts, "a", "b"); /* 256 */
    parts.tokens[4] = parts.tokens[--parts.token_count];
    struct bpe *bpe = open_parts(&parts, false);
    assert_int_equal(bpe_missing_byte(bpe), 4);
    check(bpe, "\x04", (const int32_t[]){END});
    CHECK(bpe,
          "a\x04"
          "b",
          256);
    CHECK(bpe, "\x04x\x04\x04y\x04", 'x', 'y');
    char longer[2000];
    memset(longer, 4, sizeof longer);
    struct id_sink sink = {.ids = (int32_t[4]){0}, .room = 4};
    assert_true(bpe_encode(bpe, longer, sizeof longer, &sink));
    assert_int_equal(sink.count, 0);
    longer[7] = 'a';
    longer[1999] = 'b';
    assert_true(bpe_encode(bpe, longer, sizeof longer, &sink));
    assert_int_equal(sink.count, 1);
    assert_int_equal(sink.ids[0], 256);
    bpe_close(bpe);
}

TEST(a_merge_names_tokens_of_the_vocabulary)
{
    struct parts parts;
    struct bpe *bpe;
    struct err err = {0};
    put_letters(&parts);
    struct bpe_merge merge = {"a", "b", 1, 1};
    assert_int_equal(bpe_build(parts.tokens, LETTERS, &merge, 1, false, false, &bpe, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "a b"));
    assert_null(bpe);
}

/* `pieces` has a bar after each piece. */
static void splits(const struct pattern *pattern, const char *text, const char *pieces)
{
    char out[256];
    size_t used = 0, length = strlen(text);
    for (size_t at = 0, end; at < length; at = end) {
        end = pattern_next(pattern, text, length, at);
        assert_true(end > at && end <= length);
        memcpy(out + used, text + at, end - at);
        used += end - at;
        out[used++] = '|';
    }
    out[used] = '\0';
    assert_string_equal(out, pieces);
}

TEST(patterns_split)
{
    static const char qwen2[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"
        "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    struct pattern *first, *later;
    struct err err = {0};
    assert_int_equal(pattern_open(pattern_gpt2, &first, &err), STATUS_OK);
    assert_int_equal(pattern_open(qwen2, &later, &err), STATUS_OK);
    splits(first, "I'm here, she'LL  go\n\n1234!?", "I|'m| here|,| she|'|LL| | go|\n|\n|1234|!?|");
    splits(later, "I'm here, she'LL  go\n\n1234!?\n x", "I|'m| here|,| she|'LL| | go|\n\n|1|2|3|4|!?\n| x|");
    splits(first, " 12 \u00B2a\u3000\u6F22\t", " 12| \u00B2|a|\u3000|\u6F22|\t|");
    splits(later, "#a \t\u3000b  \r\n  c'\u017Ft", "#a| \t|\u3000b|  \r\n| | c|'\u017F|t|");
    splits(first, "'", "'|");
    splits(later, "  ", "  |");
    pattern_close(first);
    pattern_close(later);
    assert_int_equal(pattern_open_digits(true, &first, &err), STATUS_OK);
    assert_int_equal(pattern_open_digits(false, &later, &err), STATUS_OK);
    splits(first, "in 2026, \u00B2\u0663 a", "in |2|0|2|6|, |\u00B2|\u0663| a|");
    splits(later, "in 2026, \u00B2\u0663 a", "in |2026|, |\u00B2\u0663| a|");
    splits(first, "\U00011DE0x1", "\U00011DE0|x|1|");
    splits(later, "x", "x|");
    pattern_close(first);
    pattern_close(later);
    assert_int_equal(pattern_open("\\w+", &first, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.message, "\\w+"));
}

TEST(normal_forms)
{
    /* The text, then its NFD, NFC, NFKD and NFKC. */
    static const char *const texts[][5] = {
        {"plain \u6F22\u00E9", "plain \u6F22e\u0301", "plain \u6F22\u00E9", "plain \u6F22e\u0301",
         "plain \u6F22\u00E9"},
        {"a\u0301\u0323", "a\u0323\u0301", "\u1EA1\u0301", "a\u0323\u0301", "\u1EA1\u0301"}, /* the lower class first */
        {"\uAC00\u11A8\u1100", "\u1100\u1161\u11A8\u1100", "\uAC01\u1100", "\u1100\u1161\u11A8\u1100", "\uAC01\u1100"},
        {"\u0958\u0301e", "\u0915\u093C\u0301e", "\u0915\u093C\u0301e", "\u0915\u093C\u0301e", "\u0915\u093C\u0301e"},
        {"\uFB01\u0327\uFF76\uFF9E", "\uFB01\u0327\uFF76\uFF9E", "\uFB01\u0327\uFF76\uFF9E", "fi\u0327\u30AB\u3099",
         "fi\u0327\u30AC"},
        {"\u1E9B\u0323", "\u017F\u0323\u0307", "\u1E9B\u0323", "s\u0323\u0307", "\u1E69"},
        {"\U0001D400\u2460", "\U0001D400\u2460", "\U0001D400\u2460", "A1", "A1"},
    };
    struct unicode_normal *normal = malloc(sizeof *normal);
    for (int form = UNICODE_NFD; form <= UNICODE_NFKC; form++) {
        unicode_prepare(normal, (enum unicode_form)form);
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
            struct buffer out = {0};
            unicode_normalize(normal, texts[i][0], strlen(texts[i][0]), &out, NULL);
            buffer_append(&out, "", 1);
            assert_true(buffer_ok(&out));
            assert_string_equal(out.data, texts[i][1 + form]);
            buffer_free(&out);
        }
    }
    free(normal);
}

/* A tokenizer.json with the letters and "ab". `pre` is its pre_tokenizer, `more` goes into its model. */
static enum status open_json(const char *pre, const char *more, const char *processor, struct tokenizer **out,
                             struct err *err)
{
    struct buffer json = {0};
    struct tokenizer_spec spec = {0};
    buffer_format(&json,
                  "{\"pre_tokenizer\":%s,\"post_processor\":%s,\"added_tokens\":[{\"id\":257,\"content\":\"<m>\","
                  "\"single_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true}],"
                  "\"model\":{\"type\":\"BPE\",%s\"vocab\":{\"ab\":256",
                  pre, processor, more);
    for (unsigned int byte = 0; byte < LETTERS; byte++) {
        char letter[5] = {0};
        put_letter(letter, byte);
        buffer_format(&json, ",\"%s%s\":%u", byte == '"' || byte == '\\' ? "\\" : "", letter, byte);
    }
    buffer_string(&json, "}}}");
    buffer_append(&json, "", 1);
    assert_true(buffer_ok(&json));
    enum status status = tokenizer_json_parse(json.data, json.length - 1, tokenizer_class_of_file,
                                              &(struct tokenizer_files){0}, &spec, err);
    if (status == STATUS_OK) { status = tokenizer_build(&spec, out, err); }
    tokenizer_spec_free(&spec);
    buffer_free(&json);
    return status;
}

#define BYTE_LEVEL(prefix) "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix ",\"trim_offsets\":true}"
#define MERGES "\"merges\":[\"a b\"],"

static void encodes(const char *pre, const char *more, const char *processor, const char *text, const int32_t *expected)
{
    struct tokenizer *tokenizer;
    struct err err = {0};
    int32_t ids[64];
    uint32_t count, wanted = 0;
    bool truncated;
    if (open_json(pre, more, processor, &tokenizer, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    while (expected[wanted] != END) { wanted++; }
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), 64, ids, &count, &truncated, &err), STATUS_OK);
    assert_int_equal(count, wanted);
    assert_memory_equal(ids, expected, wanted * sizeof *ids);
    assert_true(count <= tokenizer_bound(tokenizer, strlen(text)));
    tokenizer_close(tokenizer);
}

#define ENCODES(pre, more, processor, text, ...)                                                                       \
    encodes(pre, more, processor, text, (const int32_t[]){__VA_ARGS__, END})

static void places(const char *pre, const char *processor, const char *text, const struct span *expected,
                   uint32_t wanted)
{
    struct tokenizer *tokenizer;
    struct tokenizer_token *tokens;
    uint32_t count;
    struct err err = {0};
    if (open_json(pre, MERGES, processor, &tokenizer, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    assert_int_equal(tokenizer_tokens(tokenizer, text, strlen(text), true, &tokens, &count, &err), STATUS_OK);
    assert_int_equal(count, wanted);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(tokens[i].from, expected[i].from);
        assert_int_equal(tokens[i].until, expected[i].until);
    }
    free(tokens);
    tokenizer_close(tokenizer);
}

#define PLACES(pre, processor, text, ...)                                                                              \
    places(pre, processor, text, (const struct span[]){__VA_ARGS__},                                                   \
           sizeof((const struct span[]){__VA_ARGS__}) / sizeof(struct span))

/* A byte of a character has the character's place. The post-processor takes blanks off. */
TEST(tokens_have_places)
{
    const char *twice = "{\"type\":\"Sequence\",\"processors\":[" BYTE_LEVEL("true") "," BYTE_LEVEL("true") "]}";
    struct tokenizer *tokenizer;
    struct tokenizer_token *tokens;
    uint32_t count;
    struct err err = {0};
    PLACES(BYTE_LEVEL("false"), "null", "ab \u00e9 <m>", {0, 2}, {2, 3}, {3, 5}, {3, 5}, {5, 9});
    PLACES(BYTE_LEVEL("false"), BYTE_LEVEL("false"), " ab \u00e9 <m>", {1, 1}, {1, 3}, {4, 4}, {4, 6}, {4, 6}, {7, 10});
    PLACES(BYTE_LEVEL("true"), BYTE_LEVEL("true"), "ab", {0, 0}, {0, 2});
    assert_int_equal(open_json(BYTE_LEVEL("false"), MERGES, twice, &tokenizer, &err), STATUS_OK);
    assert_int_equal(tokenizer_tokens(tokenizer, "a", 1, true, &tokens, &count, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.message, "tokens have no places: post_processor trims blanks twice");
    tokenizer_close(tokenizer);
}

TEST(files_open)
{
    ENCODES(BYTE_LEVEL("false"), MERGES, "null", "ab ab  <m>a", 256, ' ', 256, 257, 'a');
    ENCODES(BYTE_LEVEL("true"), "\"merges\":[[\"a\",\"b\"]],", BYTE_LEVEL("true"), "ab<m>a", ' ', 256, 257, ' ', 'a');
    ENCODES(BYTE_LEVEL("false"), MERGES "\"dropout\":null,\"continuing_subword_prefix\":\"\",\"unk_token\":null,",
            "{\"type\":\"RobertaProcessing\",\"sep\":[\"b\",98],\"cls\":[\"a\",97],\"trim_offsets\":true,"
            "\"add_prefix_space\":false}",
            "ab", 'a', 256, 'b');
    ENCODES(BYTE_LEVEL("false"), MERGES,
            "{\"type\":\"Sequence\",\"processors\":[" BYTE_LEVEL(
                "false") ",{\"type\":\"BertProcessing\",\"sep\":[\"b\",98],"
                         "\"cls\":[\"a\",97]}]}",
            "ab", 'a', 256, 'b');
}

static void refused(const char *pre, const char *more, const char *processor, enum status expected, const char *why)
{
    struct tokenizer *tokenizer;
    struct err err = {0};
    enum status status = open_json(pre, more, processor, &tokenizer, &err);
    if (status != expected || !strstr(err.message, "tokenizer.json") || !strstr(err.message, why)) {
        fail_msg("%s: \"%s\"; expected %s with \"%s\"", status_name(status), err.message, status_name(expected), why);
    }
}

TEST(what_changes_ids_is_refused)
{
    const char *level = BYTE_LEVEL("false");
    refused(level, MERGES "\"dropout\":0.1,", "null", STATUS_UNSUPPORTED, "dropout");
    refused(level, MERGES "\"end_of_word_suffix\":\"</w>\",", "null", STATUS_UNSUPPORTED, "end_of_word_suffix");
    refused(level, MERGES "\"continuing_subword_prefix\":\"##\",", "null", STATUS_UNSUPPORTED,
            "continuing_subword_prefix");
    refused(level, MERGES "\"other\":1,", "null", STATUS_UNSUPPORTED, "other");
    refused(level, "\"merges\":[\"a b c\"],", "null", STATUS_BAD_INPUT, "merges");
    refused(level, "\"merges\":[[\"a\"]],", "null", STATUS_BAD_INPUT, "merges");
    refused(level, "\"merges\":[\"b a\"],", "null", STATUS_BAD_INPUT, "b a");
    refused(level, "", "null", STATUS_BAD_INPUT, "merges");
    refused("null", MERGES, "null", STATUS_UNSUPPORTED, "ByteLevel");
    refused("null", MERGES "\"byte_fallback\":true,", "null", STATUS_UNSUPPORTED, "0x00");
    refused("{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"Isolated\",\"invert\":false}", MERGES,
            "null", STATUS_UNSUPPORTED, "Isolated");
    refused("{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL("false") "," BYTE_LEVEL("false") "]}", MERGES,
            "null", STATUS_UNSUPPORTED, "ByteLevel");
    refused("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},\"behavior\":\"Isolated\",\"invert\":false}",
            MERGES, "null", STATUS_UNSUPPORTED, "\\w+");
    refused("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},\"behavior\":\"Removed\",\"invert\":false}", MERGES,
            "null", STATUS_UNSUPPORTED, "Removed");
}
