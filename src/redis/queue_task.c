#include "redis/queue_task.h"

#include <assert.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* --- Keys and calls ----------------------------------------------------------------------------------------------- */

const char *queue_key(const struct queue *queue, const char *suffix, const char *more, char key[QUEUE_KEY_MAX])
{
    snprintf(key, QUEUE_KEY_MAX, "sluice:{%s}:%s%s", queue->options.name, suffix, more);
    return key;
}

void queue_add_key(const struct queue *queue, struct command *command, const char *suffix, const char *more)
{
    char key[QUEUE_KEY_MAX];
    command_text(command, queue_key(queue, suffix, more, key));
}

void queue_add_keys(const struct queue *queue, struct command *command, ...)
{
    va_list suffixes;
    va_start(suffixes, command);
    for (const char *suffix; (suffix = va_arg(suffixes, const char *));) { queue_add_key(queue, command, suffix, ""); }
    va_end(suffixes);
}

void queue_add_stream(const struct queue *queue, struct command *command, enum request_class class)
{
    command_text(command, queue->streams[class]);
}

void queue_add_streams(const struct queue *queue, struct command *command)
{
    for (int c = 0; c < CLASS_COUNT; c++) { command_text(command, queue->streams[c]); }
}

void queue_add_entry_id(struct command *command, struct entry_id id)
{
    char text[ENTRY_ID_TEXT];
    entry_id_format(id, text);
    command_text(command, text);
}

bool queue_has_numbers(const struct resp_value *reply, size_t least)
{
    bool ok = reply->type == RESP_ARRAY && reply->count >= least;
    for (size_t i = 0; ok && i < reply->count; i++) { ok = reply->items[i].type == RESP_INTEGER; }
    return ok;
}

uint64_t queue_number(const struct resp_value *reply)
{
    return reply->type == RESP_INTEGER && reply->integer > 0 ? (uint64_t)reply->integer : 0;
}

void queue_call(struct queue *queue, struct command *command, connection_reply_fn *reply, void *context)
{
    struct err err;
    queue->commands++;
    if (script_send(&queue->scripts, command, queue->options.command_timeout_ms, reply, context, &err)) {
        queue_down(queue, &err);
        reply(context, NULL);
    }
}

void queue_command_on(struct queue *queue, struct connection *connection, size_t count, const char *const *words,
                      connection_reply_fn *reply, void *context)
{
    struct err err;
    uint32_t timeout_ms = queue->options.command_timeout_ms;
    queue->commands++;
    if (connection_command(connection, count, words, NULL, timeout_ms, reply, context, &err)) {
        queue_down(queue, &err);
        reply(context, NULL);
    }
}

void queue_command(struct queue *queue, size_t count, const char *const *words, connection_reply_fn *reply,
                   void *context)
{
    queue_command_on(queue, queue->writer, count, words, reply, context);
}

void queue_wake_in(struct event *timer, uint64_t wait_ms)
{
    struct timeval wait = {.tv_sec = (time_t)(wait_ms / 1000), .tv_usec = (suseconds_t)(wait_ms % 1000 * 1000)};
    evtimer_add(timer, &wait);
}

/* --- Errors ------------------------------------------------------------------------------------------------------- */

void queue_down(struct queue *queue, const struct err *err)
{
    queue->on_lost(queue, err);
}

bool queue_refused(struct queue *queue, const struct resp_value *reply, const char *what)
{
    struct err err;
    if (resp_check(reply, &err) == STATUS_OK) { return false; }
    err_prefix(&err, "%s", what);
    queue->on_refused(queue, reply, &err);
    return true;
}

bool queue_serves(const struct queue *queue, enum request_class class)
{
    return !queue->unusable[class];
}

/* --- The outbox --------------------------------------------------------------------------------------------------- */

/* Events wait for the event loop, so that nothing calls back into the worker while it executes actions. The outbox has
 * room for the events of all actions that can be out, so it needs no memory. A disconnect is reported when the outbox
 * is empty: every action is answered before it. */

/* Delivers all events, then a disconnect, then a fatal error. */
void queue_on_outbox(int fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    while (queue->outbox.count > 0) {
        struct event event = queue->outbox.events[queue->outbox.first];
        queue->outbox.first = (queue->outbox.first + 1) % OUTBOX_EVENTS;
        queue->outbox.count--;
        queue->options.on_event(queue->options.context, &event);
    }
    if (queue->outbox.disconnect_due) {
        queue->outbox.disconnect_due = false;
        queue->options.on_event(queue->options.context, &(struct event){.kind = EVENT_DISCONNECTED});
    }
    if (queue->outbox.fatal_due) {
        queue->outbox.fatal_due = false;
        queue->options.on_fatal(queue->options.context, &queue->outbox.fatal);
    }
}

void queue_emit(struct queue *queue, const struct event *event)
{
    assert(queue->outbox.count < OUTBOX_EVENTS);
    queue->outbox.events[(queue->outbox.first + queue->outbox.count++) % OUTBOX_EVENTS] = *event;
    event_active(queue->outbox.wake, EV_TIMEOUT, 1);
}

/* --- Tasks ------------------------------------------------------------------------------------------------------- */

struct event queue_task_event(struct task *task, bool failed)
{
    struct event event = {.kind = task->event, .failed = failed};
    if (event.kind == EVENT_ENTRIES) {
        event.entries.source = task->source;
        event.entries.class = task->action.read.class;
        event.entries.last = task->action.read.after;
    } else if (event.kind == EVENT_PROMOTED) {
        event.promoted.next_due_in_ms = UINT64_MAX;
    } else if (event.kind == EVENT_PULSE) {
        event.pulse = task->pulse;
    } else if (event.kind == EVENT_OWN_LISTED) {
        event.own = &task->queue->own_list;
    } else if (event.kind == EVENT_SETTLED || event.kind == EVENT_RUN_RECORDED || event.kind == EVENT_RELEASED) {
        request_list_join(&task->action.requests, &task->answered);
        event.requests = task->action.requests;
    }
    return event;
}

void queue_task_end(struct task *task, struct event event)
{
    struct queue *queue = task->queue;
    free(task);
    queue_emit(queue, &event);
}

void queue_task_fail(struct task *task)
{
    queue_task_end(task, queue_task_event(task, true));
}

bool queue_task_answered(struct task *task, const struct resp_value *reply, const char *what)
{
    if (reply && !queue_refused(task->queue, reply, what)) { return true; }
    queue_task_fail(task);
    return false;
}

void queue_answered(struct task *task, struct request_list *requests)
{
    request_list_join(&task->answered, requests);
    if (--task->calls == 0) { queue_task_end(task, queue_task_event(task, task->failed)); }
}
