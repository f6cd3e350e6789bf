#include "redis/queue_chores.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "redis/queue_entries.h"

enum { MEND_ENTRIES = 48, MEND_BYTES = 512 * 1024 };

static void on_promoted(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    if (!queue_task_answered(task, reply, "lua/promote")) { return; }
    struct event event = queue_task_event(task, !queue_has_numbers(reply, 3));
    if (!event.failed && reply->items[1].integer >= 0) {
        event.promoted.next_due_in_ms = (uint64_t)reply->items[1].integer;
    }
    if (!event.failed && reply->items[2].integer > 0) {
        log_warn("parked_requests_broken", log_str("queue", task->queue->options.name),
                 log_int("requests", reply->items[2].integer));
    }
    queue_task_end(task, event);
}

void queue_promote(struct task *task)
{
    enum { PROMOTE_MAX = 100 };
    struct queue *queue = task->queue;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_PROMOTE, 3 + CLASS_COUNT, &command);
    queue_add_keys(queue, &command, "later", "later:data", "trouble", NULL);
    queue_add_streams(queue, &command);
    command_number(&command, PROMOTE_MAX);
    queue_call(queue, &command, on_promoted, task);
}

/* --- MEND --------------------------------------------------------------------------------------------------------- */

/* The number of entries of each class that the next look asks for. Entries may have any size, so it grows only after a
 * look that saw few bytes, and it is one after a look that saw a large entry. */
static uint32_t next_look(const struct mend_look *look)
{
    if (look->large) { return 1; }
    if (look->left) { return look->most / 4 + 1; }
    if (look->bytes > MEND_BYTES / 4) { return look->most; }
    return look->most * 4 < MEND_ENTRIES / CLASS_COUNT ? look->most * 4 : MEND_ENTRIES / CLASS_COUNT;
}

/* A repair may take several calls; it is logged once, at its end. */
static void on_mended(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    struct queue_mending *mending = task->queue->mending;
    if (!queue_task_answered(task, reply, "lua/mend")) { return; }
    struct event event = queue_task_event(task, !queue_has_numbers(reply, 4));
    if (!event.failed) {
        long long moved = reply->items[0].integer, streams = reply->items[1].integer;
        mending->moved += (uint64_t)moved;
        if (streams > 0) {
            log_warn("ids_ahead", log_str("queue", task->queue->options.name),
                     log_str("reason", "a producer has sent entries with ids of times to come"),
                     log_int("entries_moved", (int64_t)mending->moved), log_int("streams_set_back", streams));
            mending->moved = 0;
        }
        event.mended.moved = (uint64_t)moved;
        event.mended.changed = moved > 0 || streams > 0;
        event.mended.more = reply->items[2].integer != 0 && mending->look.entries > 0;
        event.mended.taken = reply->items[3].integer > 0;
        if (event.mended.more) { mending->look_most = next_look(&mending->look); }
        if (!event.mended.more) { memset(mending->look_behind, 0, sizeof mending->look_behind); }
    }
    queue_task_end(task, event);
}

/* Names to the script the entries of a class that it can move or take in one call. Large ones remain in the stream for
 * a while, so the next look begins after them. */
static void name_entries(struct queue_mending *mending, enum request_class class, const struct resp_value *list)
{
    struct mend_look *look = &mending->look;
    const char number[] = {(char)('0' + class), '\0'};
    struct entry_id id;
    uint64_t bytes;
    for (size_t i = 0; i < list->count; i++) {
        bool read = entry_weighed(&list->items[i], &id, &bytes), large = read && bytes > MEND_BYTES;
        if (!read || (!large && look->bytes + bytes > MEND_BYTES)) {
            look->left = true;
            return;
        }
        look->bytes += large ? 0 : bytes;
        look->large |= large;
        if (large) { mending->look_behind[class] = id; }
        look->entries++;
        command_text(&look->command, number);
        queue_add_entry_id(&look->command, id);
        command_text(&look->command, large ? "take" : "move");
    }
}

/* The answers come in the order of the classes; a stream of a wrong type only fails for its class. queue_refused may
 * close the connection, which answers the other calls before it returns; so this call is counted last, and ends the
 * task. */
static void on_looked(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    struct mend_look *look = &queue->mending->look;
    enum request_class class = (enum request_class)(CLASS_COUNT - task->calls);
    if (reply && reply->type == RESP_ARRAY) {
        name_entries(queue->mending, class, reply);
    } else if (!reply || (!resp_is_error(reply, "WRONGTYPE") && queue_refused(queue, reply, "XRANGE"))) {
        task->failed = true;
    }
    if (--task->calls > 0) { return; }
    if (task->failed) {
        command_free(&look->command);
        queue_task_fail(task);
    } else {
        queue_call(queue, &look->command, on_mended, task);
    }
}

static void look_ahead(struct task *task, enum request_class class, uint64_t from_ms)
{
    struct queue_mending *mending = task->queue->mending;
    struct entry_id behind = mending->look_behind[class];
    bool last = behind.ms == UINT64_MAX && behind.seq == UINT64_MAX; /* no range can begin after the greatest id */
    char from[ENTRY_ID_TEXT + 1] = "(", count[16];
    snprintf(count, sizeof count, "%u", mending->look.most);
    if (behind.ms > 0) {
        entry_id_format(behind, from + 1);
    } else {
        snprintf(from, sizeof from, "%" PRIu64, from_ms);
    }
    const char *const words[] = {"XRANGE", task->queue->streams[class], last ? "+" : from, last ? "-" : "+", "COUNT",
                                 count};
    queue_command(task->queue, 6, words, on_looked, task);
}

void queue_mend(struct task *task)
{
    struct queue *queue = task->queue;
    struct queue_mending *mending = queue->mending;
    uint64_t from_ms = task->action.redis_ms + AHEAD_MS;
    mending->look = (struct mend_look){.most = mending->look_most > 0 ? mending->look_most : 1};
    mending->look_most = 1; /* unless this one succeeds */
    script_begin(&queue->scripts, SCRIPT_MEND, 4 + CLASS_COUNT, &mending->look.command);
    queue_add_keys(queue, &mending->look.command, "later", "later:data", "trouble", "meta", NULL);
    queue_add_streams(queue, &mending->look.command);
    command_text(&mending->look.command, queue->worker);
    task->calls = CLASS_COUNT;
    for (int c = 0; c < CLASS_COUNT; c++) { look_ahead(task, (enum request_class)c, from_ms); }
}
