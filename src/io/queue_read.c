/* Taking entries from the streams: new ones of several classes in one command, and our own of one class after a
 * reconnect.
 *
 * An answer above the reader's cap costs the connection, and what it would have brought is in the own list. That list
 * is then read in halves down to single entries; one that does not fit even alone is answered by its id, unread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/queue_parts.h"

enum { OWN_COUNT_AFTER_LARGE = 64 };

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
    if (entries_from_read(&queue->entries, reply, streams, own ? ORIGIN_OWN : ORIGIN_NEW, &err)) {
        queue_give_up(task, &err);
        return;
    }
    if (own) {
        queue->entries.more = queue->entries.count == task->asked;
    }
    if (own && !queue->entries.more) {
        queue->own[task->action.read.class].count = 0;
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
        status = link_send(queue->reader, bytes, length, block_ms + READ_GRACE_MS, on_entries, task, err);
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
        queue->own[class].trying = (struct entry_id){0};
        least = count && (!least || count < least) ? count : least;
    }
    if (!least || send_read(task, least, action->read.block_ms, ">", &err)) {
        queue_task_fail(task);
    }
}

/* --- Our own entries ---------------------------------------------------------------------------------------------- */

static bool same(struct entry_id a, struct entry_id b)
{
    return a.ms == b.ms && a.seq == b.seq;
}

void queue_read_too_large(struct queue *queue)
{
    for (int class = 0; class < CLASS_COUNT; class ++) {
        struct own *own = &queue->own[class];
        if (!queue->reading[class]) {
            continue;
        }
        if (own->count == 1) {
            own->large = own->trying;
        }
        own->count = own->count > 1 ? own->count / 2 : own->count ? 1 : OWN_COUNT_AFTER_LARGE;
    }
}

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

/* The entry that was too large even alone: all that is known of it is its id. */
static void give_large(struct task *task, struct entry_id id)
{
    struct entry entry = {.class = task->action.read.class, .id = id, .origin = ORIGIN_OWN, .oversize = true};
    struct event event = entries_event(task);
    event.entries.entries = &entry;
    event.entries.count = 1;
    event.entries.more = true;
    event.entries.last = id;
    give(task, &event);
}

/* XPENDING names the next own entry without its fields: now it is certain which one is read, should it be too large. */
static void on_next_own(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    struct own *own = &queue->own[task->action.read.class];
    struct entry_id id;
    struct err err;
    (void)lost;
    if (!reply || queue_refused(queue, reply, "XPENDING")) {
        queue_task_fail(task);
        return;
    }
    if (reply->type == RESP_ARRAY && reply->count == 0) { /* the list is at its end */
        own->count = 0;
        queue_give_nothing(task);
        return;
    }
    if (reply->type != RESP_ARRAY || reply->items[0].type != RESP_ARRAY || reply->items[0].count < 1 ||
        reply->items[0].items[0].type != RESP_STRING ||
        !entry_id_parse(reply->items[0].items[0].bytes, reply->items[0].items[0].length, &id)) {
        err_set(&err, STATUS_BAD_INPUT, "XPENDING answered in an unknown shape");
        queue_give_up(task, &err);
        return;
    }
    if (same(id, own->large)) {
        give_large(task, id);
        return;
    }
    own->trying = id;
    read_own_from(task, id.seq ? (struct entry_id){id.ms, id.seq - 1} : (struct entry_id){id.ms - 1, UINT64_MAX});
}

static void find_next_own(struct task *task)
{
    struct queue *queue = task->queue;
    char after[ENTRY_ID_TEXT], from[ENTRY_ID_TEXT + 1];
    struct err err;
    entry_id_format(task->action.read.after, after);
    snprintf(from, sizeof from, "(%s", after);
    const char *const words[] = {
        "XPENDING", queue_stream(queue, task->action.read.class), QUEUE_GROUP, from, "+", "1", queue->worker};
    if (link_command(queue->writer, 7, words, NULL, queue->options.command_timeout_ms, on_next_own, task, &err)) {
        queue_task_fail(task);
    }
}

void queue_read_own(struct queue *queue, struct action *action)
{
    struct task *task = queue_task_open(queue, action);
    if (!task) {
        return;
    }
    struct own *own = &queue->own[action->read.class];
    uint32_t count = action->read.count ? action->read.count : 1;
    own->trying = (struct entry_id){0};
    task->asked = own->count && own->count < count ? own->count : count;
    if (!queue_serves(queue, action->read.class)) {
        queue_give_nothing(task);
    } else if (own->count == 1) {
        find_next_own(task);
    } else {
        read_own_from(task, action->read.after);
    }
}
