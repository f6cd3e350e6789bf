#include "gateway/request_fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

#include "base/json.h"

enum { TIMEOUT_MS = 600000 };

static char *copy_text(const char *text)
{
    return text ? strdup(text) : NULL;
}

void wishes_free(struct wishes *wishes)
{
    free(wishes->tenant);
    free(wishes->traceparent);
    free(wishes->tracestate);
    *wishes = (struct wishes){0};
}

bool wishes_read(struct wishes *wishes, const struct call *call, const struct http_request *request, bool async,
                 const char *tenant, struct fault *fault)
{
    const struct dialect *dialect = call->dialect;
    const char *priority = http_header(request, "X-Sluice-Priority");
    const char *timeout = http_header(request, "X-Sluice-Timeout"), *end = timeout;
    *wishes = (struct wishes){.class = CLASS_NORMAL,
                              .timeout_ms = async ? JOB_TIMEOUT_MS : TIMEOUT_MS,
                              .tenant = copy_text(tenant ? tenant : http_header(request, "X-Sluice-Tenant")),
                              .traceparent = copy_text(http_header(request, "traceparent")),
                              .tracestate = copy_text(http_header(request, "tracestate"))};
    if (tenant && !wishes->tenant) {
        return fault_set(fault, dialect, FAULT_UNAVAILABLE, NULL, "no memory for a call");
    }
    if (priority) {
        int class = 0;
        while (class < CLASS_COUNT && strcasecmp(priority, class_names[class]) != 0) { class ++; }
        if (class == CLASS_COUNT) {
            return fault_set(fault, dialect, FAULT_BAD_REQUEST, NULL, "X-Sluice-Priority is high, normal or low");
        }
        wishes->class = (enum request_class) class;
    }
    /* The clients of OpenAI and others say how long they wait: of an answer in parts, for each. */
    if (!timeout && !async && !call->stream) { timeout = http_header(request, "x-stainless-read-timeout"); }
    if (timeout) {
        char *after;
        double seconds = strtod(timeout, &after);
        end = after;
        bool good = end != timeout && *end == '\0' && seconds > 0 && seconds <= CALL_TIMEOUT_MOST_S;
        if (good) { wishes->timeout_ms = (uint64_t)(seconds * 1000) + (seconds < 0.001); }
        if (!good && http_header(request, "X-Sluice-Timeout")) {
            return fault_set(fault, dialect, FAULT_BAD_REQUEST, NULL, "X-Sluice-Timeout is seconds, up to %d",
                             (int)CALL_TIMEOUT_MOST_S);
        }
    }
    return true;
}

static void add_field(struct request_fields *fields, const char *name, const char *value, size_t length)
{
    fields->items[fields->count++] = (struct entry_field){name, strlen(name), value, length};
}

static void add_text(struct request_fields *fields, const char *name, const char *value)
{
    if (value) { add_field(fields, name, value, strlen(value)); }
}

void put_request_texts(const struct call *call, uint32_t first, uint32_t count, struct buffer *to)
{
    const struct slice *text = &call->texts[first];
    if (call->chat) {
        buffer_append(to, text->bytes, text->length);
    } else if (call->task == TASK_GENERATE) {
        (void)buffer_json_decode(to, text->bytes + 1, text->length - 2);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            buffer_append(to, i == 0 ? "[" : ",", 1);
            buffer_append(to, text[i].bytes, text[i].length);
        }
        buffer_append(to, "]", 1);
    }
}

/* A request that is sent again has the same id and another name: without a seed it would write another text. */
static void add_writing(const struct call *call, const char *id, struct request_fields *fields)
{
    snprintf(fields->max_tokens, sizeof fields->max_tokens, "%u", call->max_tokens);
    add_text(fields, "max_tokens", fields->max_tokens);
    for (int i = 0; i < NUMBERS; i++) {
        const struct slice *number = &call->numbers[i];
        if (number->length > 0) { add_field(fields, number_fields[i], number->bytes, number->length); }
    }
    if (call->numbers[NUMBER_SEED].length == 0) {
        snprintf(fields->seed, sizeof fields->seed, "%" PRIu64, XXH3_64bits(id, strlen(id)) >> 1);
        add_text(fields, number_fields[NUMBER_SEED], fields->seed);
    }
    if (call->stops.length > 0) { add_field(fields, "stops", call->stops.bytes, call->stops.length); }
}

void fill_request_fields(const struct call *call, const struct wishes *wishes, const char *id,
                         const struct buffer *texts, bool async, struct request_fields *fields)
{
    fields->count = 0;
    add_field(fields,
              call->chat                    ? "messages"
              : call->task == TASK_GENERATE ? "prompt"
                                            : "inputs",
              texts->data, texts->length);
    if (call->task == TASK_GENERATE) { add_writing(call, id, fields); }
    if (call->task != TASK_EMBED) { add_text(fields, "task", task_names[call->task]); }
    if (call->task == TASK_EMBED || call->task == TASK_RERANK) { add_text(fields, "encoding", "f32"); }
    if (call->special_tokens >= 0) { add_text(fields, "special_tokens", call->special_tokens ? "1" : "0"); }
    if (call->task == TASK_RERANK) { add_field(fields, "query", call->query.bytes, call->query.length); }
    if (call->raw > 0) { add_text(fields, "raw", "1"); }
    if (call->normalize >= 0) { add_text(fields, "normalize", call->normalize ? "1" : "0"); }
    if (call->truncate >= 0) { add_text(fields, "truncate", call->truncate ? "1" : "0"); }
    if (call->prompt.length > 0) { add_field(fields, "prompt", call->prompt.bytes, call->prompt.length); }
    if (call->dims > 0) {
        snprintf(fields->dims, sizeof fields->dims, "%u", call->dims);
        add_text(fields, "dims", fields->dims);
    }
    add_text(fields, "tenant", wishes->tenant);
    add_text(fields, "traceparent", wishes->traceparent);
    add_text(fields, "tracestate", wishes->tracestate);
    if (async) {
        job_put_meta(call, fields->meta);
        add_text(fields, "meta", fields->meta);
    }
}
