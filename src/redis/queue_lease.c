#include "redis/queue_lease.h"

#include "redis/queue_pulse.h"

static void on_renewed(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    if (queue_task_answered(task, reply, "lua/renew")) {
        struct event event = queue_task_event(task, false);
        event.lease_held = reply->type == RESP_INTEGER && reply->integer == 1;
        queue_task_end(task, event);
    }
}

void queue_renew(struct task *task)
{
    struct queue *queue = task->queue;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_RENEW, 1, &command);
    queue_add_key(queue, &command, "alive:", queue->worker);
    command_text(&command, queue->token);
    command_number(&command, queue->options.lease_ms);
    queue_call(queue, &command, on_renewed, task);
}

/* --- RELEASE ------------------------------------------------------------------------------------------------------ */

/* The extent of a release, as lua/release reads it in ARGV. */
enum { ONLY_THESE, ALL_OF_STREAM, ALL_AND_SIGN_OFF };

static void sign_off(struct task *task);

/* Called when a call has ended, and when all calls are sent. */
static void release_ended(struct task *task)
{
    if (--task->calls > 0) { return; }
    if (!task->failed && task->action.last) {
        sign_off(task);
    } else {
        queue_task_end(task, queue_task_event(task, task->failed));
    }
}

static void on_released(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    bool ok = reply && !queue_refused(task->queue, reply, "lua/release");
    task->failed = task->failed || !ok;
    task->more = ok && reply->type == RESP_ARRAY && reply->count > 2 && reply->items[2].integer != 0;
    release_ended(task);
}

/* Sends one call for the requests from `first` up to `end`. */
static void send_release(struct task *task, enum request_class class, int last, const struct request *first,
                         const struct request *end)
{
    struct queue *queue = task->queue;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_RELEASE, 5, &command);
    queue_add_stream(queue, &command, class);
    queue_add_key(queue, &command, "alive:", queue->worker);
    queue_add_keys(queue, &command, "trouble", "workers", "housekeeper", NULL);
    command_text(&command, queue->worker);
    command_text(&command, queue->token);
    command_number(&command, (uint64_t)last);
    command_text(&command, class_prefixes[class]);
    for (; first != end; first = first->next) { queue_add_entry_id(&command, first->identity.entry); }
    task->calls++;
    queue_call(queue, &command, on_released, task);
}

/* Releases all entries that we own in each usable stream, even unknown ones, one call at a time; the last call drops
 * our name. */
static void sign_off(struct task *task)
{
    int last = CLASS_LOW;
    while (last > CLASS_HIGH && !queue_serves(task->queue, (enum request_class)last)) { last--; }
    if (!task->more) {
        do {
            task->signing_off++;
        } while (task->signing_off < last && !queue_serves(task->queue, (enum request_class)task->signing_off));
    }
    task->more = false;
    if (task->signing_off <= last) {
        send_release(task, (enum request_class)task->signing_off,
                     task->signing_off == last ? ALL_AND_SIGN_OFF : ALL_OF_STREAM, NULL, NULL);
    } else {
        queue_task_end(task, queue_task_event(task, false));
    }
}

/* Adjacent requests of one stream share a call; the worker limits their number. */
void queue_release(struct task *task)
{
    const struct request *first = task->action.requests.first;
    if (task->action.last) { queue_count_last(task->queue); }
    task->signing_off = -1; /* before the first class */
    task->calls = 1;        /* held by this function until all are sent */
    while (first) {
        const struct request *end = first;
        while (end && end->identity.class == first->identity.class) { end = end->next; }
        send_release(task, first->identity.class, ONLY_THESE, first, end);
        first = end;
    }
    release_ended(task);
}
