#include "redis/queue_cancel.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "redis/queue_ends.h"

enum { ROUNDS_MAX = 4 };

enum { READ_MS = 100, NEXT_MS = 10, CHECK_MS = 1000, READ_ENTRIES = 64, SEEN_MAX = 2 };

/* --- The control stream: the next read ---------------------------------------------------------------------------- */

/* The control stream is for cancels that must not wait, even if the queue is paused, full or has a backlog.
 *
 * It has no group, because nobody needs to own an entry: lua/cancel deletes it together with its request, and a second
 * call finds it gone. The housekeeper reads it ten times a second; others check once a second whether it exists, and
 * read it if it stays, because the housekeeper may just have died. */

static void read_in(struct queue *queue, unsigned wait_ms)
{
    queue_wake_in(queue->control->timer, wait_ms);
}

static void read_later(struct queue *queue)
{
    read_in(queue, queue->elected ? READ_MS : CHECK_MS);
}

/* Logs at most once a second: a producer may send any number. */
static void log_malformed(struct queue *queue)
{
    struct queue_control *control = queue->control;
    uint64_t now_ns = clock_now_ns();
    if (control->malformed == 0 || now_ns - control->logged_ns < NS_PER_S) { return; }
    log_warn("control_malformed", log_str("queue", queue->options.name),
             log_int("entries", (int64_t)control->malformed),
             log_str("reason", "the field cancel is not the name of a request"));
    control->malformed = 0;
    control->logged_ns = now_ns;
}

/* After a full read there may be more: it reads on after a pause, so that a flood does not hold up Redis. Failed
 * cancels are read again once it has reached the end. */
static void control_cancelled(struct queue *queue, enum verdict verdict)
{
    struct queue_control *control = queue->control;
    control->failed = control->failed || verdict == VERDICT_AGAIN;
    if (--control->out > 0 || queue->state != QUEUE_UP) { return; }
    log_malformed(queue);
    if (control->full) {
        read_in(queue, NEXT_MS);
        return;
    }
    control->after = (struct entry_id){0};
    if (control->failed) {
        read_in(queue, CHECK_MS);
    } else {
        read_later(queue);
    }
    control->failed = false;
}

/* --- Cancels ------------------------------------------------------------------------------------------------------ */

struct cancel {
    struct queue *queue;
    struct task *task;
    struct request *request; /* NULL: the entry is in the control stream, and there is no task */
    struct entry_id entry;
    char target[REQUEST_NAME_MAX]; /* the name of a request; "": none */
    unsigned rounds;
    char id[REQUEST_ID_MAX + 1];
    char notify[2]; /* "0", "1": a wake token, "s": a results stream */
    char results[RESULTS_NAME_MAX + 1], stream[RESULTS_NAME_MAX + 1];
};

static void report_cancel(struct queue *queue, struct task *task, struct request *request, enum verdict verdict)
{
    struct request_list requests = {0};
    if (!request) {
        control_cancelled(queue, verdict);
        return;
    }
    request->lifetime.verdict = verdict;
    request_list_push(&requests, request);
    queue_answered(task, &requests);
}

static void end_cancel(struct cancel *cancel, enum verdict verdict)
{
    struct cancel was = *cancel;
    free(cancel);
    report_cancel(was.queue, was.task, was.request, verdict);
}

static void on_cancelled(void *context, const struct resp_value *reply);

/* The class of the target. Any class will do for an invalid name: the script finds no such request. */
static enum request_class target_class(const struct cancel *cancel)
{
    enum request_class class;
    struct entry_id id;
    return request_name_parse(cancel->target, strlen(cancel->target), &class, &id) ? class : CLASS_NORMAL;
}

static void send_cancel(struct cancel *cancel)
{
    struct queue *queue = cancel->queue;
    const struct request *request = cancel->request;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_CANCEL, 10, &command);
    if (request) {
        queue_add_stream(queue, &command, request->identity.class);
    } else {
        queue_add_key(queue, &command, "control", "");
    }
    queue_add_keys(queue, &command, "trouble", "later", "later:data", "meta", NULL);
    queue_add_stream(queue, &command, target_class(cancel));
    queue_add_key(queue, &command, "reply:", cancel->id);
    if (cancel->notify[0] == 's') {
        queue_add_key(queue, &command, "results:", cancel->results);
    } else {
        queue_add_key(queue, &command, "wake:", cancel->id);
    }
    queue_add_key(queue, &command, "tokens:", cancel->stream);
    queue_add_key(queue, &command, "sent:", cancel->target);
    command_text(&command, queue->worker);
    queue_add_entry_id(&command, cancel->entry);
    command_text(&command, cancel->target);
    command_text(&command, cancel->id);
    command_number(&command, (request ? request->output.ttl_s : queue->options.ttl_s) * 1000ull);
    command_text(&command, cancel->notify);
    command_text(&command, cancel->results);
    command_text(&command, cancel->stream);
    queue_call(queue, &command, on_cancelled, cancel);
}

static bool copy_text(const struct resp_value *value, char *to, size_t size)
{
    if (value->type != RESP_STRING || value->length >= size) { return false; }
    memcpy(to, value->bytes, value->length + 1);
    return true;
}

/* Takes the keys that the script named, for another call. */
static bool take_keys(struct cancel *cancel, const struct resp_value *reply)
{
    return reply->count >= 5 && ++cancel->rounds < ROUNDS_MAX &&
           copy_text(&reply->items[1], cancel->id, sizeof cancel->id) &&
           copy_text(&reply->items[2], cancel->notify, sizeof cancel->notify) &&
           copy_text(&reply->items[3], cancel->results, sizeof cancel->results) &&
           copy_text(&reply->items[4], cancel->stream, sizeof cancel->stream);
}

static void on_cancelled(void *context, const struct resp_value *reply)
{
    struct cancel *cancel = context;
    struct queue *queue = cancel->queue;
    if (!reply || queue_refused(queue, reply, "lua/cancel") || reply->type != RESP_ARRAY || reply->count == 0 ||
        reply->items[0].type != RESP_INTEGER) {
        if (cancel->task) { cancel->task->failed = cancel->task->failed || !reply || queue->state != QUEUE_UP; }
        end_cancel(cancel, VERDICT_AGAIN);
        return;
    }
    switch (reply->items[0].integer) {
    case 1:
        queue_count(queue, target_class(cancel), END_CANCELLED);
        end_cancel(cancel, VERDICT_DONE);
        break;
    case 0:
        log_debug("nothing_to_cancel", log_str("request", cancel->target));
        end_cancel(cancel, VERDICT_NOTHING);
        break;
    case 2:
        end_cancel(cancel, VERDICT_LATE);
        break;
    default:
        if (take_keys(cancel, reply)) {
            send_cancel(cancel);
        } else {
            end_cancel(cancel, VERDICT_AGAIN);
        }
    }
}

/* Cancels the request that `target` names ("": none, the entry is only deleted). Without `request` the entry is in the
 * control stream, and the cancel ends with control_cancelled. */
static void start_cancel(struct queue *queue, struct task *task, struct request *request, struct entry_id entry,
                         const char *target)
{
    struct cancel *cancel = malloc(sizeof *cancel);
    if (!cancel) {
        report_cancel(queue, task, request, VERDICT_AGAIN);
        return;
    }
    *cancel = (struct cancel){.queue = queue, .task = task, .request = request, .entry = entry, .notify = "0"};
    memcpy(cancel->target, target, strlen(target) + 1);
    memcpy(cancel->id, target, strlen(target) + 1);
    send_cancel(cancel);
}

void queue_cancel(struct task *task, struct request *request)
{
    task->calls++;
    start_cancel(task->queue, task, request, request->identity.entry, request->identity.target);
}

/* --- The control stream: reading ---------------------------------------------------------------------------------- */

/* One entry: an id, and a name that a producer wrote. */
static void cancel_one(struct queue *queue, const struct resp_value *id, const struct resp_value *name)
{
    struct entry_id entry, target_id;
    char target[REQUEST_NAME_MAX] = "";
    enum request_class class;
    if (!resp_entry_id(id, &entry) || name->type != RESP_STRING) { return; }
    if (request_name_parse(name->bytes, name->length, &class, &target_id)) {
        request_name_format(class, target_id, target);
    } else {
        queue->control->malformed++;
    }
    queue->control->after = entry;
    queue->control->out++;
    start_cancel(queue, NULL, NULL, entry, target);
}

static void on_control(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    struct queue_control *control = queue->control;
    control->busy = false;
    bool unusable = reply && resp_is_error(reply, "WRONGTYPE");
    if (unusable && !control->unusable) {
        log_error("stream_unusable", log_str("queue", queue->options.name), log_str("key", "control"),
                  log_str("reason", "it is not a stream: remove that key"));
    }
    control->unusable = unusable;
    if (!reply || unusable || queue_refused(queue, reply, "lua/control") || reply->type != RESP_ARRAY) {
        if (queue->state == QUEUE_UP) { read_in(queue, CHECK_MS); }
        return;
    }
    control->full = reply->count >= 2 * READ_ENTRIES;
    control->out = 1; /* held by this function until all are sent */
    for (size_t i = 0; i + 1 < reply->count; i += 2) { cancel_one(queue, &reply->items[i], &reply->items[i + 1]); }
    control_cancelled(queue, VERDICT_DONE);
}

static void read_control(struct queue *queue)
{
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_CONTROL, 1, &command);
    queue_add_key(queue, &command, "control", "");
    command_number(&command, READ_ENTRIES);
    queue_add_entry_id(&command, queue->control->after);
    queue->control->seen = 0;
    queue->control->busy = true;
    queue_call(queue, &command, on_control, queue);
}

static void on_checked(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    queue->control->busy = false;
    if (!reply || queue_refused(queue, reply, "EXISTS")) {
        if (queue->state == QUEUE_UP) { read_later(queue); }
        return;
    }
    queue->control->seen = reply->type == RESP_INTEGER && reply->integer > 0 ? queue->control->seen + 1 : 0;
    if (queue->control->seen >= SEEN_MAX) {
        read_control(queue);
    } else {
        read_later(queue);
    }
}

void queue_on_control(int fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    if (queue->state != QUEUE_UP || queue->control->busy || queue->control->out > 0) {
        return; /* the end of that read schedules the next */
    }
    if (queue->elected) {
        read_control(queue);
    } else {
        char key[QUEUE_KEY_MAX];
        const char *const words[] = {"EXISTS", queue_key(queue, "control", "", key)}; /* no entries, no key */
        queue->control->busy = true;
        queue_command(queue, 2, words, on_checked, queue);
    }
}

void queue_control_start(struct queue *queue)
{
    queue->control->seen = 0;
    queue->control->after = (struct entry_id){0};
    read_in(queue, 0);
}
