/* A request as a struct: moved in lists, failed, freed once. fields.c makes it from an entry. */
#include "schedule/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

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
    if (!request) { return NULL; }
    list->first = request->next;
    if (!list->first) { list->last = NULL; }
    list->count--;
    request->next = NULL;
    return request;
}

void request_list_join(struct request_list *list, struct request_list *more)
{
    if (!more->first) { return; }
    if (!list->last) {
        list->first = more->first;
    } else {
        list->last->next = more->first;
    }
    list->last = more->last;
    list->count += more->count;
    *more = (struct request_list){0};
}

PRINTF_LIKE(3, 0)
static void set_failure(struct request *request, enum reply_code code, const char *format, va_list args)
{
    request->retry.code = code;
    request->retry.retryable = reply_code_retryable(code);
    vsnprintf(request->retry.message, sizeof(request->retry.message), format, args);
    utf8_mend(request->retry.message, sizeof(request->retry.message));
}

void request_fail(struct request *request, enum reply_code code, const char *format, ...)
{
    if (request->retry.code != CODE_NONE) { return; }
    va_list args;
    va_start(args, format);
    set_failure(request, code, format, args);
    va_end(args);
}

void request_fail_row(struct request *request, uint32_t index, enum reply_code code, const char *format, ...)
{
    if (request->retry.code != CODE_NONE) { return; }
    va_list args;
    va_start(args, format);
    set_failure(request, code, format, args);
    va_end(args);
    request->retry.row_failed = request->inputs;
    request->retry.failed_index = index;
}

void request_submitted(struct request *request, uint64_t ms)
{
    request->identity.ahead = request->identity.seen_ms != 0 && ms > request->identity.seen_ms + AHEAD_MS;
    request->identity.first_ms = request->identity.ahead ? request->identity.seen_ms : ms;
}

void request_disown(struct request *request)
{
    char borrowed[REQUEST_NAME_MAX];
    memcpy(borrowed, request->identity.name, sizeof(borrowed));
    request_name_format(request->identity.class, request->identity.entry, request->identity.name);
    if (strcmp(request->identity.id, borrowed) == 0) {
        memcpy(request->identity.id, request->identity.name, sizeof(request->identity.name));
    }
    request->identity.borrowed_name = false;
    request_submitted(request, request->identity.entry.ms);
    request->retry.attempt = 1;
    request->retry.quarantine_runs = 0;
}

void request_free(struct request *request)
{
    if (!request) { return; }
    buffer_free(&request->output.reply);
    if (request->writing) {
        buffer_free(&request->writing->text);
        token_stream_drop(request->writing->stream);
        buffer_free(&request->writing->logprobs);
    }
    free(request->work);
    free(request);
}
