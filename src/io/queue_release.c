/* Giving entries back at a shutdown, and the answer for an entry whose message is gone. */
#include <stdio.h>

#include "base/log.h"
#include "io/queue_private.h"

enum { RELEASE_ENTRIES = 500, VANISHED_TTL_MS = 3600 * 1000 };

/* --- RELEASE ------------------------------------------------------------------------------------------------------ */

static void on_released(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct task *task = context;
    (void)lost;
    bool ok = reply && !queue_refused(task->queue, reply, "lua/release");
    task->failed = task->failed || !ok;
    if (--task->calls > 0) {
        return;
    }
    if (task->failed) {
        queue_task_fail(task);
    } else {
        queue_task_done(task, &(struct event){.kind = EVENT_RELEASED, .requests = task->action.requests});
    }
}

/* Sends one call for at most RELEASE_ENTRIES requests from `*next` on, and moves `*next` behind them. */
static bool send_release(struct task *task, const struct request **next)
{
    static const char *const prefixes[CLASS_COUNT] = {"high:", "", "low:"};
    struct queue *queue = task->queue;
    struct command command = {0};
    const struct request *request = *next;
    enum request_class class = request ? request->class : CLASS_NORMAL;
    const struct request *end = request;
    unsigned count = 0;
    while (end && end->class == class && count++ < RELEASE_ENTRIES) {
        end = end->next;
    }
    script_begin(&queue->scripts, SCRIPT_RELEASE, 4, &command);
    queue_add_stream(queue, &command, class);
    queue_add_key(queue, &command, "alive:", queue->worker);
    queue_add_key(queue, &command, "trouble", "");
    queue_add_key(queue, &command, "workers", "");
    command_text(&command, queue->worker);
    command_text(&command, queue->token);
    command_text(&command, task->action.last && !end ? "2" : "0");
    command_text(&command, prefixes[class]);
    for (; request != end; request = request->next) {
        queue_add_entry_id(&command, request->entry);
    }
    *next = end;
    task->calls++;
    if (!queue_call(queue, &command, on_released, task)) {
        task->calls--;
        return false;
    }
    return true;
}

void queue_release(struct queue *queue, struct action *action)
{
    struct task *task = queue_task_open(queue, action);
    if (!task) {
        return;
    }
    const struct request *next = action->requests.first;
    bool sent = next || action->last;
    if (sent) {
        do {
            sent = send_release(task, &next);
        } while (sent && next);
        task->failed = !sent;
    }
    if (task->calls == 0 && task->failed) {
        queue_task_fail(task);
    } else if (task->calls == 0) {
        queue_task_done(task, &(struct event){.kind = EVENT_RELEASED, .requests = task->action.requests});
    }
}

/* --- Vanished ----------------------------------------------------------------------------------------------------- */

static void on_vanished(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct queue *queue = context;
    (void)lost;
    if (reply && !queue_refused(queue, reply, "lua/settle") && reply->type == RESP_ARRAY && reply->count >= 1 &&
        reply->items[0].integer > 0) {
        queue->stats.vanished++;
    }
}

void queue_vanished(struct queue *queue, enum request_class class, struct entry_id id, const char *name,
                    const char *reply_id)
{
    static const char *const fields[] = {"code",      "internal", "message",  "its message was deleted from the stream",
                                         "retryable", "1",        "attempts", "0"};
    if (queue->state != QUEUE_UP) {
        return; /* it is still pending and will be found again */
    }
    log_warn("entry_vanished", log_str("entry", name));
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_SETTLE, 5, &command);
    queue_add_stream(queue, &command, class);
    queue_add_key(queue, &command, "trouble", "");
    queue_add_key(queue, &command, "dead", "");
    queue_add_key(queue, &command, "results", "");
    queue_add_key(queue, &command, "reply:", reply_id);
    command_text(&command, queue->worker);
    command_text(&command, queue->options.model_name);
    command_text(&command, queue->options.revision);
    command_number(&command, 1);
    queue_add_entry_id(&command, id);
    command_list(&command, 2, (const char *const[]){"gone", name}, NULL);
    command_number(&command, VANISHED_TTL_MS);
    command_list(&command, 5, (const char *const[]){"0", "0", "0", "0", "8"}, NULL);
    command_list(&command, 8, fields, NULL);
    if (!queue_call(queue, &command, on_vanished, queue)) {
        return;
    }
}
