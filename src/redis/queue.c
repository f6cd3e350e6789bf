/* Two connections that live and die together, and which function executes which action.
 *
 * Every failure ends in queue_down: it closes both connections, whose commands come back unanswered, so each task
 * becomes a failed event; then follow one EVENT_DISCONNECTED and a timer for the next attempt. */
#include <assert.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "redis/queue_internal.h"

enum { CONNECT_TIMEOUT_MS = 5000, COMMAND_TIMEOUT_MS = 5000, BACKOFF_MS = 100, BACKOFF_CAP_MS = 5000, TTL_S = 3600 };
static const uint64_t MAX_REPLY_BYTES = 64 << 20;

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
    for (const char *suffix; (suffix = va_arg(suffixes, const char *));) {
        queue_add_key(queue, command, suffix, "");
    }
    va_end(suffixes);
}

void queue_add_stream(const struct queue *queue, struct command *command, enum request_class class)
{
    command_text(command, queue->streams[class]);
}

void queue_add_streams(const struct queue *queue, struct command *command)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        command_text(command, queue->streams[c]);
    }
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

void queue_call_for(struct task *task, struct command *command, connection_reply_fn *reply)
{
    if (!queue_call(task->queue, command, reply, task)) {
        queue_task_fail(task);
    }
}

bool queue_command(struct queue *queue, size_t count, const char *const *words, connection_reply_fn *reply,
                   void *context)
{
    struct err err;
    return !connection_command(queue->writer, count, words, NULL, queue->options.command_timeout_ms, reply, context,
                               &err);
}

/* --- The outbox --------------------------------------------------------------------------------------------------- */

/* Events wait for the event loop, so that nothing calls back into the worker while it executes actions. The outbox
 * holds all that can be out, so memory cannot run out here. A disconnect is reported when the outbox is empty: every
 * action is answered before it. */

static void deliver(struct queue *queue, const struct event *event)
{
    queue->options.on_event(queue->options.context, event);
}

/* Delivers all events, then a disconnect, then the end. */
static void on_outbox(int fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    while (queue->outbox.count > 0) {
        struct event event = queue->outbox.events[queue->outbox.first];
        queue->outbox.first = (queue->outbox.first + 1) % OUTBOX_EVENTS;
        queue->outbox.count--;
        deliver(queue, &event);
    }
    if (queue->outbox.disconnect_due) {
        queue->outbox.disconnect_due = false;
        deliver(queue, &(struct event){.kind = EVENT_DISCONNECTED});
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

/* What executes each action, and which event answers it. */
static const struct executor {
    void (*execute)(struct queue *queue, struct action *action);
    enum event_kind event;
    enum read_source source; /* of EVENT_ENTRIES */
} executors[ACTION_EXIT + 1] = {
    [ACTION_READ] = {queue_read, EVENT_ENTRIES, READ_NEW},
    [ACTION_READ_OWN] = {queue_read_own, EVENT_ENTRIES, READ_OWN},
    [ACTION_RECLAIM] = {queue_reclaim, EVENT_ENTRIES, READ_RECLAIM},
    [ACTION_SHED] = {queue_shed, EVENT_ENTRIES, READ_SHED},
    [ACTION_FAIR] = {queue_fair, EVENT_ENTRIES, READ_FAIR},
    [ACTION_SWEEP] = {queue_sweep, EVENT_ENTRIES, READ_SWEEP},
    [ACTION_TRACK] = {queue_track, EVENT_TRACKED},
    [ACTION_SETTLE] = {queue_settle, EVENT_SETTLED},
    [ACTION_RECORD_RUN] = {queue_record_run, EVENT_RUN_RECORDED},
    [ACTION_RELEASE] = {queue_release, EVENT_RELEASED},
    [ACTION_RENEW] = {queue_renew, EVENT_LEASE},
    [ACTION_PROMOTE] = {queue_promote, EVENT_PROMOTED},
    [ACTION_MEND] = {queue_mend, EVENT_MENDED},
    [ACTION_PULSE] = {queue_pulse, EVENT_PULSE},
    [ACTION_UNBLOCK] = {queue_unblock},
    [ACTION_REJOIN] = {queue_rejoin},
};

void queue_execute(struct queue *queue, struct action *action)
{
    const struct executor *executor = &executors[action->kind];
    if (executor->execute) { /* the others are the daemon's */
        executor->execute(queue, action);
    }
}

enum read_source queue_source(enum action_kind kind)
{
    return executors[kind].source;
}

static bool carries_requests(enum event_kind kind)
{
    return kind == EVENT_SETTLED || kind == EVENT_RUN_RECORDED || kind == EVENT_RELEASED || kind == EVENT_TRACKED;
}

static struct event failed_event(const struct action *action)
{
    struct event event = {.kind = executors[action->kind].event, .failed = true};
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

static void close_task(struct task *task)
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
    struct event copy = *event; /* it may be part of the task */
    close_task(task);
    queue_emit(queue, &copy);
}

void queue_task_deliver(struct task *task, const struct event *event)
{
    struct queue *queue = task->queue;
    close_task(task);
    deliver(queue, event);
}

void queue_task_fail(struct task *task)
{
    if (carries_requests(executors[task->action.kind].event)) {
        request_list_join(&task->action.requests, &task->answered);
    }
    struct event event = failed_event(&task->action);
    queue_task_done(task, &event);
}

/* --- Connections ------------------------------------------------------------------------------------------------- */

static void close_connections(struct queue *queue)
{
    struct connection *reader = queue->reader, *writer = queue->writer;
    queue->reader = queue->writer = NULL;
    queue->scripts.connection = NULL;
    queue->reader_ready = queue->writer_ready = false;
    find_master_stop(queue->finder);
    connection_close(reader);
    connection_close(writer);
}

/* Changes to state `to`: all tasks fail, and a worker that was connected gets EVENT_DISCONNECTED. */
static void drop(struct queue *queue, enum queue_state to)
{
    if (queue->state == QUEUE_UP) {
        queue->outbox.disconnect_due = true;
        queue->stats.reconnects++;
        event_active(queue->outbox.wake, EV_TIMEOUT, 1);
    }
    queue->state = to;
    queue->stats.connected = false;
    close_connections(queue);
}

void queue_stop(struct queue *queue, const struct err *err)
{
    if (queue->state == QUEUE_STOPPED) {
        return;
    }
    queue->outbox.fatal = *err;
    queue->outbox.fatal_due = true;
    event_active(queue->outbox.wake, EV_TIMEOUT, 1);
    event_del(queue->retry);
    event_del(queue->group_retry);
    event_del(queue->control.timer);
    drop(queue, QUEUE_STOPPED);
}

uint64_t queue_backoff_ms(const struct queue *queue, unsigned tries)
{
    uint64_t wait_ms = queue->options.backoff_ms;
    for (unsigned i = 0; i < tries && wait_ms < queue->options.backoff_cap_ms; i++) {
        wait_ms *= 2;
    }
    return wait_ms < queue->options.backoff_cap_ms ? wait_ms : queue->options.backoff_cap_ms;
}

void queue_wake_in(struct event *timer, uint64_t wait_ms)
{
    struct timeval wait = {.tv_sec = (time_t)(wait_ms / 1000), .tv_usec = (suseconds_t)(wait_ms % 1000 * 1000)};
    evtimer_add(timer, &wait);
}

void queue_down(struct queue *queue, const struct err *err)
{
    if (queue->state != QUEUE_UP && queue->state != QUEUE_CONNECTING) {
        return;
    }
    if (err->status == STATUS_DENIED) {
        queue_stop(queue, err);
        return;
    }
    uint64_t wait_ms = queue_backoff_ms(queue, queue->tries++);
    wait_ms = wait_ms / 2 + random_next(&queue->random) % (wait_ms / 2 + 1);
    log_warn(queue->state == QUEUE_UP ? "redis_lost" : "redis_unavailable", log_str("reason", err->message),
             log_int("retry_in_ms", (int64_t)wait_ms));
    drop(queue, QUEUE_WAITING);
    queue_wake_in(queue->retry, wait_ms);
}

static void on_down(void *context, const struct err *err)
{
    queue_down(context, err);
}

static void on_reader_up(void *context)
{
    queue_join_reader(context);
}

static void on_writer_up(void *context)
{
    queue_join_writer(context);
}

static void connect_both(struct queue *queue, const struct endpoint *endpoint)
{
    struct err err;
    struct connection_options options = {
        .base = queue->options.base,
        .address = queue->options.address,
        .endpoint = endpoint,
        .resolver = queue->resolver,
        .name = queue->worker,
        .master_only = endpoint,
        .connect_timeout_ms = queue->options.connect_timeout_ms,
        .max_reply_bytes = queue->options.max_reply_bytes,
        .context = queue,
        .on_up = on_writer_up,
        .on_down = on_down,
    };
    queue->endpoint = endpoint;
    enum status status = connection_open(&options, &queue->writer, &err);
    options.on_up = on_reader_up;
    options.cut_bytes = queue->options.max_reply_bytes / CUT_PART;
    if (!status) {
        status = connection_open(&options, &queue->reader, &err);
    }
    if (status) {
        queue_down(queue, &err);
    }
}

static void on_master(void *context, const struct endpoint *endpoint)
{
    connect_both(context, endpoint);
}

static void on_retry(evutil_socket_t fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    queue->state = QUEUE_CONNECTING;
    if (queue->moved_due) {
        queue->moved_due = false;
        connect_both(queue, &queue->moved);
    } else if (queue->finder) {
        find_master_start(queue->finder);
    } else {
        connect_both(queue, NULL);
    }
}

/* --- Errors of Redis ---------------------------------------------------------------------------------------------- */

void queue_follow(struct queue *queue, const struct resp_value *reply)
{
    const char *space = resp_is_error(reply, "MOVED") ? strrchr(reply->bytes, ' ') : NULL;
    const char *colon = space ? strrchr(space, ':') : NULL;
    long port = colon ? strtol(colon + 1, NULL, 10) : 0;
    const struct address *address = queue->options.address;
    const struct endpoint *here = queue->endpoint ? queue->endpoint : address->endpoints;
    if (port < 1 || port > 65535 || !here) {
        return;
    }
    int length = (int)(colon - space - 1);
    if (length > 0) { /* 0: the same host */
        snprintf(queue->moved_host, sizeof queue->moved_host, "%.*s", length, space + 1);
    } else if (here != &queue->moved) {
        snprintf(queue->moved_host, sizeof queue->moved_host, "%s", here->host);
    }
    queue->moved = (struct endpoint){queue->moved_host, (uint16_t)port};
    queue->moved_due = true;
}

/* At most once a second for the same reason: what is refused is tried again ten times a second. */
static void log_refused(struct queue *queue, const struct err *err)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns - queue->refused_ns < NS_PER_S && strcmp(err->message, queue->refused.message) == 0) {
        return;
    }
    queue->refused = *err;
    queue->refused_ns = now_ns;
    log_warn("redis_refused", log_str("reason", err->message));
}

/* Errors that pass while the connection stays: the command is tried again. */
static bool is_passing(const struct resp_value *reply)
{
    return resp_is_error(reply, "OOM") || resp_is_error(reply, "TRYAGAIN") || resp_is_error(reply, "ASK");
}

bool queue_refused(struct queue *queue, const struct resp_value *reply, const char *what)
{
    struct err err;
    enum status status = resp_check(reply, &err);
    if (status == STATUS_OK) {
        return false;
    }
    err_prefix(&err, "%s", what);
    bool wrong_type = resp_is_error(reply, "WRONGTYPE"); /* a stream, of which lua/group says more, or another key */
    if (wrong_type) {
        log_refused(queue, &err);
    }
    queue_follow(queue, reply);
    if (resp_is_error(reply, "NOGROUP") || resp_is_error(reply, "UNBLOCKED") || wrong_type) {
        queue_create_groups(queue);
    } else if (status == STATUS_DENIED) {
        queue_stop(queue, &err);
    } else if (status == STATUS_UNAVAILABLE && !is_passing(reply)) {
        queue_down(queue, &err);
    } else {
        log_refused(queue, &err);
    }
    return true;
}

/* --- Life -------------------------------------------------------------------------------------------------------- */

static bool name_usable(const char *name)
{
    size_t length = strlen(name);
    return length >= 1 && length <= QUEUE_NAME_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.-") == length;
}

static void set_defaults(struct queue_options *options)
{
    options->connect_timeout_ms = options->connect_timeout_ms ? options->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    options->command_timeout_ms = options->command_timeout_ms ? options->command_timeout_ms : COMMAND_TIMEOUT_MS;
    options->backoff_ms = options->backoff_ms ? options->backoff_ms : BACKOFF_MS;
    options->backoff_cap_ms = options->backoff_cap_ms ? options->backoff_cap_ms : BACKOFF_CAP_MS;
    options->max_reply_bytes = options->max_reply_bytes ? options->max_reply_bytes : MAX_REPLY_BYTES;
    options->revision = options->revision ? options->revision : "";
    options->ttl_s = options->ttl_s ? options->ttl_s : TTL_S;
}

/* Opens what finds the server: the resolver, and where there are several, the finder of the master. */
static enum status open_finders(struct queue *queue, struct err *err)
{
    struct find_master_options options = {
        .base = queue->options.base,
        .address = queue->options.address,
        .timeout_ms = queue->options.connect_timeout_ms,
        .context = queue,
        .on_found = on_master,
        .on_failed = on_down,
    };
    TRY(resolver_open(queue->options.base, &queue->resolver, err));
    options.resolver = queue->resolver;
    return address_is_plural(queue->options.address) ? find_master_open(&options, &queue->finder, err) : STATUS_OK;
}

static void name_streams(struct queue *queue)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        queue_key(queue, class_streams[c], "", queue->streams[c]);
        queue->groups[c] = (struct group){.queue = queue, .class = (enum request_class)c};
    }
}

enum status queue_open(const struct queue_options *options, struct queue **out, struct err *err)
{
    if (!name_usable(options->name)) {
        return err_set(err, STATUS_BAD_INPUT, "a queue's name is 1 to %d of a-z 0-9 _ . -", QUEUE_NAME_MAX);
    }
    struct queue *queue = calloc(1, sizeof *queue);
    if (!queue) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the queue");
    }
    queue->options = *options;
    set_defaults(&queue->options);
    queue->random = options->seed;
    queue->retry = evtimer_new(options->base, on_retry, queue);
    queue->outbox.wake = event_new(options->base, -1, 0, on_outbox, queue);
    queue->group_retry = evtimer_new(options->base, queue_on_group_retry, queue);
    queue->control.timer = evtimer_new(options->base, queue_on_control, queue);
    if (!queue->retry || !queue->outbox.wake || !queue->group_retry || !queue->control.timer) {
        queue_close(queue);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the queue");
    }
    enum status status = open_finders(queue, err);
    if (status) {
        queue_close(queue);
        return status;
    }
    name_streams(queue);
    queue_make_name(queue);
    *out = queue;
    return STATUS_OK;
}

void queue_start(struct queue *queue)
{
    queue_wake_in(queue->retry, 0);
}

void queue_close(struct queue *queue)
{
    if (!queue) {
        return;
    }
    queue->state = QUEUE_STOPPED;
    close_connections(queue); /* every task becomes a failed event that nobody gets; worker_close frees the requests */
    find_master_close(queue->finder);
    resolver_close(queue->resolver);
    entries_free(&queue->entries);
    struct event *const events[] = {queue->retry, queue->outbox.wake, queue->group_retry, queue->control.timer};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (events[i]) {
            event_free(events[i]);
        }
    }
    free(queue);
}

const char *queue_worker_name(const struct queue *queue)
{
    return queue->worker;
}

struct queue_stats queue_stats(const struct queue *queue)
{
    struct queue_stats stats = queue->stats;
    stats.scripts_reloaded = queue->scripts.reloaded;
    return stats;
}
