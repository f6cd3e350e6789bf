/* Giving entries back: some when there is no time for them, all of all streams at a shutdown. */
#include <stdio.h>

#include "io/queue_parts.h"

/* What a call does beside giving back its entries. */
enum { ONLY_THESE, ALL_OF_STREAM, ALL_AND_SIGN_OFF };

static void sign_off(struct task *task);

static void answer_if_complete(struct task *task)
{
    if (task->calls > 0) {
        return;
    }
    if (task->failed) {
        queue_task_fail(task);
    } else if (task->action.last && task->signing_off < CLASS_COUNT) {
        sign_off(task);
    } else {
        queue_task_done(task, &(struct event){.kind = EVENT_RELEASED, .requests = task->action.requests});
    }
}

static void on_released(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct task *task = context;
    (void)lost;
    bool ok = reply && !queue_refused(task->queue, reply, "lua/release");
    task->failed = task->failed || !ok;
    task->more = ok && reply->type == RESP_ARRAY && reply->count > 2 && reply->items[2].integer != 0;
    task->calls--;
    answer_if_complete(task);
}

/* Sends one call with the entries of these requests, from `first` to before `end`. */
static void send_release(struct task *task, enum request_class class, int last, const struct request *first,
                         const struct request *end)
{
    struct queue *queue = task->queue;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_RELEASE, 5, &command);
    queue_add_stream(queue, &command, class);
    queue_add_key(queue, &command, "alive:", queue->worker);
    queue_add_key(queue, &command, "trouble", "");
    queue_add_key(queue, &command, "workers", "");
    queue_add_key(queue, &command, "housekeeper", "");
    command_text(&command, queue->worker);
    command_text(&command, queue->token);
    command_number(&command, (uint64_t)last);
    command_text(&command, class_prefixes[class]);
    for (; first != end; first = first->next) {
        queue_add_entry_id(&command, first->entry);
    }
    task->calls++;
    if (!queue_call(queue, &command, on_released, task)) {
        task->calls--;
        task->failed = true;
    }
}

/* Requests that stand together and are of one stream go into one call; the worker sees to it that they are not many. */
static void release_requests(struct task *task)
{
    const struct request *first = task->action.requests.first;
    while (first) {
        const struct request *end = first;
        while (end && end->class == first->class) {
            end = end->next;
        }
        send_release(task, first->class, ONLY_THESE, first, end);
        first = end;
    }
}

/* Whatever is pending with us, known or not, in each stream that is one, call after call; the last one takes the name
 * back. */
static void sign_off(struct task *task)
{
    int last = CLASS_LOW;
    while (last > CLASS_HIGH && !queue_serves(task->queue, (enum request_class)last)) {
        last--;
    }
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
        task->signing_off = CLASS_COUNT;
    }
    answer_if_complete(task);
}

void queue_release(struct queue *queue, struct action *action)
{
    struct task *task = queue_task_open(queue, action);
    if (!task) {
        return;
    }
    if (action->last) {
        queue_count_last(queue);
    }
    task->signing_off = -1; /* before the first */
    task->calls = 1;        /* of our own, until all are sent */
    release_requests(task);
    task->calls--;
    answer_if_complete(task);
}
