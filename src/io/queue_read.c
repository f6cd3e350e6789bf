/* Taking entries from the streams: new ones of several classes in one command, and our own of one class after a
 * reconnect.
 *
 * An entry that is larger than the reader takes is dropped from the answer as it comes (RESP_CUT) and answered by its
 * id, unread. Where an answer as a whole is too large its rest is in the own list, which is read again from there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/queue_parts.h"

/* --- Answers ------------------------------------------------------------------------------------------------------ */

static void give(struct task *task, const struct event *event)
{
    struct queue *queue = task->queue;
    queue_task_end(task);
    queue_deliver_now(queue, event);
}

static struct event entries_event(const struct task *task)
{
    struct event event = {.kind = EVENT_ENTRIES};
    event.entries.source = queue_source(task->action.kind);
    event.entries.class = task->action.read.class;
    return event;
}

void queue_give_entries(struct task *task)
{
    const struct entries *entries = &task->queue->entries;
    struct event event = entries_event(task);
    event.entries.entries = entries->items;
    event.entries.count = entries->count;
    event.entries.more = entries->more;
    event.entries.last = entries->last;
    event.entries.first = entries->first;
    give(task, &event);
}

void queue_give_nothing(struct task *task)
{
    struct event event = entries_event(task);
    event.entries.last = task->action.read.after;
    queue_task_done(task, &event);
}

void queue_give_up(struct task *task, const struct err *err)
{
    struct queue *queue = task->queue;
    queue_task_fail(task);
    queue_down(queue, err);
}

/* --- XREADGROUP --------------------------------------------------------------------------------------------------- */

static void on_entries(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    const char *streams[CLASS_COUNT];
    bool own = task->action.kind == ACTION_READ_OWN;
    struct err err;
    (void)lost;
    if (!reply || queue_refused(queue, reply, "XREADGROUP")) {
        queue_task_fail(task);
        return;
    }
    for (int class = 0; class < CLASS_COUNT; class ++) {
        streams[class] = queue_stream(queue, (enum request_class) class);
    }
    if (entries_from_read(&queue->entries, reply, streams, own ? ORIGIN_OWN : ORIGIN_NEW,
                          queue->options.max_reply_bytes / CUT_PART, &err)) {
        queue_give_up(task, &err);
        return;
    }
    if (own && queue->entries.count == task->asked) {
        queue->entries.more = true;
    }
    queue_give_entries(task);
}

/* Reads the marked streams from `from` on. */
static enum status send_read(struct task *task, uint32_t count, uint32_t block_ms, const char *from, struct err *err)
{
    struct queue *queue = task->queue;
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
    size_t streams = 0;
    for (int class = 0; class < CLASS_COUNT; class ++) {
        if (queue->reading[class]) {
            queue_add_stream(queue, &command, (enum request_class) class);
            streams++;
        }
    }
    for (; streams > 0; streams--) {
        command_text(&command, from);
    }
    enum status status = command_finish(&command, &bytes, &length, err);
    if (!status) {
        status = connection_send(queue->reader, bytes, length, block_ms + READ_GRACE_MS, on_entries, task, err);
    }
    command_free(&command);
    return status;
}

void queue_read(struct queue *queue, struct action *action)
{
    struct err err;
    struct task *task = queue_task_open(queue, action);
    if (!task) {
        return;
    }
    uint32_t least = 0;
    for (int class = 0; class < CLASS_COUNT; class ++) {
        uint32_t count = queue_serves(queue, (enum request_class) class) ? action->read.counts[class] : 0;
        queue->reading[class] = count > 0;
        least = count && (!least || count < least) ? count : least;
    }
    if (!least || send_read(task, least, action->read.block_ms, ">", &err)) {
        queue_task_fail(task);
    }
}

/* --- Our own entries ---------------------------------------------------------------------------------------------- */

static void read_own_from(struct task *task, struct entry_id after)
{
    char from[ENTRY_ID_TEXT];
    struct err err;
    struct queue *queue = task->queue;
    memset(queue->reading, 0, sizeof queue->reading);
    queue->reading[task->action.read.class] = true;
    entry_id_format(after, from);
    if (send_read(task, task->asked, 0, from, &err)) {
        queue_task_fail(task);
    }
}

void queue_read_own(struct queue *queue, struct action *action)
{
    struct task *task = queue_task_open(queue, action);
    if (!task) {
        return;
    }
    task->asked = action->read.count ? action->read.count : 1;
    if (!queue_serves(queue, action->read.class)) {
        queue_give_nothing(task);
    } else {
        read_own_from(task, action->read.after);
    }
}
