/* Carrying requests to a script and its verdicts back: settle, defer, and charge before a lonely run.
 *
 * One ACTION_SETTLE becomes script calls of at most 64 entries or 128 KiB, because a script blocks Redis while it runs;
 * when the last call is answered, the action is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/queue_private.h"

enum { CALL_ENTRIES = 64, CALL_BYTES = 128 << 10 };

/* One script call with the requests that are in it. */
struct batch_call {
    struct task *task;
    enum script script;
    struct request_list requests;
};

/* --- Calls and their answers -------------------------------------------------------------------------------------- */

static void answer_if_complete(struct task *task)
{
    if (task->calls > 0) {
        return;
    }
    if (task->failed) {
        queue_task_fail(task);
        return;
    }
    enum event_kind kind = task->action.kind == ACTION_CHARGE ? EVENT_CHARGED : EVENT_SETTLED;
    queue_task_done(task, &(struct event){.kind = kind, .requests = task->answered});
}

/* Puts the script's number for a request where the worker looks for it. */
static void take_result(struct queue *queue, enum script script, struct request *request, long long result)
{
    request->verdict = result <= 0 ? VERDICT_LATE : VERDICT_DONE;
    if (script == SCRIPT_CHARGE && result > 0) {
        request->lonely_runs = (uint32_t)result;
    }
    if (script == SCRIPT_SETTLE && result == 2) {
        queue->stats.newer_replies_kept++;
    }
    if (script == SCRIPT_DEFER && result == -2) {
        queue_vanished(queue, request->class, request->entry, request->name, request->id);
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

static void on_called(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct batch_call *call = context;
    struct task *task = call->task;
    struct queue *queue = task->queue;
    (void)lost;
    bool lost_link = !reply, refused = reply && queue_refused(queue, reply, script_sources[call->script].name);
    bool shaped = reply && reply->type == RESP_ARRAY && reply->count >= call->requests.count;
    size_t at = 0;
    struct request *request;
    while ((request = request_list_pop(&call->requests))) {
        if (shaped) {
            take_result(queue, call->script, request, reply->items[at++].integer);
        } else {
            request->verdict = VERDICT_AGAIN;
        }
        request_list_push(&task->answered, request);
    }
    if (shaped && call->script == SCRIPT_SETTLE) {
        take_counts(queue, reply, at);
    }
    task->failed = task->failed || lost_link || (!shaped && call->script == SCRIPT_CHARGE) ||
                   (refused && queue->state != QUEUE_UP);
    task->calls--;
    free(call);
    answer_if_complete(task);
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
    if (script == SCRIPT_SETTLE) {
        queue_write_settle(task->queue, &call->requests, &command);
    } else if (script == SCRIPT_DEFER) {
        queue_write_defer(task->queue, &call->requests, &command);
    } else {
        queue_write_charge(task->queue, &call->requests, &command);
    }
    task->calls++;
    if (!queue_call(task->queue, &command, on_called, call)) {
        task->calls--;
        task->failed = true;
        request_list_join(&task->answered, &call->requests);
        free(call);
    }
}

/* Cuts the requests into calls: one script and one stream each, and not too much at once. */
static void send_all(struct task *task, struct request_list *requests)
{
    struct request_list part[2] = {{0}}; /* settle, defer */
    static const enum script scripts[2] = {SCRIPT_SETTLE, SCRIPT_DEFER};
    size_t bytes = 0;
    struct request *request;
    while ((request = request_list_pop(requests))) {
        int which = request->outcome == OUTCOME_DEFER;
        size_t more = which ? 0 : request->reply.length;
        if (part[which].first && (part[which].count == CALL_ENTRIES || part[which].first->class != request->class ||
                                  (more && bytes + more > CALL_BYTES))) {
            send_call(task, scripts[which], &part[which]);
            bytes = which ? bytes : 0;
        }
        bytes += more;
        request_list_push(&part[which], request);
    }
    for (int which = 0; which < 2; which++) {
        if (part[which].first) {
            send_call(task, scripts[which], &part[which]);
        }
    }
}

static struct task *open_with_requests(struct queue *queue, struct action *action, struct request_list *requests)
{
    struct task *task = queue_task_open(queue, action);
    if (task) {
        *requests = action->requests;
        task->action.requests = (struct request_list){0};
    }
    action->requests = (struct request_list){0};
    return task;
}

void queue_settle(struct queue *queue, struct action *action)
{
    struct request_list requests;
    struct task *task = open_with_requests(queue, action, &requests);
    if (task) {
        send_all(task, &requests);
        answer_if_complete(task);
    }
}

void queue_charge(struct queue *queue, struct action *action)
{
    struct request_list requests;
    struct task *task = open_with_requests(queue, action, &requests);
    if (!task) {
        return;
    }
    if (requests.first) {
        send_call(task, SCRIPT_CHARGE, &requests);
    }
    answer_if_complete(task);
}
