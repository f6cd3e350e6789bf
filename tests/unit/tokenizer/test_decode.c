/* From ids back to text, one rule at a time; golden.decode compares many tokenizers with the package. */
#include "harness.h"

#include <stdlib.h>

#include "base/buffer.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

#define MARK "\u2581"
#define UNIGRAM(decoder)                                                                                               \
    "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"" MARK "a\",-1],[\"b\",-1],[\"" MARK    \
    "\",-1],[\"<0xC3>\",-1],[\"<0xA9>\",-1],[\"##c\",-1],[\"!\",-1],[\"\u00C3\u013C\",-1]]},\"added_tokens\":["        \
    "{\"id\":0,\"content\":\"<unk>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"    \
    "\"special\":true}],\"decoder\":" decoder "}"
#define LLAMA(end)                                                                                                     \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK                       \
    "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" end "]}"
#define STRIP(start, stop) "{\"type\":\"Strip\",\"content\":\" \",\"start\":" start ",\"stop\":" stop "}"

enum { UNK, WORD, B, BLANK, C3, A9, INNER, MARKED, BYTES, END = -1 };

static struct tokenizer *open_json(const char *json)
{
    struct tokenizer_spec spec = {0};
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    enum status status =
        tokenizer_json_parse(json, strlen(json), tokenizer_class_of_file, &(struct tokenizer_files){0}, &spec, &err);
    if (status == STATUS_OK) { status = tokenizer_build(&spec, &tokenizer, &err); }
    if (status != STATUS_OK) { fail_msg("%s", err.message); }
    tokenizer_spec_free(&spec);
    return tokenizer;
}

static void expect(struct buffer *text, const char *expected)
{
    buffer_append(text, "", 1);
    assert_string_equal(text->data, expected);
    buffer_free(text);
}

/* Decodes ids that end with END, without special tokens if `expected` has none. */
static void check(const char *json, const int32_t *ids, bool specials, const char *expected)
{
    struct tokenizer *tokenizer = open_json(json);
    struct buffer text = {0};
    struct err err = {0};
    size_t count = 0;
    while (ids[count] != END) { count++; }
    assert_int_equal(tokenizer_decode(tokenizer, ids, count, specials, &text, &err), STATUS_OK);
    expect(&text, expected);
    tokenizer_close(tokenizer);
}

#define CHECK(decoder, expected, ...) check(UNIGRAM(decoder), (const int32_t[]){__VA_ARGS__, END}, true, expected)

TEST(words_are_put_together)
{
    CHECK("{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"always\"}", "ab a", WORD, B, WORD);
    CHECK("{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"never\"}", " ab a", WORD, B, WORD);
    CHECK("{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}", "##c bc b!", INNER, B, INNER, B, MARKED);
    CHECK("{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false}", "b !", B, MARKED);
    CHECK("null", "b ##c <0xC3>", B, INNER, C3);
    CHECK("{\"type\":\"Sequence\",\"decoders\":[]}", "b##c", B, INNER);
}

TEST(bytes_are_characters_or_replaced)
{
    CHECK(LLAMA(""), " a\u00E9b", WORD, C3, A9, B);
    CHECK(LLAMA(""), "\uFFFD\uFFFD\uFFFDb", C3, A9, C3, B); /* one byte that is not UTF-8 spoils its neighbours */
    CHECK("{\"type\":\"ByteLevel\"}", "\xC3\x9A!", BYTES, MARKED);
    CHECK("{\"type\":\"ByteLevel\"}", MARK "a", WORD); /* not written in the alphabet */
}

TEST(ends_are_stripped)
{
    CHECK(LLAMA("," STRIP("1", "0")), "ab ", WORD, B, BLANK);
    CHECK(LLAMA("," STRIP("1", "0")), " ab", BLANK, WORD, B);
    CHECK(LLAMA("," STRIP("0", "1")), " a b", WORD, BLANK, B, BLANK);
    CHECK(LLAMA("," STRIP("0", "2")), " a ", WORD, BLANK, BLANK, BLANK);
    CHECK(LLAMA("," STRIP("2", "2")), "", BLANK, BLANK, BLANK);
}

TEST(special_tokens_and_ids_without_a_token_are_left_out)
{
    const int32_t ids[] = {UNK, WORD, 99, -7, UNK, B, END};
    check(UNIGRAM(LLAMA("")), ids, true, "<unk> a<unk>b");
    check(UNIGRAM(LLAMA("")), ids, false, " ab");
    check(UNIGRAM("{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}"), (const int32_t[]){UNK, INNER, END},
          false, "##c"); /* the first that is left */
}

TEST(a_stream_gives_what_is_certain)
{
    struct tokenizer *tokenizer = open_json(UNIGRAM(LLAMA("," STRIP("1", "1"))));
    static const struct {
        int32_t id;
        const char *inside, *alone; /* the pieces */
    } steps[] = {{WORD, " a", "a"},           {BLANK, "", ""}, {C3, "", ""}, {A9, "", ""},
                 {B, " \u00E9b", " \u00E9b"}, {C3, "", ""}};
    for (int inside = 0; inside <= 1; inside++) {
        struct tokenizer_stream *stream;
        struct buffer text = {0};
        struct err err = {0};
        assert_int_equal(tokenizer_stream_open(tokenizer, false, inside, &stream, &err), STATUS_OK);
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            tokenizer_stream_put(stream, steps[i].id, &text);
            expect(&text, inside ? steps[i].inside : steps[i].alone);
        }
        tokenizer_stream_end(stream, &text);
        expect(&text, "\uFFFD");
        tokenizer_stream_close(stream);
    }
    tokenizer_close(tokenizer);
    tokenizer_stream_close(NULL);
}

TEST(a_decoder_that_is_not_known_is_refused_by_name_and_encodes)
{
    static const struct {
        const char *json, *message;
    } cases[] = {
        {UNIGRAM("{\"type\":\"CTC\",\"pad_token\":\"b\"}"), "decoder: type CTC is not supported"},
        {UNIGRAM("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}"),
         "ByteFallback after Fuse or ByteLevel is not supported"},
        {UNIGRAM("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"BPEDecoder\",\"suffix\":\"x\"}]}"),
         "type BPEDecoder"},
        {UNIGRAM("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+\"},\"content\":\"\"}"), "Replace by a regex"},
        {UNIGRAM("{\"type\":\"Strip\",\"content\":\"ab\",\"start\":1,\"stop\":0}"), "content must be one character"},
        {UNIGRAM("{\"type\":\"WordPiece\",\"prefix\":\"##\"}"), "cleanup is missing"},
        {UNIGRAM("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"more\":1}"), "more"},
        {UNIGRAM("7"), "decoder"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *tokenizer = open_json(cases[i].json);
        struct tokenizer_stream *stream;
        struct buffer text = {0};
        struct err err = {0};
        int32_t ids[8];
        uint32_t count;
        bool truncated;
        assert_int_equal(tokenizer_encode(tokenizer, "b", 1, 8, ids, &count, &truncated, &err), STATUS_OK);
        assert_int_equal(ids[0], B);
        assert_int_equal(tokenizer_decode(tokenizer, ids, count, true, &text, &err), STATUS_UNSUPPORTED);
        assert_int_equal(tokenizer_stream_open(tokenizer, true, false, &stream, &err), STATUS_UNSUPPORTED);
        assert_null(stream);
        if (!strstr(err.message, cases[i].message)) { fail_msg("%s", err.message); }
        buffer_free(&text);
        tokenizer_close(tokenizer);
    }
}
