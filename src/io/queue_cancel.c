/* Cancelling: each entry that cancels is a call of its own, whether a class's stream brought it or the control stream.
 *
 * The script knows which request is meant only when it has found it; its reply key is then named by the id that this
 * one carries, and a script may touch no key that it was not told of. So the first call assumes that the id is the
 * name, and the script may answer "again, with these keys": it has changed nothing then. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/queue_parts.h"

enum { ROUNDS_MAX = 4 };

struct cancel {
    struct queue *queue;
    struct task *task;
    struct request *request; /* NULL: the entry is one of the control stream, and there is no task */
    struct entry_id entry;
    char target[REQUEST_NAME_MAX]; /* "": none */
    unsigned rounds;
    char id[REQUEST_ID_MAX + 1];
    char notify[2]; /* "0", "1" for a wake token, "s" for a results stream */
    char results[RESULTS_NAME_MAX + 1];
};

static void end_cancel(struct cancel *cancel, enum verdict verdict)
{
    struct queue *queue = cancel->queue;
    struct task *task = cancel->task;
    struct request *request = cancel->request;
    struct request_list requests = {0};
    free(cancel);
    if (!request) {
        queue_control_cancelled(queue, verdict);
        return;
    }
    request->verdict = verdict;
    request_list_push(&requests, request);
    queue_answered(task, &requests);
}

static void on_cancelled(void *context, const struct resp_value *reply, const struct err *lost);

/* Of the request that is to be cancelled; where there is no such request the script will say so. */
static enum request_class class_of(const struct cancel *cancel)
{
    enum request_class class;
    struct entry_id id;
    return request_name_parse(cancel->target, strlen(cancel->target), &class, &id) ? class : CLASS_NORMAL;
}

static bool send_cancel(struct cancel *cancel)
{
    struct queue *queue = cancel->queue;
    const struct request *request = cancel->request;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_CANCEL, 7, &command);
    if (request) {
        queue_add_stream(queue, &command, request->class);
    } else {
        queue_add_key(queue, &command, "control", "");
    }
    queue_add_key(queue, &command, "trouble", "");
    queue_add_key(queue, &command, "later", "");
    queue_add_key(queue, &command, "later:data", "");
    queue_add_stream(queue, &command, class_of(cancel));
    queue_add_key(queue, &command, "reply:", cancel->id);
    if (cancel->notify[0] == 's') {
        queue_add_key(queue, &command, "results:", cancel->results);
    } else {
        queue_add_key(queue, &command, "wake:", cancel->id);
    }
    command_text(&command, queue->worker);
    queue_add_entry_id(&command, cancel->entry);
    command_text(&command, cancel->target);
    command_text(&command, cancel->id);
    command_number(&command, (request ? request->ttl_s : queue->options.ttl_s) * 1000ull);
    command_text(&command, cancel->notify);
    command_text(&command, cancel->results);
    return queue_call(queue, &command, on_cancelled, cancel);
}

static bool take_text(const struct resp_value *value, char *to, size_t size)
{
    if (value->type != RESP_STRING || value->length >= size) {
        return false;
    }
    memcpy(to, value->bytes, value->length + 1);
    return true;
}

/* Whether the call went out again with the keys that the script has named. */
static bool again(struct cancel *cancel, const struct resp_value *reply)
{
    return reply->count >= 4 && ++cancel->rounds < ROUNDS_MAX &&
           take_text(&reply->items[1], cancel->id, sizeof cancel->id) &&
           take_text(&reply->items[2], cancel->notify, sizeof cancel->notify) &&
           take_text(&reply->items[3], cancel->results, sizeof cancel->results) && send_cancel(cancel);
}

static void on_cancelled(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct cancel *cancel = context;
    struct queue *queue = cancel->queue;
    (void)lost;
    if (!reply || queue_refused(queue, reply, "lua/cancel") || reply->type != RESP_ARRAY || reply->count == 0 ||
        reply->items[0].type != RESP_INTEGER) {
        if (cancel->task) {
            cancel->task->failed = cancel->task->failed || !reply || queue->state != QUEUE_UP;
        }
        end_cancel(cancel, VERDICT_AGAIN);
        return;
    }
    switch (reply->items[0].integer) {
    case 1:
        queue->stats.cancelled++;
        queue_count(queue, class_of(cancel), END_CANCELLED);
        end_cancel(cancel, VERDICT_DONE);
        break;
    case 0:
        queue->stats.nothing_to_cancel++;
        log_debug("nothing_to_cancel", log_str("request", cancel->target));
        end_cancel(cancel, VERDICT_NOTHING);
        break;
    case 2:
        end_cancel(cancel, VERDICT_LATE);
        break;
    default:
        if (!again(cancel, reply)) {
            end_cancel(cancel, VERDICT_AGAIN);
        }
    }
}

void queue_cancel(struct task *task, struct request *request)
{
    struct cancel *cancel = calloc(1, sizeof *cancel);
    task->calls++;
    if (!cancel) {
        struct request_list requests = {0};
        request->verdict = VERDICT_AGAIN;
        request_list_push(&requests, request);
        queue_answered(task, &requests);
        return;
    }
    *cancel =
        (struct cancel){.queue = task->queue, .task = task, .request = request, .entry = request->entry, .notify = "0"};
    memcpy(cancel->target, request->target, strlen(request->target) + 1);
    memcpy(cancel->id, request->target, strlen(request->target) + 1);
    if (!send_cancel(cancel)) {
        task->failed = true;
        end_cancel(cancel, VERDICT_AGAIN);
    }
}

void queue_cancel_from_control(struct queue *queue, struct entry_id entry, const char *target)
{
    struct cancel *cancel = calloc(1, sizeof *cancel);
    if (!cancel) { /* it stays in the stream, for the next look */
        queue_control_cancelled(queue, VERDICT_AGAIN);
        return;
    }
    *cancel = (struct cancel){.queue = queue, .entry = entry, .notify = "0"};
    memcpy(cancel->target, target, strlen(target) + 1);
    memcpy(cancel->id, target, strlen(target) + 1);
    if (!send_cancel(cancel)) {
        end_cancel(cancel, VERDICT_AGAIN);
    }
}
