/* Carrying requests to a script and its verdicts back: settle, defer, cancel, track, and charge before suspects run.
 *
 * One ACTION_SETTLE becomes script calls of at most 64 entries or 128 KiB, because a script blocks Redis while it runs;
 * when the last call is answered, the action is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/queue_parts.h"

enum { CALL_ENTRIES = 64, CALL_BYTES = 128 << 10 };

/* One script call with the requests that are in it. */
struct batch_call {
    struct task *task;
    enum script script;
    struct request_list requests;
};

/* --- Answers ------------------------------------------------------------------------------------------------------ */

static void answer_if_complete(struct task *task)
{
    if (task->calls > 0) {
        return;
    }
    if (task->failed) {
        queue_task_fail(task);
        return;
    }
    enum event_kind kind = task->action.kind == ACTION_CHARGE  ? EVENT_CHARGED
                           : task->action.kind == ACTION_TRACK ? EVENT_TRACKED
                                                               : EVENT_SETTLED;
    queue_task_done(task, &(struct event){.kind = kind, .requests = task->answered});
}

void queue_answered(struct task *task, struct request_list *requests)
{
    request_list_join(&task->answered, requests);
    task->calls--;
    answer_if_complete(task);
}

/* What a script's number for a request says; the numbers are those of the scripts' heads. */
static enum verdict verdict_of(enum script script, long long result)
{
    if (result > 0 || script == SCRIPT_TRACK) {
        return VERDICT_DONE;
    }
    switch (result) {
    case 0:
    case -1:
        return VERDICT_LATE;
    case -2:
        return VERDICT_GONE;
    case -3:
        return VERDICT_NOT_ITS_NAME;
    case -7:
        return VERDICT_LATER_FULL;
    case -8:
        return VERDICT_ALONE;
    case -5: /* not staged: queue_not_staged */
    default:
        return VERDICT_AGAIN;
    }
}

void queue_tell_refusals(struct queue *queue)
{
    if (queue->refusals_untold > 0) {
        log_info("requests_refused", log_str("queue", queue->options.name),
                 log_int("more", (int64_t)queue->refusals_untold));
    }
    queue->refusals_untold = queue->refusals_told = 0;
}

/* What did not end well, so that an operator can find it by the producer's own words. There may be many refusals: the
 * log tells of a few between two pulses, at level debug of all, and how many more there were. */
static enum log_level level_of(struct queue *queue, const struct request *request)
{
    enum { TOLD_MOST = 5 };
    if (request->outcome == OUTCOME_DEAD) {
        return LOG_WARN;
    }
    if (queue->refusals_told < TOLD_MOST) {
        queue->refusals_told++;
        return LOG_INFO;
    }
    queue->refusals_untold++;
    return LOG_DEBUG;
}

static void log_failure(struct queue *queue, const struct request *request)
{
    struct log_line line = {request->outcome == OUTCOME_DEAD ? "dead_letter" : "request_refused",
                            {log_str("entry", request->name), log_str("id", request->id),
                             log_str("code", reply_code_name(request->code)), log_str("message", request->message),
                             log_int("attempts", request->attempt)}};
    size_t next = 5;
    if (request->tenant[0]) {
        line.fields[next++] = log_str("tenant", request->tenant);
    }
    if (request->traceparent) {
        line.fields[next++] = log_bytes("traceparent", request->traceparent, request->traceparent_bytes);
    }
    log_write(level_of(queue, request), &line);
}

static void take_result(struct queue *queue, enum script script, struct request *request, long long result)
{
    request->verdict = verdict_of(script, result);
    if (script == SCRIPT_CHARGE && result > 0 && request->alone) {
        request->lonely_runs = (uint32_t)result;
    }
    if (script == SCRIPT_SETTLE && result == -5) {
        queue_not_staged(queue);
    }
    bool ours = request->verdict == VERDICT_DONE || (request->verdict == VERDICT_LATE && request->repeated);
    if (script == SCRIPT_SETTLE && ours) {
        queue_count(queue, request->class, request->outcome == OUTCOME_DONE ? CODE_NONE : (int)request->code);
    }
    queue->stats.newer_replies_kept += script == SCRIPT_SETTLE && result == 2;
    queue->stats.tracked_skipped += script == SCRIPT_TRACK && result == 0;
    if (script == SCRIPT_SETTLE && result == 1 && request->outcome == OUTCOME_GONE) {
        queue->stats.vanished++;
        log_warn("entry_vanished", log_str("entry", request->name));
    }
    if (script == SCRIPT_SETTLE && result > 0 &&
        (request->outcome == OUTCOME_ERROR || request->outcome == OUTCOME_DEAD)) {
        log_failure(queue, request);
    }
}

static void take_counts(struct queue *queue, const struct resp_value *reply, size_t at)
{
    if (reply->count != at + 2) {
        return;
    }
    queue->stats.side_keys_skipped += (uint64_t)reply->items[at].integer;
    queue->stats.dead_trimmed += (uint64_t)reply->items[at + 1].integer;
    if (reply->items[at].integer || reply->items[at + 1].integer) {
        log_warn("settle_side_effects", log_int("side_keys_skipped", reply->items[at].integer),
                 log_int("dead_letters_trimmed", reply->items[at + 1].integer));
    }
}

static bool is_numbers(const struct resp_value *reply)
{
    for (size_t i = 0; reply->type == RESP_ARRAY && i < reply->count; i++) {
        if (reply->items[i].type != RESP_INTEGER) {
            return false;
        }
    }
    return reply->type == RESP_ARRAY;
}

static void on_called(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct batch_call *call = context;
    struct task *task = call->task;
    struct queue *queue = task->queue;
    enum script script = call->script;
    (void)lost;
    bool refused = reply && queue_refused(queue, reply, script_sources[script].name);
    bool shaped = reply && is_numbers(reply) && reply->count >= call->requests.count;
    size_t at = 0;
    for (struct request *request = call->requests.first; request; request = request->next) {
        if (shaped) {
            take_result(queue, script, request, reply->items[at++].integer);
        } else {
            request->verdict = VERDICT_AGAIN;
        }
    }
    if (shaped && script == SCRIPT_SETTLE) {
        take_counts(queue, reply, at);
    }
    bool whole = script == SCRIPT_CHARGE || script == SCRIPT_TRACK; /* these are not answered one by one */
    task->failed = task->failed || !reply || (!shaped && whole) || (refused && queue->state != QUEUE_UP);
    struct request_list requests = call->requests;
    free(call);
    queue_answered(task, &requests);
}

/* --- Calls -------------------------------------------------------------------------------------------------------- */

static void write_call(const struct queue *queue, const struct batch_call *call, struct command *command)
{
    switch (call->script) {
    case SCRIPT_SETTLE:
        queue_write_settle(queue, &call->requests, command);
        break;
    case SCRIPT_DEFER:
        queue_write_defer(queue, &call->requests, command);
        break;
    case SCRIPT_TRACK:
        queue_write_track(queue, &call->requests, command);
        break;
    default:
        queue_write_charge(queue, &call->requests, command);
    }
}

/* Sends one call; when that fails, its requests come back with the action. */
static void send_call(struct task *task, enum script script, struct request_list *requests)
{
    struct command command = {0};
    struct batch_call *call = malloc(sizeof *call);
    if (!call) {
        request_list_join(&task->answered, requests);
        task->failed = true;
        return;
    }
    *call = (struct batch_call){task, script, *requests};
    *requests = (struct request_list){0};
    task->calls++;
    bool sent = script != SCRIPT_SETTLE || queue_stage(task->queue, &call->requests);
    if (sent) {
        write_call(task->queue, call, &command);
        sent = queue_call(task->queue, &command, on_called, call);
    }
    if (!sent) {
        task->calls--;
        task->failed = true;
        request_list_join(&task->answered, &call->requests);
        free(call);
    }
}

/* Requests on their way into one call: of one script and one stream, and not too much at once. */
struct part {
    enum script script;
    struct request_list requests;
    size_t bytes;
};

static void add_to_part(struct task *task, struct part *part, struct request *request)
{
    size_t bytes = part->script == SCRIPT_SETTLE ? request->reply.length : 0;
    const struct request *first = part->requests.first;
    if (first && (part->requests.count == CALL_ENTRIES || first->class != request->class ||
                  (bytes && part->bytes + bytes > CALL_BYTES))) {
        send_call(task, part->script, &part->requests);
        part->bytes = 0;
    }
    part->bytes += bytes;
    request_list_push(&part->requests, request);
}

static void send_part(struct task *task, struct part *part)
{
    if (part->requests.first) {
        send_call(task, part->script, &part->requests);
    }
}

/* --- Actions ------------------------------------------------------------------------------------------------------ */

/* Opens the action's task with its requests taken out. The task is held by a call of its own until all are sent. */
static struct task *open_with_requests(struct queue *queue, struct action *action, struct request_list *requests)
{
    struct task *task = queue_task_open(queue, action);
    if (task) {
        *requests = action->requests;
        task->action.requests = (struct request_list){0};
        task->calls = 1;
    }
    action->requests = (struct request_list){0};
    return task;
}

static void all_sent(struct task *task)
{
    queue_answered(task, &(struct request_list){0});
}

void queue_settle(struct queue *queue, struct action *action)
{
    struct request_list requests;
    struct part settle = {.script = SCRIPT_SETTLE}, defer = {.script = SCRIPT_DEFER};
    struct task *task = open_with_requests(queue, action, &requests);
    struct request *request;
    if (!task) {
        return;
    }
    while ((request = request_list_pop(&requests))) {
        if (request->outcome == OUTCOME_CANCEL) {
            queue_cancel(task, request);
        } else {
            add_to_part(task, request->outcome == OUTCOME_DEFER ? &defer : &settle, request);
        }
    }
    send_part(task, &settle);
    send_part(task, &defer);
    all_sent(task);
}

static void send_requests(struct queue *queue, struct action *action, enum script script)
{
    struct request_list requests;
    struct part part = {.script = script};
    struct task *task = open_with_requests(queue, action, &requests);
    struct request *request;
    if (!task) {
        return;
    }
    while ((request = request_list_pop(&requests))) {
        add_to_part(task, &part, request);
    }
    send_part(task, &part);
    all_sent(task);
}

void queue_charge(struct queue *queue, struct action *action)
{
    send_requests(queue, action, SCRIPT_CHARGE);
}

void queue_track(struct queue *queue, struct action *action)
{
    send_requests(queue, action, SCRIPT_TRACK);
}
