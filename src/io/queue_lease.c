/* The small chores: the lease, what is due again, ids ahead of the clock, and ending a blocked read. */
#include <stdio.h>

#include "base/log.h"
#include "io/queue_parts.h"

static void on_renewed(void *context, const struct resp_value *reply, const struct err *err)
{
    struct task *task = context;
    (void)err;
    if (!reply || queue_refused(task->queue, reply, "lua/renew")) {
        queue_task_fail(task);
        return;
    }
    bool held = reply->type == RESP_INTEGER && reply->integer == 1;
    queue_task_done(task, &(struct event){.kind = EVENT_LEASE, .lease_held = held});
}

void queue_renew(struct queue *queue, struct action *action)
{
    struct task *task = queue_task_open(queue, action);
    if (!task) {
        return;
    }
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_RENEW, 1, &command);
    queue_add_key(queue, &command, "alive:", queue->worker);
    command_text(&command, queue->token);
    command_number(&command, queue->options.lease_ms);
    if (!queue_call(queue, &command, on_renewed, task)) {
        queue_task_fail(task);
    }
}

static void on_promoted(void *context, const struct resp_value *reply, const struct err *err)
{
    struct task *task = context;
    (void)err;
    if (!reply || queue_refused(task->queue, reply, "lua/promote") || reply->type != RESP_ARRAY || reply->count < 2 ||
        reply->items[1].type != RESP_INTEGER) {
        queue_task_fail(task);
        return;
    }
    long long wait = reply->items[1].integer;
    if (reply->count > 2 && reply->items[2].integer > 0) {
        task->queue->stats.promoted_broken += (uint64_t)reply->items[2].integer;
        log_warn("parked_requests_broken", log_int("requests", reply->items[2].integer));
    }
    queue_task_done(task, &(struct event){.kind = EVENT_PROMOTED,
                                          .promoted.next_due_in_ms = wait < 0 ? UINT64_MAX : (uint64_t)wait});
}

void queue_promote(struct queue *queue, struct action *action)
{
    enum { PROMOTE_MAX = 100 };
    struct task *task = queue_task_open(queue, action);
    if (!task) {
        return;
    }
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_PROMOTE, 3 + CLASS_COUNT, &command);
    queue_add_key(queue, &command, "later", "");
    queue_add_key(queue, &command, "later:data", "");
    queue_add_key(queue, &command, "trouble", "");
    for (int class = 0; class < CLASS_COUNT; class ++) {
        queue_add_stream(queue, &command, (enum request_class) class);
    }
    command_number(&command, PROMOTE_MAX);
    if (!queue_call(queue, &command, on_promoted, task)) {
        queue_task_fail(task);
    }
}

/* Said once for a repair, however many calls it takes: when it is done. */
static void on_mended(void *context, const struct resp_value *reply, const struct err *err)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    (void)err;
    bool ok = reply && !queue_refused(queue, reply, "lua/mend") && reply->type == RESP_ARRAY && reply->count == 3;
    for (size_t i = 0; ok && i < reply->count; i++) {
        ok = reply->items[i].type == RESP_INTEGER;
    }
    if (!ok) {
        queue_task_fail(task);
        return;
    }
    long long moved = reply->items[0].integer, streams = reply->items[1].integer;
    queue->stats.mended_entries += (uint64_t)moved;
    queue->stats.mended_streams += (uint64_t)streams;
    queue->mending_entries += (uint64_t)moved;
    if (streams > 0) {
        log_warn("ids_ahead", log_str("reason", "a producer has sent entries with ids of times to come"),
                 log_int("entries_moved", (int64_t)queue->mending_entries), log_int("streams_set_back", streams));
        queue->mending_entries = 0;
    }
    queue_task_done(
        task, &(struct event){.kind = EVENT_MENDED,
                              .mended = {.changed = moved > 0 || streams > 0, .more = reply->items[2].integer != 0}});
}

void queue_mend(struct queue *queue, struct action *action)
{
    enum { MEND_ENTRIES = 64, MEND_BYTES = 1024 * 1024 };
    static const char *const keys[] = {"later", "later:data", "trouble", "meta"};
    struct task *task = queue_task_open(queue, action);
    if (!task) {
        return;
    }
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_MEND, sizeof keys / sizeof keys[0] + CLASS_COUNT, &command);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        queue_add_key(queue, &command, keys[i], "");
    }
    for (int class = 0; class < CLASS_COUNT; class ++) {
        queue_add_stream(queue, &command, (enum request_class) class);
    }
    command_number(&command, MEND_ENTRIES);
    command_number(&command, MEND_BYTES);
    if (!queue_call(queue, &command, on_mended, task)) {
        queue_task_fail(task);
    }
}

static void on_unblocked(void *context, const struct resp_value *reply, const struct err *err)
{
    (void)err;
    if (reply) {
        queue_refused(context, reply, "CLIENT UNBLOCK");
    }
}

void queue_unblock(struct queue *queue)
{
    char id[24];
    struct err err;
    snprintf(id, sizeof id, "%lld", queue->reader_id);
    const char *const words[] = {"CLIENT", "UNBLOCK", id};
    if (queue->state == QUEUE_UP && connection_command(queue->writer, 3, words, NULL, queue->options.command_timeout_ms,
                                                       on_unblocked, queue, &err)) {
        return; /* then the read blocks until its time is over: late, not wrong */
    }
}
