/* A request as a struct: made from an entry in one allocation (its rows and its copies of text and meta follow it),
 * moved in lists, freed once. For the meaning of fields see fields.c. */
#include "schedule/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/fields.h"
#include "schedule/reply.h"

static const struct {
    const char *name;
    bool retryable;
} codes[CODE_COUNT] = {
    [CODE_NONE] = {"none", false},
    [CODE_BAD_REQUEST] = {"bad_request", false},
    [CODE_BAD_UTF8] = {"bad_utf8", false},
    [CODE_BAD_ID] = {"bad_id", false},
    [CODE_TOO_LONG] = {"too_long", false},
    [CODE_TOO_LARGE] = {"too_large", false},
    [CODE_TOO_MANY_INPUTS] = {"too_many_inputs", false},
    [CODE_WRONG_MODEL] = {"wrong_model", false},
    [CODE_UNKNOWN_TASK] = {"unknown_task", false},
    [CODE_EXPIRED] = {"expired", false},
    [CODE_QUEUE_FULL] = {"queue_full", false},
    [CODE_OUT_OF_MEMORY] = {"out_of_memory", true},
    [CODE_DEVICE_LOST] = {"device_lost", true},
    [CODE_TIMEOUT] = {"timeout", true},
    [CODE_NON_FINITE] = {"non_finite", true},
    [CODE_INTERNAL] = {"internal", true},
    [CODE_POISON] = {"poison", false},
};

const char *reply_code_name(enum reply_code code)
{
    return codes[code].name;
}

const char *end_name(int end)
{
    return end == CODE_NONE ? "done" : end == END_CANCELLED ? "cancelled" : codes[end].name;
}

bool reply_code_retryable(enum reply_code code)
{
    return codes[code].retryable;
}

void request_list_push(struct request_list *list, struct request *request)
{
    request->next = NULL;
    if (!list->last) {
        list->first = request;
    } else {
        list->last->next = request;
    }
    list->last = request;
    list->count++;
}

struct request *request_list_pop(struct request_list *list)
{
    struct request *request = list->first;
    if (!request) {
        return NULL;
    }
    list->first = request->next;
    if (!list->first) {
        list->last = NULL;
    }
    list->count--;
    request->next = NULL;
    return request;
}

void request_list_join(struct request_list *list, struct request_list *more)
{
    if (!more->first) {
        return;
    }
    if (!list->last) {
        list->first = more->first;
    } else {
        list->last->next = more->first;
    }
    list->last = more->last;
    list->count += more->count;
    *more = (struct request_list){0};
}

PRINTF_LIKE(3, 0) static void fail(struct request *request, enum reply_code code, const char *format, va_list args)
{
    request->code = code;
    request->retryable = reply_code_retryable(code);
    vsnprintf(request->message, sizeof(request->message), format, args);
}

void request_fail(struct request *request, enum reply_code code, const char *format, ...)
{
    if (request->code != CODE_NONE) {
        return;
    }
    va_list args;
    va_start(args, format);
    fail(request, code, format, args);
    va_end(args);
}

void request_fail_row(struct request *request, uint32_t index, enum reply_code code, const char *format, ...)
{
    if (request->code != CODE_NONE) {
        return;
    }
    va_list args;
    va_start(args, format);
    fail(request, code, format, args);
    va_end(args);
    request->row_failed = request->inputs;
    request->failed_index = index;
}

void request_submitted(struct request *request, uint64_t ms)
{
    request->ahead = request->seen_ms != 0 && ms > request->seen_ms + AHEAD_MS;
    request->first_ms = request->ahead ? request->seen_ms : ms;
}

void request_disown(struct request *request)
{
    char borrowed[REQUEST_NAME_MAX];
    memcpy(borrowed, request->name, sizeof(borrowed));
    request_name_format(request->class, request->entry, request->name);
    if (strcmp(request->id, borrowed) == 0) {
        memcpy(request->id, request->name, sizeof(request->name));
    }
    request->borrowed_name = false;
    request_submitted(request, request->entry.ms);
    request->attempt = 1;
    request->quarantine_runs = 0;
}

static void set_defaults(struct request *request, const struct request_rules *rules, const struct entry *entry)
{
    request->class = entry->class;
    request->entry = entry->id;
    request->origin = entry->origin;
    request->quarantine_runs = entry->quarantine_runs;
    request->quarantined = entry->quarantine_runs > 0 || entry->group_run;
    request->suspect = request->quarantined || entry->origin == ORIGIN_RECLAIMED;
    request->urgent = entry->urgent;
    request->unread = entry->unread;
    request_name_format(entry->class, entry->id, request->name);
    memcpy(request->id, request->name, sizeof(request->name));
    request->seen_ms = entry->redis_ms;
    request_submitted(request, entry->id.ms);
    request->encoding = rules->encoding;
    request->ttl_s = rules->default_ttl_s;
    request->max_attempts = rules->default_max_attempts;
    request->attempt = 1;
    request->truncate = rules->truncate;
    request->dim = request->dims = rules->dim;
    request->normalize = rules->normalize;
    request->max_tokens = rules->max_tokens;
}

/* What the request will weigh until it ends. Tokens are a guess: an English word piece has about four bytes. Bytes are
 * a bound: apart from the special tokens, a text has no more tokens than bytes. */
static void estimate(struct request *request, size_t allocated)
{
    enum { BYTES_PER_TOKEN = 4, SPECIAL = 2 };
    size_t ids = 0;
    request->bytes = allocated;
    if (request->code != CODE_NONE) {
        return;
    }
    for (uint32_t i = 0; i < request->row_count; i++) {
        size_t bytes = request->rows[i].text_bytes + (size_t)request->prompt_bytes, most = request->max_tokens;
        request->tokens +=
            (uint32_t)(bytes / BYTES_PER_TOKEN + SPECIAL < most ? bytes / BYTES_PER_TOKEN + SPECIAL : most);
        ids += bytes + SPECIAL < most ? bytes + SPECIAL : most;
    }
    size_t floats = (size_t)request->row_count * request->dim;
    request->work_bytes = ids * sizeof(int32_t) + floats * sizeof(float) + reply_bound(request);
    request->bytes += request->work_bytes;
}

/* What is wrong with an entry regardless of its fields. */
static void judge_entry(struct request *request, const struct entry *entry, const struct fields *fields)
{
    if (entry->vanished) {
        request_fail(request, CODE_INTERNAL, "its message was deleted from the stream");
    } else if (entry->oversize) {
        request_fail(request, CODE_TOO_LARGE, "the entry is larger than this worker reads");
    } else if (entry->unread) {
        request_fail(request, CODE_POISON, "every worker that took it over died before it was read");
    } else if (entry->origin == ORIGIN_SHED && !fields_cancel(fields)) {
        request_fail(request, CODE_QUEUE_FULL, "more requests wait than the queue takes; try again later");
    }
}

struct request *request_parse(const struct request_rules *rules, const struct entry *entry, uint64_t now_ns)
{
    struct fields fields;
    fields_collect(&fields, entry, rules);
    uint32_t row_count = fields_rows(&fields);
    size_t head = sizeof(struct request) + row_count * sizeof(struct row);
    size_t size = head + fields_copied_bytes(&fields, rules);
    struct request *request = malloc(size);
    if (!request) {
        return NULL;
    }
    memset(request, 0, head);
    request->rows = (struct row *)(request + 1);
    request->row_count = request->rows_left = row_count;
    for (uint32_t i = 0; i < row_count; i++) {
        request->rows[i].request = request;
    }
    request->received_ns = now_ns;
    request->unknown_fields = fields.unknown;
    set_defaults(request, rules, entry);
    judge_entry(request, entry, &fields);
    fields_apply(&fields, rules, request, (char *)request + head);
    estimate(request, size);
    return request;
}

void request_free(struct request *request)
{
    if (!request) {
        return;
    }
    buffer_free(&request->reply);
    free(request->work);
    free(request);
}
