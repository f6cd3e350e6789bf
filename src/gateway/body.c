/* The lexer ends where the body stops being UTF-8, so a bad byte is an error at the very end of what the lexer sees. */
#include "gateway/body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

enum { NO_INDEX = -1 };

struct reader {
    struct lexer lexer;
    const char *body, *end; /* the end of the body, which is not UTF-8 from lexer.end on */
    const struct member *member;
    long index;    /* of the element that is read; NO_INDEX: none */
    bool source;   /* MEMBER_SIMILARITY: the source was read; it is the first text */
    uint64_t seen; /* as call->given, with those that are null */
    struct call *call;
    struct fault *fault;
};

/* Fails with a message about the member, and the element, that is being read. */
static bool fail_member(struct reader *reader, const char *what)
{
    const struct dialect *dialect = reader->call->dialect;
    bool bad_bytes = reader->lexer.at == reader->lexer.end && reader->lexer.end < reader->end;
    if (bad_bytes) { what = "not UTF-8"; }
    if (!reader->member) {
        return fault_set(reader->fault, dialect, FAULT_BAD_REQUEST, NULL, "the body: %s, at byte %zu", what,
                         (size_t)(reader->lexer.at - reader->body));
    }
    const char *name = reader->member->name;
    if (reader->index != NO_INDEX) {
        return fault_set(reader->fault, dialect, FAULT_BAD_REQUEST, name, "%s[%ld]: %s", name, reader->index, what);
    }
    return fault_set(reader->fault, dialect, FAULT_BAD_REQUEST, name, "%s: %s", name, what);
}

static bool fail_memory(struct reader *reader)
{
    return fault_set(reader->fault, reader->call->dialect, FAULT_UNAVAILABLE, NULL, "no memory for the request");
}

/* Reads a string after its opening quote and checks it. Shapes: as lexer_string; `*escaped`: it has escapes. */
static bool read_string(struct reader *reader, struct slice *string, bool *escaped)
{
    if (!lexer_string(&reader->lexer, &string->bytes, &string->length)) {
        return fail_member(reader, "not a JSON string (a control character, an unknown escape, or no end)");
    }
    const char *escape = memchr(string->bytes, '\\', string->length);
    *escaped = escape != NULL;
    struct lexer inner = {escape, string->bytes + string->length};
    while (inner.at) {
        char utf8[4];
        size_t length;
        inner.at++;
        enum json_escape read = lexer_read_escape(&inner, utf8, &length);
        if (read != JSON_ESCAPE_OK) {
            return fail_member(reader, read == JSON_ESCAPE_HALF ? "half a surrogate pair" : "not an escape of JSON");
        }
        inner.at = memchr(inner.at, '\\', (size_t)(inner.end - inner.at));
    }
    return true;
}

/* Makes room for all decoded strings together, which are shorter than the body, so that this memory never moves. */
static bool reserve_decoded(struct reader *reader)
{
    struct buffer *decoded = &reader->call->decoded;
    return decoded->data || buffer_reserve(decoded, (size_t)(reader->end - reader->body)) || fail_memory(reader);
}

/* Reads a string that is used decoded. Its bytes stay in the body if it has no escapes. */
static bool read_decoded(struct reader *reader, struct slice *string)
{
    bool escaped;
    if (!read_string(reader, string, &escaped)) { return false; }
    if (!escaped) { return true; }
    struct buffer *decoded = &reader->call->decoded;
    size_t start = decoded->length;
    if (!reserve_decoded(reader)) { return false; }
    bool whole = buffer_json_decode(decoded, string->bytes, string->length);
    *string = (struct slice){decoded->data + start, decoded->length - start};
    return whole || fail_member(reader, "not a JSON string");
}

/* Adds a text to the call, JSON as it stands in the body. */
static bool keep_text(struct reader *reader, struct slice text)
{
    struct call *call = reader->call;
    uint32_t count = call->text_count;
    if (count == CALL_TEXTS_MAX) {
        const char *name = reader->member->name;
        return fault_set(reader->fault, call->dialect, FAULT_TOO_LARGE, name, "%s: more than %d texts", name,
                         CALL_TEXTS_MAX);
    }
    if ((count & (count - 1)) == 0) { /* room doubles */
        struct slice *texts = realloc(call->texts, (count > 0 ? 2 * (size_t)count : 1) * sizeof *texts);
        if (!texts) { return fail_memory(reader); }
        call->texts = texts;
    }
    call->texts[count] = text;
    call->text_count++;
    return true;
}

/* Reads one text and adds it to the call. */
static bool add_text(struct reader *reader)
{
    struct slice text;
    bool escaped;
    if (!read_string(reader, &text, &escaped)) { return false; }
    if (text.length == 0) { return fail_member(reader, "must not be empty"); }
    return keep_text(reader, (struct slice){text.bytes - 1, text.length + 2});
}

/* Moves past a value, whose strings are not checked. */
static bool read_value(struct reader *reader, struct slice *value)
{
    value->bytes = reader->lexer.at;
    if (!lexer_value(&reader->lexer, 3)) { return fail_member(reader, "not JSON, or nested too deeply"); }
    value->length = (size_t)(reader->lexer.at - value->bytes);
    return true;
}

/* Moves past the value of a member that nobody reads. */
static bool skip_value(struct reader *reader)
{
    struct slice value = {NULL, 0};
    return read_value(reader, &value);
}

/* Reads an object after its opening brace: `read` reads each value. */
static bool read_object(struct reader *reader, bool (*read)(struct reader *reader, struct slice name))
{
    struct lexer *lexer = &reader->lexer;
    struct slice name;
    lexer_skip_space(lexer);
    if (lexer_take(lexer, '}')) { return true; }
    do {
        lexer_skip_space(lexer);
        if (!lexer_take(lexer, '"')) { return fail_member(reader, "not JSON"); }
        if (!read_decoded(reader, &name)) { return false; }
        lexer_skip_space(lexer);
        if (!lexer_take(lexer, ':')) { return fail_member(reader, "not JSON"); }
        lexer_skip_space(lexer);
        if (!read(reader, name)) { return false; }
        lexer_skip_space(lexer);
    } while (lexer_take(lexer, ','));
    return lexer_take(lexer, '}') || fail_member(reader, "not JSON");
}

/* Reads a member of a document; of all but its `text` nothing is kept. */
static bool read_document_member(struct reader *reader, struct slice name)
{
    if (!slice_is(name, "text")) { return skip_value(reader); }
    if (reader->call->text_count > reader->index) { return fail_member(reader, "has `text` more than once"); }
    return lexer_take(&reader->lexer, '"') ? add_text(reader) : fail_member(reader, "its `text` must be a string");
}

static bool add_document(struct reader *reader)
{
    return read_object(reader, read_document_member) &&
           (reader->call->text_count > reader->index || fail_member(reader, "an object without `text`"));
}

/* Reads [a text] after its opening bracket, as TEI's /predict takes a text; two would be a pair. */
static bool add_sequence(struct reader *reader)
{
    struct lexer *lexer = &reader->lexer;
    lexer_skip_space(lexer);
    if (!lexer_take(lexer, '"')) { return fail_member(reader, "must be a list of one string"); }
    if (!add_text(reader)) { return false; }
    lexer_skip_space(lexer);
    return lexer_take(lexer, ']') ||
           fail_member(reader, "pairs are not supported: a list of texts is [[\"a\"],[\"b\"]]");
}

static bool fail_text(struct reader *reader)
{
    bool number = reader->lexer.at < reader->lexer.end && memchr("-0123456789[", *reader->lexer.at, 12);
    if (number && reader->member->kind == MEMBER_INPUT && reader->call->dialect->faults == &openai_faults) {
        return fail_member(reader, reader->call->task == TASK_GENERATE
                                       ? "token ids are not taken; send texts"
                                       : "token ids are ids of another model's vocabulary; send texts"
                                         " (LangChain: OpenAIEmbeddings(..., check_embedding_ctx_length=False))");
    }
    return fail_member(reader,
                       reader->member->kind == MEMBER_SEQUENCES ? "must be a list of one string" : "must be a string");
}

static bool read_texts(struct reader *reader)
{
    struct lexer *lexer = &reader->lexer;
    const struct member *member = reader->member;
    bool one = member->kind == MEMBER_INPUT || member->kind == MEMBER_SEQUENCES; /* it may be one text */
    if (one && lexer_take(lexer, '"')) {
        reader->call->single = true;
        return add_text(reader);
    }
    if (!lexer_take(lexer, '[')) {
        return fail_member(reader, one ? "must be a string or a list of strings" : "must be a list of strings");
    }
    lexer_skip_space(lexer);
    if (member->kind == MEMBER_SEQUENCES && lexer->at < lexer->end && *lexer->at == '"') {
        reader->call->single = true;
        return add_sequence(reader);
    }
    if (lexer_take(lexer, ']')) { return fail_member(reader, "must not be empty"); }
    for (reader->index = 0;; reader->index++) {
        lexer_skip_space(lexer);
        if (member->kind == MEMBER_SEQUENCES && lexer_take(lexer, '[')) {
            if (!add_sequence(reader)) { return false; }
        } else if (member->kind != MEMBER_SEQUENCES && lexer_take(lexer, '"')) {
            if (!add_text(reader)) { return false; }
        } else if (member->kind == MEMBER_DOCUMENTS && lexer_take(lexer, '{')) {
            if (!add_document(reader)) { return false; }
        } else {
            return fail_text(reader);
        }
        lexer_skip_space(lexer);
        if (lexer_take(lexer, ']')) { return true; }
        if (!lexer_take(lexer, ',')) { return fail_member(reader, "not JSON: a comma or ] is missing after it"); }
    }
}

/* Reads a member of the object of MEMBER_SIMILARITY. */
static bool read_similarity_member(struct reader *reader, struct slice name)
{
    struct call *call = reader->call;
    struct lexer *lexer = &reader->lexer;
    uint32_t before = call->text_count;
    if (slice_is(name, "source_sentence")) {
        if (reader->source) { return fail_member(reader, "`source_sentence` is given more than once"); }
        if (!lexer_take(lexer, '"')) { return fail_member(reader, "`source_sentence` must be a string"); }
        if (!add_text(reader)) { return false; }
        struct slice source = call->texts[before];
        memmove(call->texts + 1, call->texts, before * sizeof *call->texts);
        call->texts[0] = source;
        reader->source = true;
        return true;
    }
    if (!slice_is(name, "sentences")) { return skip_value(reader); }
    if (before > (reader->source ? 1u : 0u)) { return fail_member(reader, "`sentences` are given more than once"); }
    bool read = read_texts(reader);
    if (read) { reader->index = NO_INDEX; }
    return read;
}

static bool read_similarity(struct reader *reader)
{
    if (!lexer_take(&reader->lexer, '{')) { return fail_member(reader, "must be an object"); }
    if (!read_object(reader, read_similarity_member)) { return false; }
    return (reader->source && reader->call->text_count > 1) ||
           fail_member(reader, "must have `source_sentence` and `sentences`");
}

static bool read_count(struct reader *reader, uint32_t *count)
{
    const char *start = reader->lexer.at;
    uint64_t number = 0;
    bool whole = lexer_scalar(&reader->lexer) && decimal_parse(start, (size_t)(reader->lexer.at - start), &number) &&
                 number <= INT32_MAX;
    *count = (uint32_t)number;
    return (whole && number > 0) || fail_member(reader, "must be a whole number from 1 on");
}

static bool read_flag(struct reader *reader, signed char *flag)
{
    const char *start = reader->lexer.at;
    bool read = lexer_scalar(&reader->lexer) && (*start == 't' || *start == 'f');
    if (read) { *flag = *start == 't'; }
    return read || fail_member(reader, "must be true or false");
}

static bool fail_word(struct reader *reader)
{
    char what[256] = "must be ";
    for (int i = 0; reader->member->words[i]; i++) {
        size_t length = strlen(what);
        snprintf(what + length, sizeof what - length, "%s'%s'", i > 0 ? " or " : "", reader->member->words[i]);
    }
    return fail_member(reader, what);
}

/* Reads a word; `*number` is its place in the member's list. */
static bool read_word(struct reader *reader, int *number)
{
    struct slice word;
    if (!lexer_take(&reader->lexer, '"')) { return fail_word(reader); }
    if (!read_decoded(reader, &word)) { return false; }
    for (*number = 0; reader->member->words[*number]; ++*number) {
        if (slice_is(word, reader->member->words[*number])) { return true; }
    }
    return fail_word(reader);
}

static bool read_words(struct reader *reader, unsigned *bits)
{
    struct lexer *lexer = &reader->lexer;
    int number;
    if (!lexer_take(lexer, '[')) { return fail_member(reader, "must be a list"); }
    reader->index = 0;
    do {
        lexer_skip_space(lexer);
        if (!read_word(reader, &number)) { return false; }
        *bits |= 1u << number;
        lexer_skip_space(lexer);
        reader->index++;
    } while (lexer_take(lexer, ','));
    return lexer_take(lexer, ']') || fail_member(reader, "not JSON");
}

static bool read_text_or_name(struct reader *reader, struct slice *text)
{
    bool name = reader->member->kind == MEMBER_NAME;
    if (!lexer_take(&reader->lexer, '"')) { return fail_member(reader, "must be a string"); }
    if (!read_decoded(reader, text)) { return false; }
    if (name && text->length > CALL_NAME_MAX) { return fail_member(reader, "longer than any name"); }
    return name || text->length > 0 || fail_member(reader, "must not be empty");
}

/* Reads the messages of a chat. The worker, which knows the model's format, reads what is in them. */
static bool read_messages(struct reader *reader)
{
    struct slice messages = {NULL, 0};
    if (!read_value(reader, &messages)) { return false; }
    if (messages.bytes[0] != '[') { return fail_member(reader, "must be a list of messages"); }
    reader->call->chat = reader->call->single = true;
    return keep_text(reader, messages);
}

static bool read_number(struct reader *reader, struct slice *number)
{
    const char *start = reader->lexer.at;
    bool read = lexer_scalar(&reader->lexer) && !memchr("tfn", *start, 3);
    *number = (struct slice){start, (size_t)(reader->lexer.at - start)};
    return read || fail_member(reader, "must be a number");
}

/* A value that has these bytes apart from its blanks. */
static bool is_spelled(struct slice value, const char *word)
{
    for (size_t i = 0; i < value.length; i++) {
        if (memchr(" \t\r\n", value.bytes[i], 4)) { continue; }
        if (value.bytes[i] != *word++) { return false; }
    }
    return *word == '\0';
}

/* An empty list counts as not given. */
static bool read_stops(struct reader *reader, struct slice *stops)
{
    struct buffer *decoded = &reader->call->decoded;
    struct slice value = {NULL, 0};
    if (!read_value(reader, &value)) { return false; }
    if (value.bytes[0] == '[') {
        if (!is_spelled(value, "[]")) { *stops = value; }
        return true;
    }
    if (value.bytes[0] != '"') { return fail_member(reader, "must be a string or a list of strings"); }
    if (!reserve_decoded(reader)) { return false; }
    *stops = (struct slice){decoded->data + decoded->length, value.length + 2};
    buffer_string(decoded, "[");
    buffer_append(decoded, value.bytes, value.length);
    buffer_string(decoded, "]");
    return true;
}

static bool read_stream_options(struct reader *reader, signed char *usage)
{
    struct slice value = {NULL, 0}, flag = {"false", 5};
    if (!read_value(reader, &value)) { return false; }
    if (value.bytes[0] != '{') { return fail_member(reader, "must be an object"); }
    (void)json_member(value.bytes, value.length, "include_usage", &flag.bytes, &flag.length);
    *usage = is_spelled(flag, "true");
    return *usage || is_spelled(flag, "false") || is_spelled(flag, "null") ||
           fail_member(reader, "`include_usage` must be true or false");
}

static bool read_refused(struct reader *reader)
{
    const char *const *words = reader->member->words;
    char what[128];
    struct slice value = {NULL, 0};
    if (!read_value(reader, &value)) { return false; }
    bool harmless = is_spelled(value, "false");
    for (int i = 0; !harmless && words[i]; i++) { harmless = is_spelled(value, words[i]); }
    if (!words[0]) { return harmless || fail_member(reader, "not supported by this server"); }
    snprintf(what, sizeof what, "not supported by this server, except as %s", words[0]);
    return harmless || fail_member(reader, what);
}

/* Reads the value of a known member. */
static bool read_member(struct reader *reader)
{
    const struct member *member = reader->member;
    void *at = (char *)reader->call + member->offset;
    int number = 0;
    switch (member->kind) {
    case MEMBER_INPUT:
    case MEMBER_TEXTS:
    case MEMBER_SEQUENCES:
    case MEMBER_DOCUMENTS:
        return read_texts(reader);
    case MEMBER_SIMILARITY:
        return read_similarity(reader);
    case MEMBER_STRING:
    case MEMBER_NAME:
        return read_text_or_name(reader, at);
    case MEMBER_COUNT:
        return read_count(reader, at);
    case MEMBER_FLAG:
        return read_flag(reader, at);
    case MEMBER_WORD:
        if (!read_word(reader, &number)) { return false; }
        *(unsigned *)at = 1u << number;
        return true;
    case MEMBER_CHOICE:
        if (!read_word(reader, &number)) { return false; }
        *(signed char *)at = (signed char)number;
        return true;
    case MEMBER_CHECKED:
        return read_word(reader, &number);
    case MEMBER_WORDS:
        return read_words(reader, at);
    case MEMBER_MESSAGES:
        return read_messages(reader);
    case MEMBER_NUMBER:
        return read_number(reader, at);
    case MEMBER_STOPS:
        return read_stops(reader, at);
    case MEMBER_STREAM_OPTIONS:
        return read_stream_options(reader, at);
    default:
        return read_refused(reader);
    }
}

static bool is_null(const struct lexer *lexer)
{
    return lexer->end - lexer->at >= 4 && memcmp(lexer->at, "null", 4) == 0;
}

static bool read_body_member(struct reader *reader, struct slice name)
{
    struct call *call = reader->call;
    const struct dialect *dialect = call->dialect;
    size_t i = 0;
    while (i < dialect->member_count && !slice_is(name, dialect->members[i].name)) { i++; }
    if (i == dialect->member_count) { return skip_value(reader); }
    reader->member = &dialect->members[i];
    if ((reader->seen >> i & 1) != 0) { return fail_member(reader, "given more than once"); }
    reader->seen |= (uint64_t)1 << i;
    if (is_null(&reader->lexer) && !reader->member->required) {
        reader->lexer.at += 4;
    } else if (read_member(reader)) {
        call->given |= (uint64_t)1 << i;
    } else {
        return false;
    }
    reader->member = NULL;
    reader->index = NO_INDEX;
    return true;
}

static bool read_body(struct reader *reader)
{
    struct lexer *lexer = &reader->lexer;
    lexer_skip_space(lexer);
    if (!lexer_take(lexer, '{')) { return fail_member(reader, "not a JSON object"); }
    if (!read_object(reader, read_body_member)) { return false; }
    lexer_skip_space(lexer);
    return lexer->at == reader->end || fail_member(reader, "bytes after the JSON object");
}

bool body_parse(const struct dialect *dialect, const char *body, size_t length, struct call *call, struct fault *fault)
{
    *call = (struct call){.dialect = dialect,
                          .task = dialect->task,
                          .normalize = -1,
                          .truncate = -1,
                          .purpose = -1,
                          .special_tokens = -1};
    if (!body) { body = ""; } /* of length 0 */
    struct reader reader = {.lexer = {body, body + utf8_valid_prefix(body, length)},
                            .body = body,
                            .end = body + length,
                            .index = NO_INDEX,
                            .call = call,
                            .fault = fault};
    if (!read_body(&reader)) { return false; }
    for (size_t i = 0; i < dialect->member_count; i++) {
        const struct member *member = &dialect->members[i];
        if (member->required && (call->given >> i & 1) == 0) {
            return fault_set(fault, dialect, FAULT_BAD_REQUEST, member->name, "%s: missing", member->name);
        }
    }
    return !dialect->finish || dialect->finish(call, fault);
}
