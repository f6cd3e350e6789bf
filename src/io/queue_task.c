/* What is out and what goes out: names of keys, the outbox of events, and the task of each action.
 *
 * Events wait in the outbox until the event loop comes round, so that nothing calls back into the worker while it is
 * still executing actions; it has room for all that can be out, so that no lack of memory changes this. A disconnect is
 * told when the outbox is empty: every action is answered before it. */
#include <assert.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/queue_parts.h"

/* --- Names ------------------------------------------------------------------------------------------------------- */

const char *queue_key(const struct queue *queue, const char *suffix, const char *more, char key[QUEUE_KEY_MAX])
{
    snprintf(key, QUEUE_KEY_MAX, "sluice:{%s}:%s%s", queue->options.name, suffix, more);
    return key;
}

const char *queue_stream(const struct queue *queue, enum request_class class)
{
    return queue->streams[class];
}

void queue_add_key(const struct queue *queue, struct command *command, const char *suffix, const char *more)
{
    char key[QUEUE_KEY_MAX];
    command_text(command, queue_key(queue, suffix, more, key));
}

void queue_add_stream(const struct queue *queue, struct command *command, enum request_class class)
{
    command_text(command, queue_stream(queue, class));
}

void queue_add_entry_id(struct command *command, struct entry_id id)
{
    char text[ENTRY_ID_TEXT];
    entry_id_format(id, text);
    command_text(command, text);
}

bool queue_call(struct queue *queue, struct command *command, connection_reply_fn *reply, void *context)
{
    struct err err;
    return !script_send(&queue->scripts, command, queue->options.command_timeout_ms, reply, context, &err);
}

/* --- Events ------------------------------------------------------------------------------------------------------ */

void queue_deliver_now(struct queue *queue, const struct event *event)
{
    queue->options.on_event(queue->options.context, event);
}

void queue_on_outbox(int fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    while (queue->count > 0) {
        struct event event = queue->waiting[queue->first];
        queue->first = (queue->first + 1) % OUTBOX_EVENTS;
        queue->count--;
        queue_deliver_now(queue, &event);
    }
    if (queue->disconnect_due) {
        queue->disconnect_due = false;
        queue_deliver_now(queue, &(struct event){.kind = EVENT_DISCONNECTED});
    }
    if (queue->fatal_due) {
        queue->fatal_due = false;
        queue->options.on_fatal(queue->options.context, &queue->fatal);
    }
}

void queue_emit(struct queue *queue, const struct event *event)
{
    assert(queue->count < OUTBOX_EVENTS);
    queue->waiting[(queue->first + queue->count++) % OUTBOX_EVENTS] = *event;
    event_active(queue->outbox, EV_TIMEOUT, 1);
}

/* --- Tasks ------------------------------------------------------------------------------------------------------- */

enum read_source queue_source(enum action_kind kind)
{
    switch (kind) {
    case ACTION_READ_OWN:
        return READ_OWN;
    case ACTION_RECLAIM:
        return READ_RECLAIM;
    case ACTION_SHED:
        return READ_SHED;
    case ACTION_FAIR:
        return READ_FAIR;
    case ACTION_SWEEP:
        return READ_SWEEP;
    default:
        return READ_NEW;
    }
}

static enum event_kind event_of(enum action_kind kind)
{
    switch (kind) {
    case ACTION_SETTLE:
        return EVENT_SETTLED;
    case ACTION_CHARGE:
        return EVENT_CHARGED;
    case ACTION_RELEASE:
        return EVENT_RELEASED;
    case ACTION_TRACK:
        return EVENT_TRACKED;
    case ACTION_RENEW:
        return EVENT_LEASE;
    case ACTION_PROMOTE:
        return EVENT_PROMOTED;
    case ACTION_MEND:
        return EVENT_MENDED;
    case ACTION_PULSE:
        return EVENT_PULSE;
    default:
        return EVENT_ENTRIES;
    }
}

static bool carries_requests(enum event_kind kind)
{
    return kind == EVENT_SETTLED || kind == EVENT_CHARGED || kind == EVENT_RELEASED || kind == EVENT_TRACKED;
}

static struct event failed_event(const struct action *action)
{
    struct event event = {.kind = event_of(action->kind), .failed = true};
    if (event.kind == EVENT_ENTRIES) {
        event.entries.source = queue_source(action->kind);
        event.entries.class = action->read.class;
        event.entries.last = action->read.after;
    } else if (event.kind == EVENT_PROMOTED) {
        event.promoted.next_due_in_ms = UINT64_MAX;
    } else if (carries_requests(event.kind)) {
        event.requests = action->requests;
    }
    return event;
}

/* Takes the action over as a task; NULL when there is no memory: then its failure is on its way already. */
struct task *queue_task_open(struct queue *queue, struct action *action)
{
    struct task *task = queue->state == QUEUE_UP ? calloc(1, sizeof *task) : NULL;
    if (!task) {
        struct event event = failed_event(action);
        queue_emit(queue, &event);
        return NULL;
    }
    task->queue = queue;
    task->action = *action;
    task->next = queue->tasks;
    queue->tasks = task;
    return task;
}

void queue_task_end(struct task *task)
{
    struct task **at = &task->queue->tasks;
    while (*at != task) {
        at = &(*at)->next;
    }
    *at = task->next;
    free(task);
}

void queue_task_done(struct task *task, const struct event *event)
{
    struct queue *queue = task->queue;
    struct event copy = *event; /* it may lie in the task */
    queue_task_end(task);
    queue_emit(queue, &copy);
}

void queue_task_fail(struct task *task)
{
    if (carries_requests(event_of(task->action.kind))) {
        request_list_join(&task->action.requests, &task->answered);
    }
    struct event event = failed_event(&task->action);
    queue_task_done(task, &event);
}
