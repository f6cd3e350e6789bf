/* Any bytes as text, through a small tokenizer of each kind: no more ids than promised, none out of range, and a
 * smaller limit gives the start of what a larger one gives. The first byte chooses the tokenizer, the second the
 * smaller limit. */
#include <string.h>

#include "base/utf8.h"
#include "fuzz.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

#define FLAGS(single, left, right, normal)                                                                             \
    "\"single_word\":" single ",\"lstrip\":" left ",\"rstrip\":" right ",\"normalized\":" normal ",\"special\":true}"
#define PARTS(clean, chinese, strip, lower, added)                                                                     \
    "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":" clean ",\"handle_chinese_chars\":" chinese          \
    ",\"strip_accents\":" strip ",\"lowercase\":" lower "},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"         \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[U]\",\"continuing_subword_prefix\":\"##\","                    \
    "\"max_input_chars_per_word\":8,\"vocab\":{\"[U]\":0,\"[C]\":1,\"[S]\":2,\"a\":3,\"##a\":4,\"ab\":5,\"##b\":6,"    \
    "\"\xE3\x80\xAE\":7,\"##\xE3\x80\xAE\":8,\"!\":9,\"\xE6\xBC\xA2\":10,\"##\xCC\x81\":11,\"e\":12,\"##e\":13}},"     \
    "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[C]\",1],\"sep\":[\"[S]\",2]},"                        \
    "\"added_tokens\":[{\"id\":1,\"content\":\"[C]\"," FLAGS("false", "false", "false", "false") added "]}"

/* Unigram, with and without bytes for unknown characters, in words and over whole texts. */
#define UNIGRAM(normalizer, splits, bytes, added)                                                                      \
    "{\"normalizer\":" normalizer ",\"pre_tokenizer\":" splits ",\"model\":{\"type\":\"Unigram\",\"unk_id\":0,"        \
    "\"byte_fallback\":" bytes ",\"vocab\":[[\"<unk>\",0],[\"[C]\",0],[\"[S]\",0],[\"\xE2\x96\x81\",-2],[\"a\",-3],"   \
    "[\"ab\",-5],[\"b\",-3],[\"\xE2\x96\x81"                                                                           \
    "a\",-4],[\"\xE6\xBC\xA2\",-6],[\"aaaaaaaaa\",-9],[\"<0xC3>\",-9],"                                                \
    "[\"<0xA9>\",-9],[\"  \",-5]]},\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"[C]\",1],\"sep\":["   \
    "\"[S]\",2],\"trim_offsets\":true,\"add_prefix_space\":true},\"added_tokens\":[{\"id\":1,\"content\":\"[C]"        \
    "\"," FLAGS("false", "false", "false", "false") added "]}"
#define METASPACE(scheme, split)                                                                                       \
    "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"" scheme "\",\"split\":" split "}"
#define STEPS                                                                                                          \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Nmt\"},{\"type\":\"StripAccents\"},{\"type\":\"Lowercase\"}," \
    "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},{\"type\":\"Replace\",\"pattern\":{\"Regex\":"      \
    "\" {2,}\"},\"content\":\"\xE2\x96\x81\"}]}"
#define PREPEND                                                                                                        \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Prepend\",\"prepend\":\"ab\"}]}"
#define WORDS(last) "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"}," last "]}"

/* A token whose white space others begin in; four from `a` to `d` on. */
#define BLANKS(a, b, c, d, normal)                                                                                     \
    ",{\"id\":" a                                                                                                      \
    ",\"content\":\"<m>\"," FLAGS("false", "false", "true", normal) ",{\"id\":" b ",\"content\":\"\\t\\t\"," FLAGS(    \
        "false", "false", "false",                                                                                     \
        "false") ",{\"id\":" c                                                                                         \
                 ",\"content\":\"\\t\"," FLAGS("false", "true", "true",                                                \
                                               "false") ",{\"id\":" d                                                  \
                                                        ",\"content\":\" \"," FLAGS("true", "false", "true", normal)

enum { TOKENIZERS = 12, MAX_TEXT = 4096, MAX_IDS = 128 * MAX_TEXT };

static const char *const files[TOKENIZERS] = {
    PARTS("true", "true", "null", "true", ""),
    PARTS("true", "true", "false", "false", ""),
    PARTS("false", "false", "true", "false", ",{\"id\":5,\"content\":\"ab\"," FLAGS("true", "true", "true", "false")),
    PARTS("true", "true", "null", "true",
          ",{\"id\":14,\"content\":\" \"," FLAGS(
              "false", "true", "true", "true") ",{\"id\":15,\"content\":\"B\"," FLAGS("true", "false", "true", "true")),
    UNIGRAM("null", WORDS(METASPACE("always", "true")), "false", ""),
    UNIGRAM(STEPS, METASPACE("first", "true"), "true",
            ",{\"id\":13,\"content\":\"<m>\"," FLAGS("false", "true", "true",
                                                     "false") ",{\"id\":14,\"content\":\"B\"," FLAGS("true", "true",
                                                                                                     "false", "true")),
    UNIGRAM(PREPEND, METASPACE("never", "false"), "true", ""),
    UNIGRAM("{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"a a\"}", "null", "false", ""),
    PARTS("true", "true", "null", "true", BLANKS("14", "15", "16", "17", "false")),
    PARTS("false", "true", "null", "true", BLANKS("14", "15", "16", "17", "true")),
    UNIGRAM("null", METASPACE("first", "true"), "true", BLANKS("13", "14", "15", "16", "false")),
    UNIGRAM("{\"type\":\"Nmt\"}", "null", "true", BLANKS("13", "14", "15", "16", "true")),
};

static const struct tokenizer *tokenizer_at(size_t index)
{
    static struct tokenizer *tokenizers[TOKENIZERS];
    if (tokenizers[index] == NULL) {
        struct tokenizer_spec spec = {0};
        struct err err = {0};
        FUZZ_CHECK(tokenizer_json_parse(files[index], strlen(files[index]), tokenizer_class_of_file,
                                        &(struct tokenizer_files){0}, &spec, &err) == STATUS_OK);
        FUZZ_CHECK(tokenizer_build(&spec, &tokenizers[index], &err) == STATUS_OK);
        tokenizer_spec_free(&spec);
    }
    return tokenizers[index];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int32_t all[MAX_IDS], some[MAX_IDS];
    if (size < 2 || size > MAX_TEXT) { return 0; }
    const struct tokenizer *tokenizer = tokenizer_at(data[0] % TOKENIZERS);
    uint32_t limit = 2 + data[1], all_count, some_count;
    bool more, cut;
    struct err err = {0};
    const char *text = (const char *)data + 2;
    size_t length = size - 2, bound = tokenizer_bound(tokenizer, length);
    enum status status = tokenizer_encode(tokenizer, text, length, (uint32_t)bound, all, &all_count, &more, &err);
    FUZZ_CHECK(status == (utf8_valid(text, length) ? STATUS_OK : STATUS_BAD_INPUT));
    enum status less = tokenizer_encode(tokenizer, text, length, limit, some, &some_count, &cut, &err);
    if (status != STATUS_OK) { return 0; }
    FUZZ_CHECK(less == STATUS_OK && !more && all_count <= bound && some_count <= limit && cut == (all_count > limit));
    FUZZ_CHECK(some_count == (cut ? limit : all_count) && memcmp(all, some, (some_count - 1) * sizeof *all) == 0);
    FUZZ_CHECK(all[0] == 1 && all[all_count - 1] == 2 && some[some_count - 1] == 2);
    for (uint32_t i = 0; i < all_count; i++) {
        FUZZ_CHECK(all[i] >= 0 && (uint32_t)all[i] < tokenizer_vocabulary(tokenizer));
    }
    return 0;
}
