/* The control stream: cancels that wait behind nothing, whether the queue is paused, full or has a backlog.
 *
 * It has no group, because nobody needs to own an entry: lua/cancel ends it with its request, and who comes second
 * finds it gone. So nothing is left with a worker that dies. The housekeeper looks ten times a second; the others ask
 * once a second whether the stream is there, and look themselves where it stays, as when the housekeeper has just died.
 */
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/queue_parts.h"

enum { LOOK_MS = 100, AGAIN_MS = 10, ASK_MS = 1000, LOOK_ENTRIES = 64, STAYS = 2 };

static void look_again(struct queue *queue, unsigned wait_ms)
{
    queue_wake_in(queue->control.timer, wait_ms);
}

static void rest(struct queue *queue)
{
    look_again(queue, queue->housekeeper ? LOOK_MS : ASK_MS);
}

/* The log hears of them once a second: a producer may send any number. */
static void tell_malformed(struct queue *queue)
{
    struct control *control = &queue->control;
    uint64_t now_ns = clock_now_ns();
    if (control->malformed == 0 || now_ns - control->told_ns < NS_PER_S) {
        return;
    }
    log_warn("control_malformed", log_int("entries", (int64_t)control->malformed),
             log_str("reason", "the field cancel is not the name of a request"));
    control->malformed = 0;
    control->told_ns = now_ns;
}

/* Behind a full look there may be more: at once, but for a pause, because who floods it must not hold up Redis for the
 * others. What could not be dealt with comes again when the end was reached. */
void queue_control_cancelled(struct queue *queue, enum verdict verdict)
{
    struct control *control = &queue->control;
    control->failed = control->failed || verdict == VERDICT_AGAIN;
    if (--control->out > 0 || queue->state != QUEUE_UP) {
        return;
    }
    tell_malformed(queue);
    if (control->full) {
        look_again(queue, AGAIN_MS);
        return;
    }
    control->after = (struct entry_id){0};
    if (control->failed) {
        look_again(queue, ASK_MS);
    } else {
        rest(queue);
    }
    control->failed = false;
}

/* One entry: an id, and a name that a producer has written. */
static void cancel(struct queue *queue, const struct resp_value *id, const struct resp_value *name)
{
    struct entry_id entry, target_id;
    char target[REQUEST_NAME_MAX] = "";
    enum request_class class;
    if (id->type != RESP_STRING || name->type != RESP_STRING || !entry_id_parse(id->bytes, id->length, &entry)) {
        return;
    }
    if (request_name_parse(name->bytes, name->length, &class, &target_id)) {
        request_name_format(class, target_id, target);
    } else {
        queue->stats.control_malformed++;
        queue->control.malformed++;
    }
    queue->control.after = entry;
    queue->control.out++;
    queue_cancel_from_control(queue, entry, target);
}

static void on_looked(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct queue *queue = context;
    struct control *control = &queue->control;
    (void)lost;
    control->looking = false;
    bool unusable = reply && resp_is_error(reply, "WRONGTYPE");
    if (unusable && !control->unusable) {
        log_error("stream_unusable", log_str("key", "control"),
                  log_str("reason", "it is not a stream: remove that key"));
    }
    control->unusable = unusable;
    if (!reply || unusable || queue_refused(queue, reply, "lua/control") || reply->type != RESP_ARRAY) {
        if (queue->state == QUEUE_UP) {
            look_again(queue, ASK_MS);
        }
        return;
    }
    control->full = reply->count >= 2 * LOOK_ENTRIES;
    control->out = 1; /* of our own, until all are sent */
    for (size_t i = 0; i + 1 < reply->count; i += 2) {
        cancel(queue, &reply->items[i], &reply->items[i + 1]);
    }
    queue_control_cancelled(queue, VERDICT_DONE);
}

static void look(struct queue *queue)
{
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_CONTROL, 1, &command);
    queue_add_key(queue, &command, "control", "");
    command_number(&command, LOOK_ENTRIES);
    queue_add_entry_id(&command, queue->control.after);
    queue->control.seen = 0;
    queue->control.looking = queue_call(queue, &command, on_looked, queue);
    if (!queue->control.looking) {
        rest(queue);
    }
}

static void on_asked(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct queue *queue = context;
    (void)lost;
    queue->control.looking = false;
    if (!reply || queue_refused(queue, reply, "EXISTS")) {
        if (queue->state == QUEUE_UP) {
            rest(queue);
        }
        return;
    }
    queue->control.seen = reply->type == RESP_INTEGER && reply->integer > 0 ? queue->control.seen + 1 : 0;
    if (queue->control.seen >= STAYS) {
        look(queue);
    } else {
        rest(queue);
    }
}

/* Whether the stream is there at all: it goes with its last entry. */
static void ask(struct queue *queue)
{
    char key[QUEUE_KEY_MAX];
    struct err err;
    const char *const words[] = {"EXISTS", queue_key(queue, "control", "", key)};
    queue->control.looking =
        !connection_command(queue->writer, 2, words, NULL, queue->options.command_timeout_ms, on_asked, queue, &err);
    if (!queue->control.looking) {
        rest(queue);
    }
}

void queue_on_control(int fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    if (queue->state != QUEUE_UP || queue->control.looking || queue->control.out > 0) {
        return; /* whoever ends that goes on */
    }
    if (queue->housekeeper) {
        look(queue);
    } else {
        ask(queue);
    }
}

void queue_control_start(struct queue *queue)
{
    queue->housekeeper = false;
    queue->control.seen = 0;
    queue->control.after = (struct entry_id){0};
    look_again(queue, 0);
}
