#include "gateway/dialect.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/float_text.h"
#include "base/json.h"
#include "base/utf8.h"
#include "schedule/encodings.h"

/* The table. To add a dialect: its row here. */
const struct dialect *const dialects[] = {&openai_embeddings, &tei_root,         &tei_embed,     &tei_rerank,
                                          &tei_predict,       &cohere_rerank_v1, &cohere_rerank, &cohere_embed_v1,
                                          &cohere_embed,      &tei_similarity,   &tei_tokenize,  &openai_completions,
                                          &openai_chat};
const size_t dialect_count = sizeof dialects / sizeof dialects[0];

const struct dialect *dialect_find(const char *path)
{
    for (size_t i = 0; i < dialect_count; i++) {
        if (strcmp(path, dialects[i]->path) == 0) { return dialects[i]; }
    }
    return NULL;
}

const char *const number_fields[NUMBERS] = {"temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed"};

/* --- Calls and answers --- */

bool slice_is(struct slice slice, const char *text)
{
    return slice.length == strlen(text) && memcmp(slice.bytes, text, slice.length) == 0;
}

struct slice slice_last_part(struct slice name)
{
    const char *slash = name.length > 0 ? memrchr(name.bytes, '/', name.length) : NULL;
    return slash ? (struct slice){slash + 1, name.length - (size_t)(slash + 1 - name.bytes)} : name;
}

void call_free(struct call *call)
{
    free(call->texts);
    buffer_free(&call->decoded);
    *call = (struct call){0};
}

/* Finds a text in a JSON array of strings without escapes; case does not matter. */
static struct slice find_name(struct lexer lexer, const char *name)
{
    struct slice item;
    if (!lexer_take(&lexer, '[')) { return (struct slice){NULL, 0}; }
    while (lexer_take(&lexer, '"') && lexer_string(&lexer, &item.bytes, &item.length)) {
        if (item.length == strlen(name) && strncasecmp(item.bytes, name, item.length) == 0) { return item; }
        (void)lexer_take(&lexer, ',');
    }
    return (struct slice){NULL, 0};
}

void call_choose_prompt(struct call *call, struct slice facts)
{
    /* The names that sentence-transformers looks for, then those of models with more prompts. */
    static const char *const names[PURPOSES][5] = {
        [PURPOSE_DOCUMENT] = {"document", "passage", "corpus", "search_document"},
        [PURPOSE_QUERY] = {"query", "search_query"},
        [PURPOSE_CLASSIFICATION] = {"classification"},
        [PURPOSE_CLUSTERING] = {"clustering"},
    };
    struct slice prompts;
    if (call->purpose < 0 || call->purpose >= PURPOSES || call->prompt.length > 0 ||
        !json_member(facts.bytes, facts.length, "prompts", &prompts.bytes, &prompts.length)) {
        return;
    }
    for (int i = 0; names[call->purpose][i] && call->prompt.length == 0; i++) {
        call->prompt =
            find_name((struct lexer){prompts.bytes, prompts.bytes + prompts.length}, names[call->purpose][i]);
    }
}

void dialect_render(const struct call *call, const struct answer *answer, struct buffer *to)
{
    call->dialect->render(call, answer, to);
}

uint32_t answer_top(const struct call *call)
{
    return call->top_n > 0 && call->top_n < call->text_count ? call->top_n : call->text_count;
}

void answer_put_float(float value, struct buffer *to)
{
    char text[FLOAT_TEXT_MAX];
    buffer_append(to, text, float_text_put(text, value));
}

void answer_put_vector(const struct answer *answer, uint32_t i, bool base64, struct buffer *to)
{
    struct vector_run run = {.floats = answer->vectors + (size_t)i * answer->dim, .rows = 1, .dims = answer->dim};
    enum encoding encoding = base64 ? ENCODING_BASE64 : ENCODING_JSON;
    char *start = buffer_reserve(to, encoding_room(encoding, &run) + 2);
    if (!start) { return; }
    char *end = start;
    if (base64) { *end++ = '"'; }
    end = encoding_put(encoding, &run, end);
    if (base64) { *end++ = '"'; }
    to->length += (size_t)(end - start);
}

/* --- Faults --- */

static const struct fault_style *style_of(const struct dialect *dialect)
{
    return dialect ? dialect->faults : &openai_faults;
}

bool fault_set(struct fault *fault, const struct dialect *dialect, enum fault_kind kind, const char *param,
               const char *format, ...)
{
    /* The words of OpenAI where it has one. */
    static const char *const codes[FAULT_KINDS] = {
        [FAULT_BAD_REQUEST] = "invalid_value",
        [FAULT_TOO_LONG] = "context_length_exceeded",
        [FAULT_TOO_LARGE] = "too_large",
        [FAULT_NO_KEY] = "invalid_api_key",
        [FAULT_FORBIDDEN] = "forbidden",
        [FAULT_NOT_FOUND] = "not_found",
        [FAULT_NO_MODEL] = "model_not_found",
        [FAULT_WRONG_TASK] = "unsupported_task",
        [FAULT_CANCELLED] = "cancelled",
        [FAULT_POISON] = "poison",
        [FAULT_EXPIRED] = "expired",
        [FAULT_QUEUE_FULL] = "queue_full",
        [FAULT_RATE_LIMIT] = "rate_limit_exceeded",
        [FAULT_BACKEND] = "backend_failed",
        [FAULT_UNAVAILABLE] = "service_unavailable",
    };
    const struct fault_style *style = style_of(dialect);
    *fault = (struct fault){.kind = kind,
                            .status = style->kinds[kind].status,
                            .type = style->kinds[kind].type,
                            .code = codes[kind],
                            .param = param};
    va_list args;
    va_start(args, format);
    vsnprintf(fault->message, sizeof fault->message, format, args);
    va_end(args);
    utf8_mend(fault->message, sizeof fault->message);
    return false;
}

/* The kind of fault for each code of the protocol, by its name in replies; 500 and no blame of the client for those
 * that are not here. */
static enum fault_kind kind_of_code(struct slice code)
{
    static const struct {
        enum reply_code code;
        enum fault_kind kind;
    } kinds[] = {
        {CODE_BAD_REQUEST, FAULT_BAD_REQUEST}, {CODE_BAD_UTF8, FAULT_BAD_REQUEST},
        {CODE_BAD_ID, FAULT_BAD_REQUEST},      {CODE_TOO_LONG, FAULT_TOO_LONG},
        {CODE_TOO_LARGE, FAULT_TOO_LARGE},     {CODE_TOO_MANY_INPUTS, FAULT_TOO_LARGE},
        {CODE_WRONG_MODEL, FAULT_NO_MODEL},    {CODE_UNKNOWN_TASK, FAULT_WRONG_TASK},
        {CODE_EXPIRED, FAULT_EXPIRED},         {CODE_QUEUE_FULL, FAULT_QUEUE_FULL},
        {CODE_POISON, FAULT_POISON},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (slice_is(code, reply_code_name(kinds[i].code))) { return kinds[i].kind; }
    }
    return slice_is(code, "cancelled") ? FAULT_CANCELLED : FAULT_BACKEND;
}

/* The dialect's member at a place of struct call; NULL: it has none. */
static const char *member_at(const struct dialect *dialect, size_t offset)
{
    for (size_t i = 0; i < dialect->member_count; i++) {
        if (dialect->members[i].offset == offset) { return dialect->members[i].name; }
    }
    return NULL;
}

/* Cuts "<field>: " off a message if the dialect has a member for the field, at `offset`, and returns that; else NULL.
 */
static const char *cut_name(const struct dialect *dialect, const char *field, size_t offset, struct slice *message)
{
    size_t length = strlen(field);
    bool begins = message->length >= length + 2 && memcmp(message->bytes, field, length) == 0 &&
                  memcmp(message->bytes + length, ": ", 2) == 0;
    const char *name = begins ? member_at(dialect, offset) : NULL;
    if (name) { *message = (struct slice){message->bytes + length + 2, message->length - length - 2}; }
    return name;
}

/* Cuts "<field>: " off a worker's message, and returns the dialect's name of that field; NULL: it has no such member,
 * and the message stays. */
static const char *cut_field(const struct dialect *dialect, struct slice *message)
{
    bool generates = dialect->task == TASK_GENERATE;
    const struct {
        const char *field;
        size_t offset;
    } fields[] = {{"inputs", offsetof(struct call, texts)},
                  {"query", offsetof(struct call, query)},
                  {"dims", offsetof(struct call, dims)},
                  {"prompt", generates ? offsetof(struct call, texts) : offsetof(struct call, prompt)},
                  {"top_n", offsetof(struct call, top_n)},
                  {"normalize", offsetof(struct call, normalize)},
                  {"truncate", offsetof(struct call, truncate)},
                  {"model", offsetof(struct call, model)},
                  {"messages", offsetof(struct call, texts)},
                  {"max_tokens", offsetof(struct call, max_tokens)},
                  {"stops", offsetof(struct call, stops)}};
    const char *name = NULL;
    for (size_t i = 0; !name && i < sizeof fields / sizeof fields[0]; i++) {
        name = cut_name(dialect, fields[i].field, fields[i].offset, message);
    }
    for (size_t i = 0; !name && i < NUMBERS; i++) {
        name = cut_name(dialect, number_fields[i], offsetof(struct call, numbers) + i * sizeof(struct slice), message);
    }
    return name;
}

/* Cuts "text 3: " or "text 3 " off a worker's message. */
static void cut_index(struct slice *message)
{
    size_t at = strlen("text ");
    if (message->length <= at || memcmp(message->bytes, "text ", at) != 0) { return; }
    while (at < message->length && message->bytes[at] >= '0' && message->bytes[at] <= '9') { at++; }
    at += at < message->length && message->bytes[at] == ':';
    at += at < message->length && message->bytes[at] == ' ';
    *message = (struct slice){message->bytes + at, message->length - at};
}

void fault_from_reply(struct fault *fault, const struct call *call, struct slice code, struct slice message,
                      struct slice info, uint32_t first, uint32_t count)
{
    enum fault_kind kind = kind_of_code(code);
    uint64_t index, retry_after_ms;
    const char *param = cut_field(call->dialect, &message);
    const char *texts = member_at(call->dialect, offsetof(struct call, texts));
    if (json_member_number(info.bytes, info.length, "index", &index) || (count == 1 && param && param == texts)) {
        if (param) { cut_index(&message); }
        param = texts;
        /* The index is that of a list, as the caller wrote it. */
        if (call->single) {
            fault_set(fault, call->dialect, kind, param, "%s: %.*s", param, (int)message.length, message.bytes);
        } else {
            fault_set(fault, call->dialect, kind, param, "%s[%llu]: %.*s", param, (unsigned long long)(first + index),
                      (int)message.length, message.bytes);
        }
    } else if (param) {
        fault_set(fault, call->dialect, kind, param, "%s: %.*s", param, (int)message.length, message.bytes);
    } else {
        fault_set(fault, call->dialect, kind, NULL, "%.*s", (int)message.length,
                  message.length > 0 ? message.bytes : "");
    }
    if (json_member_number(info.bytes, info.length, "retry_after_ms", &retry_after_ms)) {
        fault->retry_after_ms = retry_after_ms < UINT32_MAX ? (unsigned)retry_after_ms : UINT32_MAX;
    }
}

void fault_put_headers(const struct fault *fault, struct buffer *headers)
{
    if (fault->retry_after_ms > 0) {
        buffer_format(headers, "Retry-After: %u\r\nretry-after-ms: %u\r\n", (fault->retry_after_ms - 1) / 1000 + 1,
                      fault->retry_after_ms);
    }
    if (fault->status == 401) { buffer_string(headers, "WWW-Authenticate: Bearer\r\n"); }
}

void dialect_render_fault(const struct dialect *dialect, const struct fault *fault, struct buffer *to)
{
    style_of(dialect)->put(fault, to);
}
