/* Taking entries: new ones, our own after a reconnect, those of workers that are gone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/queue_private.h"

enum { RECLAIM_MAX = 128, JUDGED_MAX = 128 };

static enum read_source source_of(const struct task *task)
{
    return task->action.kind == ACTION_READ ? READ_NEW : task->action.kind == ACTION_READ_OWN ? READ_OWN : READ_RECLAIM;
}

/* Answers the task with what queue->entries holds; vanished entries are answered here. */
static void deliver(struct task *task, bool more)
{
    struct queue *queue = task->queue;
    struct event event = {.kind = EVENT_ENTRIES};
    event.entries.source = source_of(task);
    event.entries.entries = queue->entries.items;
    event.entries.count = queue->entries.count;
    event.entries.more = more;
    event.entries.last = queue->entries.last;
    for (size_t i = 0; i < queue->entries.vanished_count; i++) {
        char name[REQUEST_NAME_MAX];
        request_name_format(CLASS_NORMAL, queue->entries.vanished[i], name);
        queue_vanished(queue, CLASS_NORMAL, queue->entries.vanished[i], name, name);
    }
    queue_task_end(task);
    queue_deliver_now(queue, &event);
}

static void deliver_nothing(struct task *task)
{
    struct event event = {.kind = EVENT_ENTRIES};
    event.entries.source = source_of(task);
    queue_task_done(task, &event);
}

/* An answer that cannot be read: the peer is not the Redis that we know. */
static void give_up(struct task *task, const struct err *err)
{
    struct queue *queue = task->queue;
    queue_task_fail(task);
    queue_down(queue, err);
}

/* --- READ and READ_OWN -------------------------------------------------------------------------------------------- */

static void on_entries(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    bool own = task->action.kind == ACTION_READ_OWN;
    struct err err;
    (void)lost;
    if (!reply || queue_refused(queue, reply, "XREADGROUP")) {
        queue_task_fail(task);
        return;
    }
    if (entries_from_read(&queue->entries, reply, CLASS_NORMAL, own ? ORIGIN_OWN : ORIGIN_NEW, &err)) {
        give_up(task, &err);
        return;
    }
    bool more = own && queue->entries.given == task->asked;
    if (own && !more) {
        queue->own_count = 0;
    }
    deliver(task, more);
}

static enum status send_read(struct queue *queue, const struct task *task, uint32_t count, const char *from,
                             struct err *err)
{
    uint32_t block_ms = task->action.kind == ACTION_READ ? task->action.read.block_ms : 0;
    struct command command = {0};
    const char *bytes;
    size_t length;
    command_list(&command, 4, (const char *const[]){"XREADGROUP", "GROUP", QUEUE_GROUP, queue->worker}, NULL);
    command_text(&command, "COUNT");
    command_number(&command, count);
    if (block_ms) {
        command_text(&command, "BLOCK");
        command_number(&command, block_ms);
    }
    command_text(&command, "STREAMS");
    queue_add_stream(queue, &command, CLASS_NORMAL);
    command_text(&command, from);
    enum status status = command_finish(&command, &bytes, &length, err);
    if (!status) {
        status =
            link_send(queue->reader, bytes, length, block_ms + READ_GRACE_MS, on_entries, (void *)(uintptr_t)task, err);
    }
    command_free(&command);
    return status;
}

void queue_read(struct queue *queue, struct action *action)
{
    struct err err;
    struct task *task = queue_task_open(queue, action);
    if (task && send_read(queue, task, action->read.count ? action->read.count : 1, ">", &err)) {
        queue_task_fail(task);
    }
}

/* The id of the entry that is too large to be read even alone: XPENDING knows it without its fields. */
static void on_large_id(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    struct err err;
    (void)lost;
    if (!reply || queue_refused(queue, reply, "XPENDING")) {
        queue_task_fail(task);
        return;
    }
    struct entry entry = {.class = CLASS_NORMAL, .origin = ORIGIN_OWN, .oversize = true};
    if (reply->type != RESP_ARRAY ||
        (reply->count &&
         (reply->items[0].type != RESP_ARRAY || reply->items[0].count < 1 ||
          !entry_id_parse(reply->items[0].items[0].bytes, reply->items[0].items[0].length, &entry.id)))) {
        err_set(&err, STATUS_BAD_INPUT, "XPENDING answered in an unknown shape");
        give_up(task, &err);
        return;
    }
    if (reply->count == 0) { /* it went away: the next answer that is too large is about others */
        queue->own_count = 0;
        deliver_nothing(task);
        return;
    }
    struct event event = {.kind = EVENT_ENTRIES};
    event.entries.source = READ_OWN;
    event.entries.entries = &entry;
    event.entries.count = 1;
    event.entries.more = true;
    event.entries.last = entry.id;
    queue_task_end(task);
    queue_deliver_now(queue, &event);
}

static enum status find_large(struct queue *queue, struct task *task, const char *after, struct err *err)
{
    char key[QUEUE_KEY_MAX], from[ENTRY_ID_TEXT + 1];
    snprintf(from, sizeof from, "(%s", after);
    queue->own_oversize = false;
    const char *const words[] = {"XPENDING",   queue_stream(queue, CLASS_NORMAL, key), QUEUE_GROUP, from, "+", "1",
                                 queue->worker};
    return link_command(queue->writer, 7, words, NULL, queue->options.command_timeout_ms, on_large_id, task, err);
}

void queue_read_own(struct queue *queue, struct action *action)
{
    char after[ENTRY_ID_TEXT];
    struct err err;
    struct task *task = queue_task_open(queue, action);
    if (!task) {
        return;
    }
    entry_id_format(action->read.after, after);
    uint32_t count = action->read.count ? action->read.count : 1;
    task->asked = queue->own_count && queue->own_count < count ? queue->own_count : count;
    enum status status =
        queue->own_oversize ? find_large(queue, task, after, &err) : send_read(queue, task, task->asked, after, &err);
    if (status) {
        queue_task_fail(task);
    }
}

/* --- RECLAIM ------------------------------------------------------------------------------------------------------ */

static void on_reclaimed(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    struct err err;
    bool more;
    (void)lost;
    if (!reply || queue_refused(queue, reply, "lua/reclaim")) {
        queue_task_fail(task);
    } else if (entries_from_reclaim(&queue->entries, reply, CLASS_NORMAL, &more, &err)) {
        give_up(task, &err);
    } else {
        deliver(task, more);
    }
}

static bool is_other(const struct queue *queue, const struct resp_value *name)
{
    return name->type == RESP_STRING && name->length < QUEUE_WORKER_MAX && !resp_equals(name, queue->worker) &&
           !resp_equals(name, QUEUE_RELEASED);
}

/* Calls lua/reclaim for `released` and for at most JUDGED_MAX consumers out of those that XINFO named (NULL: none). */
static bool call_reclaim(struct task *task, const struct resp_value *consumers)
{
    struct queue *queue = task->queue;
    const char *names[JUDGED_MAX + 1] = {QUEUE_RELEASED};
    size_t count = 1, total = consumers ? consumers->count : 0, start = total ? queue->judge_offset % total : 0;
    size_t seen = 0;
    for (; seen < total && count <= JUDGED_MAX; seen++) {
        const struct resp_value *consumer = &consumers->items[(start + seen) % total];
        if (consumer->type == RESP_ARRAY && consumer->count >= 2 && is_other(queue, &consumer->items[1])) {
            names[count++] = consumer->items[1].bytes;
        }
    }
    queue->judge_offset = start + seen;
    uint32_t limit = task->action.read.count;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_RECLAIM, 2 + count, &command);
    queue_add_stream(queue, &command, CLASS_NORMAL);
    queue_add_key(queue, &command, "trouble", "");
    for (size_t i = 0; i < count; i++) {
        queue_add_key(queue, &command, "alive:", names[i]);
    }
    command_text(&command, queue->worker);
    command_number(&command, limit == 0 ? 1 : limit > RECLAIM_MAX ? RECLAIM_MAX : limit);
    command_number(&command, queue->options.max_reply_bytes / 4); /* in memory an answer is larger than its texts */
    command_text(&command, "");
    command_list(&command, count, names, NULL);
    return queue_call(queue, &command, on_reclaimed, task);
}

static void on_consumers(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct task *task = context;
    (void)lost;
    if (!reply || queue_refused(task->queue, reply, "XINFO CONSUMERS") || reply->type != RESP_ARRAY ||
        !call_reclaim(task, reply)) {
        queue_task_fail(task);
    }
}

void queue_reclaim(struct queue *queue, struct action *action)
{
    char key[QUEUE_KEY_MAX];
    struct err err;
    struct task *task = queue_task_open(queue, action);
    if (!task) {
        return;
    }
    bool sent;
    if (action->read.judge) {
        const char *const words[] = {"XINFO", "CONSUMERS", queue_stream(queue, CLASS_NORMAL, key), QUEUE_GROUP};
        sent =
            !link_command(queue->writer, 4, words, NULL, queue->options.command_timeout_ms, on_consumers, task, &err);
    } else {
        sent = call_reclaim(task, NULL);
    }
    if (!sent) {
        queue_task_fail(task);
    }
}
