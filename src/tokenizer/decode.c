/* The whole text is decoded by the same stream as one id after the other.
 *
 * Source: the behaviour of the decoders in tokenizers 0.23. */
#include "tokenizer/decode.h"

#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/json_tree.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

#define DECODER "tokenizer.json: decoder"

/* Reading. */

static enum status read_pattern(const cJSON *part, const char *field, struct decode_step *step, struct err *err)
{
    const char *text = NULL;
    TRY(fields_string(part, DECODER, field, &text, err));
    step->pattern = strdup(text);
    return step->pattern ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, DECODER ": no memory");
}

/* The pattern of some steps is one character. */
static enum status read_character(const cJSON *part, const char *field, struct decode_step *step, struct err *err)
{
    size_t size = 0;
    TRY(read_pattern(part, field, step, err));
    if (step->pattern[0]) { utf8_next(step->pattern, &size); }
    if (size > 0 && !step->pattern[size]) { return STATUS_OK; }
    return err_set(err, STATUS_BAD_INPUT, DECODER ": %s must be one character", field);
}

static enum status read_word_piece(const cJSON *part, struct decode_step *step, struct err *err)
{
    static const char *const known[] = {"type", "prefix", "cleanup", NULL};
    TRY(json_only(part, DECODER, known, NULL, err));
    TRY(fields_bool(part, DECODER, "cleanup", &step->cleanup, err));
    return read_pattern(part, "prefix", step, err);
}

/* Files up to 2023 say `add_prefix_space`, later ones `prepend_scheme`; `split` and `str_rep` change no text. */
static enum status read_metaspace(const cJSON *part, struct decode_step *step, struct err *err)
{
    static const char *const known[] = {"type",    "replacement", "add_prefix_space", "prepend_scheme", "split",
                                        "str_rep", NULL};
    const char *scheme = "always";
    bool prefix = true;
    TRY(json_only(part, DECODER, known, NULL, err));
    TRY(json_bool(part, DECODER, "add_prefix_space", &prefix, err));
    TRY(json_string(part, DECODER, "prepend_scheme", &scheme, err));
    step->first = prefix && strcmp(scheme, "never") != 0;
    return read_character(part, "replacement", step, err);
}

static enum status read_replace(const cJSON *part, struct decode_step *step, struct err *err)
{
    static const char *const known[] = {"type", "pattern", "content", NULL};
    const cJSON *pattern = json_field(part, "pattern");
    const char *content = NULL;
    TRY(json_only(part, DECODER, known, NULL, err));
    TRY(fields_string(part, DECODER, "content", &content, err));
    if (json_field(pattern, "Regex")) { return err_set(err, STATUS_UNSUPPORTED, DECODER ": Replace by a regex"); }
    TRY(read_pattern(pattern, "String", step, err));
    if (!step->pattern[0]) { return err_set(err, STATUS_UNSUPPORTED, DECODER ": an empty pattern"); }
    step->content = strdup(content);
    return step->content ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, DECODER ": no memory");
}

static enum status read_strip(const cJSON *part, struct decode_step *step, struct err *err)
{
    static const char *const known[] = {"type", "content", "start", "stop", NULL};
    TRY(json_only(part, DECODER, known, NULL, err));
    TRY(json_u32(part, DECODER, "start", 0, UINT32_MAX - 1, &step->start, err));
    TRY(json_u32(part, DECODER, "stop", 0, UINT32_MAX, &step->stop, err));
    return read_character(part, "content", step, err);
}

static enum status read_steps(const cJSON *part, struct decode_chain *chain, struct err *err)
{
    static const struct {
        const char *type;
        enum decode_kind kind;
        enum status (*read)(const cJSON *part, struct decode_step *step, struct err *err); /* NULL: nothing to read */
        bool joins, in_parts; /* in_parts: also reads a token in parts */
    } types[] = {
        {"ByteLevel", DECODE_BYTE_LEVEL, NULL, true, false},
        {"WordPiece", DECODE_WORDS, read_word_piece, false, false},
        {"Metaspace", DECODE_METASPACE, read_metaspace, false, false},
        {"Replace", DECODE_REPLACE, read_replace, false, false},
        {"ByteFallback", DECODE_BYTE_FALLBACK, NULL, false, false},
        {"Strip", DECODE_STRIP, read_strip, false, true},
    };
    const char *type = NULL;
    TRY(fields_string(part, DECODER, "type", &type, err));
    if (strcmp(type, "Fuse") == 0) {
        chain->joined = true;
        return STATUS_OK;
    }
    if (strcmp(type, "Sequence") == 0) {
        const cJSON *list = json_field(part, "decoders"), *child;
        if (!cJSON_IsArray(list)) { return err_set(err, STATUS_BAD_INPUT, DECODER ".decoders must be a list"); }
        cJSON_ArrayForEach(child, list)
        {
            TRY(read_steps(child, chain, err));
        }
        return STATUS_OK;
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(type, types[i].type) != 0) { continue; }
        if (chain->joined && !types[i].in_parts) {
            return err_set(err, STATUS_UNSUPPORTED, DECODER ": %s after Fuse or ByteLevel is not supported", type);
        }
        if (chain->count == DECODE_MAX_STEPS) {
            return err_set(err, STATUS_UNSUPPORTED, DECODER ": more than %d steps", DECODE_MAX_STEPS);
        }
        struct decode_step *step = &chain->steps[chain->count++];
        step->kind = types[i].kind;
        step->joined = chain->joined;
        chain->joined |= types[i].joins;
        return types[i].read ? types[i].read(part, step, err) : STATUS_OK;
    }
    return err_set(err, STATUS_UNSUPPORTED, DECODER ": type %.100s is not supported", type);
}

enum status decode_chain_read(const cJSON *part, struct decode_chain *chain, struct err *err)
{
    if (!part) {
        chain->steps[chain->count++].kind = DECODE_WORDS;
        return STATUS_OK;
    }
    enum status status = read_steps(part, chain, &chain->refused);
    if (status == STATUS_NO_MEMORY) { return err_set(err, status, "%s", chain->refused.message); }
    return STATUS_OK;
}

void decode_chain_free(struct decode_chain *chain)
{
    for (size_t i = 0; i < chain->count; i++) {
        free(chain->steps[i].pattern);
        free(chain->steps[i].content);
    }
    *chain = (struct decode_chain){0};
}

/* The tokens' texts. */

static int compare_ids(const void *a, const void *b)
{
    const struct decode_token *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

struct decode_token *decode_tokens_find(const struct decode_tokens *tokens, int32_t id)
{
    const struct decode_token key = {.id = id};
    return tokens->count ? bsearch(&key, tokens->list, tokens->count, sizeof key, compare_ids) : NULL;
}

/* Writes a token; there is room for it. */
static void set_token(struct decode_tokens *tokens, struct decode_token *token, int32_t id, const char *text,
                      size_t length, size_t *used)
{
    memcpy(tokens->bytes + *used, text, length);
    *token = (struct decode_token){.id = id, .start = (uint32_t)*used, .length = (uint32_t)length};
    *used += length;
}

enum status decode_tokens_copy(const struct tokenizer_spec *spec, const struct added_token *added, size_t added_count,
                               const struct buffer *normal, const struct trie *contents, struct decode_tokens *tokens,
                               struct err *err)
{
    size_t bytes = 0, used = 0, own = spec->vocabulary_count, more = 0;
    for (size_t i = 0; i < own; i++) { bytes += strlen(spec->vocabulary[i].token); }
    for (size_t i = 0; i < added_count; i++) { bytes += normal[i].length ? normal[i].length : added[i].length; }
    tokens->list = calloc(own + added_count + 1, sizeof *tokens->list);
    tokens->bytes = malloc(bytes + 1);
    if (!tokens->list || !tokens->bytes || bytes > UINT32_MAX) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the texts of %zu tokens", own + added_count);
    }
    for (; tokens->count < own; tokens->count++) {
        const struct vocabulary_entry *entry = &spec->vocabulary[tokens->count];
        set_token(tokens, &tokens->list[tokens->count], entry->id, entry->token, strlen(entry->token), &used);
    }
    for (size_t i = 0; i < added_count; i++) {
        const char *text = normal[i].length ? normal[i].data : added[i].content;
        size_t length = normal[i].length ? normal[i].length : added[i].length;
        struct decode_token *token = decode_tokens_find(tokens, added[i].id); /* among those of the vocabulary */
        if (!token) { token = &tokens->list[own + more++]; }
        set_token(tokens, token, added[i].id, text, length, &used);
        int32_t same = trie_find(contents, text, length);
        token->special = same != TRIE_NONE && added[same].special;
        token->normal = normal[i].length > 0;
    }
    tokens->count += more;
    qsort(tokens->list, tokens->count, sizeof *tokens->list, compare_ids);
    return STATUS_OK;
}

void decode_tokens_free(struct decode_tokens *tokens)
{
    free(tokens->list);
    free(tokens->bytes);
    *tokens = (struct decode_tokens){0};
}

/* Decoding. */

/* A step's state. */
struct step_state {
    size_t seen;        /* tokens so far; DECODE_STRIP: characters that were dropped at the start */
    struct buffer held; /* what the next token decides about */
    struct buffer made; /* the token for the next step */
};

struct tokenizer_stream {
    const struct tokenizer *tokenizer;
    struct buffer *out; /* of the current call */
    bool specials;
    struct step_state steps[DECODE_MAX_STEPS];
};

static void put_text(struct tokenizer_stream *stream, size_t at, const char *text, size_t length);

/* Appends a text in which `pattern` is replaced. */
static void replace_all(struct buffer *to, const char *text, size_t length, const char *pattern, const char *content)
{
    size_t size = strlen(pattern);
    const char *end = text + length, *found;
    while (length > 0 && (found = memmem(text, (size_t)(end - text), pattern, size)) != NULL) {
        buffer_append(to, text, (size_t)(found - text));
        buffer_string(to, content);
        text = found + size;
    }
    buffer_append(to, text, (size_t)(end - text));
}

/* The package cleans each token, not the text, so only blanks inside tokens and before them count. */
static void clean_word(struct step_state *state)
{
    static const char *const pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        state->held.length = 0;
        replace_all(&state->held, state->made.data, state->made.length, pairs[i][0], pairs[i][1]);
        struct buffer cleaned = state->held;
        state->held = state->made;
        state->made = cleaned;
    }
}

static void put_word(struct tokenizer_stream *stream, size_t at, const char *text, size_t length)
{
    const struct decode_step *step = &stream->tokenizer->decode.steps[at];
    struct step_state *state = &stream->steps[at];
    size_t prefix = step->pattern ? strlen(step->pattern) : 0;
    state->made.length = 0;
    if (state->seen++ > 0) {
        if (step->pattern && length >= prefix && memcmp(text, step->pattern, prefix) == 0) {
            text += prefix;
            length -= prefix;
        } else {
            buffer_string(&state->made, " ");
        }
    }
    buffer_append(&state->made, text, length);
    if (step->cleanup) { clean_word(state); }
    put_text(stream, at + 1, state->made.data, state->made.length);
}

static void put_replaced(struct tokenizer_stream *stream, size_t at, const char *text, size_t length)
{
    const struct decode_step *step = &stream->tokenizer->decode.steps[at];
    struct step_state *state = &stream->steps[at];
    const char *content = step->kind == DECODE_REPLACE ? step->content : step->first && state->seen == 0 ? "" : " ";
    state->seen++;
    state->made.length = 0;
    replace_all(&state->made, text, length, step->pattern, content);
    put_text(stream, at + 1, state->made.data, state->made.length);
}

/* Holds back the characters that are dropped if nothing follows. */
static void put_stripped(struct tokenizer_stream *stream, size_t at, const char *text, size_t length)
{
    const struct decode_step *step = &stream->tokenizer->decode.steps[at];
    struct step_state *state = &stream->steps[at];
    size_t size = strlen(step->pattern);
    if (!step->joined) { state->seen = state->held.length = 0; }
    while (length > 0 && state->seen < step->start) {
        bool here = length >= size && memcmp(text, step->pattern, size) == 0;
        state->seen = here ? state->seen + 1 : step->start;
        text += here ? size : 0;
        length -= here ? size : 0;
    }
    buffer_append(&state->held, text, length);
    size_t cut = state->held.length;
    for (uint32_t i = 0; i < step->stop && cut >= size; i++, cut -= size) {
        if (memcmp(state->held.data + cut - size, step->pattern, size) != 0) { break; }
    }
    put_text(stream, at + 1, state->held.data, cut);
    buffer_consume(&state->held, cut);
}

/* Passes on the bytes held as a character each, or as one token if they are UTF-8. */
static void flush_bytes(struct tokenizer_stream *stream, size_t at)
{
    struct buffer *held = &stream->steps[at].held;
    if (held->length == 0) { return; }
    if (utf8_valid(held->data, held->length)) {
        put_text(stream, at + 1, held->data, held->length);
    } else {
        for (size_t i = 0; i < held->length; i++) {
            put_text(stream, at + 1, UTF8_REPLACEMENT, UTF8_REPLACEMENT_BYTES);
        }
    }
    held->length = 0;
}

static void put_fallback(struct tokenizer_stream *stream, size_t at, const char *text, size_t length)
{
    if (length == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>') {
        int high = hex_digit(text[3]), low = hex_digit(text[4]);
        if (high >= 0 && low >= 0) {
            char byte = (char)(high * 16 + low);
            buffer_append(&stream->steps[at].held, &byte, 1);
            return;
        }
    }
    flush_bytes(stream, at);
    put_text(stream, at + 1, text, length);
}

/* The bytes, at least one, that begin a character and do not go on as one; `*open`: it may still be one, with more. */
static size_t broken_length(const char *text, size_t length, bool *open)
{
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned char lead = bytes[0];
    unsigned char least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    size_t whole = lead < 0xC2 || lead > 0xF4 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4, at = 1;
    for (; at < whole && at < length && bytes[at] >= least && bytes[at] <= most; at++, least = 0x80, most = 0xBF) {}
    *open = at < whole && at == length;
    return at;
}

/* Passes on the held bytes, except for the beginning of a character. */
static void put_bytes(struct tokenizer_stream *stream, size_t at)
{
    struct buffer *held = &stream->steps[at].held;
    for (bool open = false; held->length > 0 && !open;) {
        size_t valid = utf8_valid_prefix(held->data, held->length);
        put_text(stream, at + 1, held->data, valid);
        buffer_consume(held, valid);
        if (held->length == 0) { return; }
        size_t broken = broken_length(held->data, held->length, &open);
        if (open) { return; }
        put_text(stream, at + 1, UTF8_REPLACEMENT, UTF8_REPLACEMENT_BYTES);
        buffer_consume(held, broken);
    }
}

/* A token that is not written in the alphabet, as added tokens may be, is its text. */
static void put_byte_level(struct tokenizer_stream *stream, size_t at, const char *text, size_t length)
{
    struct buffer *held = &stream->steps[at].held;
    size_t before = held->length;
    for (size_t i = 0; i < length;) {
        int byte = bpe_byte(utf8_next(text, &i));
        if (byte < 0) {
            held->length = before;
            buffer_append(held, text, length);
            break;
        }
        buffer_append(held, &(char){(char)byte}, 1);
    }
    put_bytes(stream, at);
}

/* Gives a token, or a part of the only one, to a step; after the last step it goes to the caller. */
static void put_text(struct tokenizer_stream *stream, size_t at, const char *text, size_t length)
{
    if (!text) { text = ""; } /* an empty buffer's */
    if (at == stream->tokenizer->decode.count) {
        buffer_append(stream->out, text, length);
        return;
    }
    switch (stream->tokenizer->decode.steps[at].kind) {
    case DECODE_WORDS:
        put_word(stream, at, text, length);
        break;
    case DECODE_METASPACE:
    case DECODE_REPLACE:
        put_replaced(stream, at, text, length);
        break;
    case DECODE_STRIP:
        put_stripped(stream, at, text, length);
        break;
    case DECODE_BYTE_FALLBACK:
        put_fallback(stream, at, text, length);
        break;
    case DECODE_BYTE_LEVEL:
        put_byte_level(stream, at, text, length);
        break;
    }
    if (!buffer_ok(&stream->steps[at].held) || !buffer_ok(&stream->steps[at].made)) { stream->out->broken = true; }
}

enum status tokenizer_stream_open(const struct tokenizer *tokenizer, bool specials, bool inside,
                                  struct tokenizer_stream **out, struct err *err)
{
    const struct decode_chain *chain = &tokenizer->decode;
    *out = NULL;
    if (chain->refused.status != STATUS_OK) {
        return err_set(err, STATUS_UNSUPPORTED, "ids cannot be decoded: %s", chain->refused.message);
    }
    struct tokenizer_stream *stream = calloc(1, sizeof *stream);
    if (!stream) { return err_set(err, STATUS_NO_MEMORY, "no memory for decoding"); }
    stream->tokenizer = tokenizer;
    stream->specials = specials;
    for (size_t i = 0; inside && i < chain->count; i++) { stream->steps[i].seen = 1 + chain->steps[i].start; }
    *out = stream;
    return STATUS_OK;
}

void tokenizer_stream_put(struct tokenizer_stream *stream, int32_t id, struct buffer *text)
{
    const struct decode_tokens *tokens = &stream->tokenizer->tokens;
    const struct decode_token *token = decode_tokens_find(tokens, id);
    if (!token || (token->special && !stream->specials)) { return; }
    stream->out = text;
    put_text(stream, 0, tokens->bytes + token->start, token->length);
}

void tokenizer_stream_end(struct tokenizer_stream *stream, struct buffer *text)
{
    stream->out = text;
    for (size_t i = 0; i < stream->tokenizer->decode.count; i++) {
        enum decode_kind kind = stream->tokenizer->decode.steps[i].kind;
        if (kind == DECODE_BYTE_FALLBACK) { flush_bytes(stream, i); }
        if (kind == DECODE_BYTE_LEVEL && stream->steps[i].held.length > 0) {
            put_text(stream, i + 1, UTF8_REPLACEMENT, UTF8_REPLACEMENT_BYTES);
        }
    }
}

void tokenizer_stream_close(struct tokenizer_stream *stream)
{
    if (!stream) { return; }
    for (size_t i = 0; i < DECODE_MAX_STEPS; i++) {
        buffer_free(&stream->steps[i].held);
        buffer_free(&stream->steps[i].made);
    }
    free(stream);
}

enum status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, bool specials,
                             struct buffer *text, struct err *err)
{
    struct tokenizer_stream *stream;
    TRY(tokenizer_stream_open(tokenizer, specials, false, &stream, err));
    for (size_t i = 0; i < count; i++) { tokenizer_stream_put(stream, ids[i], text); }
    tokenizer_stream_end(stream, text);
    tokenizer_stream_close(stream);
    return buffer_ok(text) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory to decode %zu ids", count);
}
