/* Any merges and any bytes as text, through a BPE tokenizer made of them, byte-level or of characters with bytes for
 * the others: the ids' bytes are the text's, there are no more of them than promised, and a smaller limit gives the
 * start of what a larger one gives; the ids are decoded to the text, and any ids to UTF-8. The first byte chooses the
 * steps, the second the number of merges, two bytes each; the rest is text. */
#include <string.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

enum { LETTERS = 256, MAX_MERGES = 48, MAX_TOKEN = 64, MAX_TEXT = 4096, MAX_IDS = 6 * MAX_TEXT };
enum { BLANK = 1, NFC = 2, WHOLE_FIRST = 4, LATER = 8, PAIRS = 16, CHARACTERS = 32 };

/* The tokens' bytes, and how a file writes them. The letters are their bytes; with CHARACTERS some are characters. */
struct tokens {
    char bytes[LETTERS + MAX_MERGES][MAX_TOKEN];
    size_t lengths[LETTERS + MAX_MERGES];
    char written[LETTERS + MAX_MERGES][6 * MAX_TOKEN + 1];
    size_t count;
};

static bool is_character(size_t letter)
{
    return (letter >= 'a' && letter <= 'd') || letter == 0xE9;
}

/* A letter as GPT-2's alphabet writes it. */
static void write_letter(unsigned int byte, char *out)
{
    unsigned int others = 0;
    bool visible = false;
    for (unsigned int b = 0; b <= byte; b++) {
        visible = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
        others += !visible;
    }
    if (byte == '"' || byte == '\\') { *out++ = '\\'; }
    out[utf8_put(out, visible ? byte : 255 + others)] = '\0';
}

static void put_letters(struct tokens *tokens, unsigned int steps)
{
    for (unsigned int i = 0; i < LETTERS; i++) {
        tokens->lengths[i] = 1;
        tokens->bytes[i][0] = (char)i;
        if (!(steps & CHARACTERS)) {
            write_letter(i, tokens->written[i]);
        } else if (is_character(i)) {
            tokens->lengths[i] = utf8_put(tokens->bytes[i], i);
            memcpy(tokens->written[i], tokens->bytes[i], tokens->lengths[i]);
            tokens->written[i][tokens->lengths[i]] = '\0';
        } else {
            snprintf(tokens->written[i], sizeof tokens->written[i], "<0x%02X>", i);
        }
    }
    tokens->count = LETTERS;
}

/* Chooses any token; mostly one of a few letters or of those that merges have made, so that merges meet. */
static size_t choose(const struct tokens *tokens, uint8_t byte)
{
    if (byte < 64) { return (size_t)'a' + byte % 4; }
    return byte < 224 && tokens->count > LETTERS ? LETTERS + byte % (tokens->count - LETTERS) : byte;
}

/* Appends a merge to `json`, and adds the token that it makes; false if it would make a token twice or too long. */
static bool put_merge(struct tokens *tokens, const uint8_t *pair, bool pairs, struct buffer *json)
{
    size_t left = choose(tokens, pair[0]), right = choose(tokens, pair[1]);
    size_t length = tokens->lengths[left] + tokens->lengths[right];
    if (length > MAX_TOKEN) { return false; }
    char *made = tokens->bytes[tokens->count];
    memcpy(made, tokens->bytes[left], tokens->lengths[left]);
    memcpy(made + tokens->lengths[left], tokens->bytes[right], tokens->lengths[right]);
    char *written = tokens->written[tokens->count];
    stpcpy(stpcpy(written, tokens->written[left]), tokens->written[right]);
    for (size_t i = LETTERS; i < tokens->count; i++) {
        if (strcmp(tokens->written[i], written) == 0) { return false; }
    }
    buffer_format(json, pairs ? "%s[\"%s\",\"%s\"]" : "%s\"%s %s\"", tokens->count > LETTERS ? "," : "",
                  tokens->written[left], tokens->written[right]);
    tokens->lengths[tokens->count++] = length;
    return true;
}

static struct tokenizer *open_tokenizer(struct tokens *tokens, unsigned int steps, const uint8_t *merges, size_t count)
{
    static const char later[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}"
        "\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+";
    struct buffer json = {0};
    buffer_format(&json, "{\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
                  steps & NFC ? "{\"type\":\"NFC\"}" : "null");
    if (steps & LATER) {
        buffer_format(&json, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\"}%s", later,
                      steps & CHARACTERS ? "" : ",");
    } else if (steps & CHARACTERS) {
        buffer_string(&json, "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\"}");
    }
    if (!(steps & CHARACTERS)) {
        buffer_format(&json, "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":%s}",
                      steps & BLANK ? "true" : "false", steps & LATER ? "false" : "true");
    }
    buffer_format(&json, "]},\"model\":{\"type\":\"BPE\",\"byte_fallback\":%s,", steps & CHARACTERS ? "true" : "false");
    buffer_format(&json, "\"ignore_merges\":%s,\"merges\":[", steps & WHOLE_FIRST ? "true" : "false");
    for (size_t i = 0; i < count; i++) { (void)put_merge(tokens, merges + 2 * i, steps & PAIRS, &json); }
    buffer_string(&json, "],\"vocab\":{");
    for (size_t i = 0; i < tokens->count; i++) {
        buffer_format(&json, "%s\"%s\":%zu", i > 0 ? "," : "", tokens->written[i], i);
    }
    for (unsigned int i = 0; i < LETTERS && steps & CHARACTERS; i++) {
        if (is_character(i)) { buffer_format(&json, ",\"<0x%02X>\":%zu", i, tokens->count + i); }
    }
    buffer_string(&json, "}},\"decoder\":");
    buffer_string(&json, steps & CHARACTERS ? "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"
                                              "{\"type\":\"Fuse\"}]}}"
                                            : "{\"type\":\"ByteLevel\"}}");
    buffer_append(&json, "", 1);
    FUZZ_CHECK(buffer_ok(&json));
    struct tokenizer_spec spec = {0};
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    enum status status = tokenizer_json_parse(json.data, json.length - 1, tokenizer_class_of_file,
                                              &(struct tokenizer_files){0}, &spec, &err);
    if (status == STATUS_OK) { status = tokenizer_build(&spec, &tokenizer, &err); }
    if (status != STATUS_OK) { fprintf(stderr, "%s\n", err.message); }
    FUZZ_CHECK(status == STATUS_OK);
    tokenizer_spec_free(&spec);
    buffer_free(&json);
    return tokenizer;
}

/* The ids' bytes are the text, unless the steps may change it. */
static void check_bytes(const struct tokens *tokens, unsigned int steps, const char *text, size_t length,
                        const int32_t *ids, uint32_t count)
{
    size_t at = 0;
    if (steps & NFC || (steps & CHARACTERS && steps & WHOLE_FIRST && memchr(text, '<', length))) { return; }
    for (uint32_t i = 0; i < count; i++) {
        const char *bytes = tokens->bytes[ids[i]];
        size_t size = tokens->lengths[ids[i]],
               skipped = (steps & (BLANK | CHARACTERS)) == BLANK && at < length && bytes[0] == ' ' && text[at] != ' ';
        FUZZ_CHECK(at + size - skipped <= length && memcmp(text + at, bytes + skipped, size - skipped) == 0);
        at += size - skipped;
    }
    FUZZ_CHECK(at == length);
}

/* Puts the ids one by one; the pieces are UTF-8, and together what is decoded at once. */
static void decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, struct buffer *text)
{
    struct tokenizer_stream *stream;
    struct buffer whole = {0};
    struct err err = {0};
    FUZZ_CHECK(tokenizer_stream_open(tokenizer, true, false, &stream, &err) == STATUS_OK);
    for (size_t i = 0; i <= count; i++) {
        size_t before = text->length;
        if (i < count) {
            tokenizer_stream_put(stream, ids[i], text);
        } else {
            tokenizer_stream_end(stream, text);
        }
        FUZZ_CHECK(text->length == before || utf8_valid(text->data + before, text->length - before));
    }
    tokenizer_stream_close(stream);
    FUZZ_CHECK(tokenizer_decode(tokenizer, ids, count, true, &whole, &err) == STATUS_OK);
    FUZZ_CHECK(whole.length == text->length &&
               (whole.length == 0 || memcmp(whole.data, text->data, whole.length) == 0));
    buffer_free(&whole);
}

/* Decodes the ids of a text, and the text's bytes as ids. */
static void check_decoding(const struct tokenizer *tokenizer, unsigned int steps, const char *text, size_t length,
                           const int32_t *ids, uint32_t count)
{
    static int32_t any[MAX_TEXT];
    struct buffer decoded = {0};
    bool changed = steps & NFC || (steps & (BLANK | CHARACTERS)) == BLANK ||
                   (steps & CHARACTERS && steps & WHOLE_FIRST && memchr(text, '<', length));
    decode(tokenizer, ids, count, &decoded);
    FUZZ_CHECK(changed || (decoded.length == length && (length == 0 || memcmp(decoded.data, text, length) == 0)));
    decoded.length = 0;
    for (size_t i = 0; i < length; i++) { any[i] = (unsigned char)text[i] * 2 - 1; }
    decode(tokenizer, any, length, &decoded);
    buffer_free(&decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int32_t all[MAX_IDS], some[MAX_IDS];
    static struct tokens tokens;
    if (size < 2 || size > MAX_TEXT) { return 0; }
    unsigned int steps = data[0];
    size_t merges = data[1] % (MAX_MERGES + 1);
    if (size < 2 + 2 * merges) { return 0; }
    put_letters(&tokens, steps);
    struct tokenizer *tokenizer = open_tokenizer(&tokens, steps, data + 2, merges);
    const char *text = (const char *)data + 2 + 2 * merges;
    size_t length = size - 2 - 2 * merges, bound = tokenizer_bound(tokenizer, length);
    uint32_t all_count, some_count, limit = 1 + data[1];
    bool more, cut;
    struct err err = {0};
    FUZZ_CHECK(bound <= MAX_IDS);
    enum status status = tokenizer_encode(tokenizer, text, length, (uint32_t)bound, all, &all_count, &more, &err);
    FUZZ_CHECK(status == (utf8_valid(text, length) ? STATUS_OK : STATUS_BAD_INPUT));
    enum status less = tokenizer_encode(tokenizer, text, length, limit, some, &some_count, &cut, &err);
    if (status == STATUS_OK) {
        FUZZ_CHECK(less == STATUS_OK && !more && cut == (all_count > limit) && some_count == (cut ? limit : all_count));
        FUZZ_CHECK(memcmp(all, some, some_count * sizeof *all) == 0);
        for (uint32_t i = 0; i < all_count; i++) {
            FUZZ_CHECK(all[i] >= 0 && (uint32_t)all[i] < tokenizer_vocabulary(tokenizer));
        }
        check_bytes(&tokens, steps, text, length, all, all_count);
        check_decoding(tokenizer, steps, text, length, all, all_count);
    }
    tokenizer_close(tokenizer);
    return 0;
}
