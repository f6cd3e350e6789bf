/* One queue's state, its two connections, and which function executes which action.
 *
 * Every failure ends in queue_down: it closes both connections, whose commands come back unanswered, so each task
 * becomes a failed event; one EVENT_DISCONNECTED and a timer for the next attempt follow. */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "redis/queue_task.h"
#include "redis/rights.h"

enum { CONNECT_TIMEOUT_MS = 5000, COMMAND_TIMEOUT_MS = 5000, BACKOFF_MS = 100, BACKOFF_CAP_MS = 5000, TTL_S = 3600 };
enum { REDIS_MAJOR_LEAST = 7 };
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

void queue_call(struct queue *queue, struct command *command, connection_reply_fn *reply, void *context)
{
    struct err err;
    queue->commands++;
    if (script_send(&queue->scripts, command, queue->options.command_timeout_ms, reply, context, &err)) {
        queue_down(queue, &err);
        reply(context, NULL);
    }
}

static void ask(struct queue *queue, struct connection *connection, size_t count, const char *const *words,
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
    ask(queue, queue->writer, count, words, reply, context);
}

/* --- The outbox --------------------------------------------------------------------------------------------------- */

/* Events wait for the event loop, so that nothing calls back into the worker while it executes actions. The outbox has
 * room for the events of all actions that can be out, so it needs no memory. A disconnect is reported when the outbox
 * is empty: every action is answered before it. */

/* Delivers all events, then a disconnect, then a fatal error. */
static void on_outbox(int fd, short what, void *context)
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

static void emit(struct queue *queue, const struct event *event)
{
    assert(queue->outbox.count < OUTBOX_EVENTS);
    queue->outbox.events[(queue->outbox.first + queue->outbox.count++) % OUTBOX_EVENTS] = *event;
    event_active(queue->outbox.wake, EV_TIMEOUT, 1);
}

/* --- Tasks ------------------------------------------------------------------------------------------------------- */

/* The function that executes each action, and the event that answers it. */
static const struct executor {
    void (*execute)(struct task *task);
    enum event_kind event;
    enum read_source source; /* of EVENT_ENTRIES */
} executors[ACTION_EXIT + 1] = {
    [ACTION_READ] = {queue_read, EVENT_ENTRIES, READ_NEW},
    [ACTION_READ_OWN] = {queue_read_own, EVENT_ENTRIES, READ_OWN},
    [ACTION_RECLAIM] = {queue_reclaim, EVENT_ENTRIES, READ_RECLAIM},
    [ACTION_SHED] = {queue_shed, EVENT_ENTRIES, READ_SHED},
    [ACTION_FAIR] = {queue_fair, EVENT_ENTRIES, READ_FAIR},
    [ACTION_SWEEP] = {queue_sweep, EVENT_ENTRIES, READ_SWEEP},
    [ACTION_SETTLE] = {queue_settle, EVENT_SETTLED},
    [ACTION_RECORD_RUN] = {queue_record_run, EVENT_RUN_RECORDED},
    [ACTION_RELEASE] = {queue_release, EVENT_RELEASED},
    [ACTION_RENEW] = {queue_renew, EVENT_LEASE},
    [ACTION_PROMOTE] = {queue_promote, EVENT_PROMOTED},
    [ACTION_MEND] = {queue_mend, EVENT_MENDED},
    [ACTION_PULSE] = {queue_pulse, EVENT_PULSE},
    [ACTION_LIST_OWN] = {queue_list_own, EVENT_OWN_LISTED},
};

struct event queue_task_event(struct task *task, bool failed)
{
    const struct executor *executor = &executors[task->action.kind];
    struct event event = {.kind = executor->event, .failed = failed};
    if (event.kind == EVENT_ENTRIES) {
        event.entries.source = executor->source;
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
    emit(queue, &event);
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

static void unblock(struct queue *queue);
static void rejoin(struct queue *queue);

void queue_execute(struct queue *queue, struct action *action)
{
    const struct executor *executor = &executors[action->kind];
    struct task once = {.queue = queue, .action = *action}, *task = NULL;
    if (action->kind == ACTION_UNBLOCK) {
        unblock(queue);
    } else if (action->kind == ACTION_REJOIN) {
        rejoin(queue);
    }
    if (!executor->execute) { return; /* the daemon executes the others */ }
    if (queue->state != QUEUE_UP || !(task = malloc(sizeof *task))) {
        struct event event = queue_task_event(&once, true);
        emit(queue, &event);
        return;
    }
    *task = once;
    if (executor->event == EVENT_ENTRIES && action->kind != ACTION_READ && !queue_serves(queue, action->read.class)) {
        queue_task_end(task, queue_task_event(task, false)); /* the stream is unusable: no entries */
    } else {
        executor->execute(task);
    }
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
        event_active(queue->outbox.wake, EV_TIMEOUT, 1);
    }
    queue->state = to;
    queue_look_lost(queue);
    close_connections(queue);
}

static void dismiss_witness(struct queue *queue)
{
    if (queue->witness >= 0) { close(queue->witness); }
    queue->witness = -1;
}

static void stop(struct queue *queue, const struct err *err)
{
    if (queue->state == QUEUE_STOPPED) { return; }
    queue->outbox.fatal = *err;
    queue->outbox.fatal_due = true;
    queue->trouble = *err;
    event_active(queue->outbox.wake, EV_TIMEOUT, 1);
    event_del(queue->retry);
    event_del(queue->group_retry);
    event_del(queue->control.timer);
    dismiss_witness(queue);
    drop(queue, QUEUE_STOPPED);
}

static uint64_t backoff_ms(const struct queue *queue, unsigned tries)
{
    uint64_t wait_ms = queue->options.backoff_ms;
    for (unsigned i = 0; i < tries && wait_ms < queue->options.backoff_cap_ms; i++) { wait_ms *= 2; }
    return wait_ms < queue->options.backoff_cap_ms ? wait_ms : queue->options.backoff_cap_ms;
}

void queue_wake_in(struct event *timer, uint64_t wait_ms)
{
    struct timeval wait = {.tv_sec = (time_t)(wait_ms / 1000), .tv_usec = (suseconds_t)(wait_ms % 1000 * 1000)};
    evtimer_add(timer, &wait);
}

static uint64_t count_ended(const struct queue *queue)
{
    uint64_t sum = 0;
    for (int c = 0; c < CLASS_COUNT; c++) {
        for (int end = 0; end < ENDS; end++) { sum += queue->ended[c][end]; }
    }
    return sum;
}

/* Shortens the backoff: to its beginning after a connection that lasted, and to nearly that after one on which requests
 * ended. Coming up alone is not enough: Redis may close each connection over our first commands. */
static void forgive(struct queue *queue)
{
    enum { SERVED_TRIES = 2 };
    bool lasted = clock_now_ns() - queue->up_ns >= queue->options.backoff_cap_ms * NS_PER_MS;
    if (lasted) {
        queue->tries = 0;
    } else if (queue->tries > SERVED_TRIES && count_ended(queue) > queue->up_ended) {
        queue->tries = SERVED_TRIES;
    }
}

/* A limit of Redis closes only one connection. Keeps a descriptor of the other one, which shows at the next attempt
 * whether that stayed open. */
static void note_loss(struct queue *queue)
{
    bool reader = connection_was_closed(queue->reader), writer = connection_was_closed(queue->writer);
    dismiss_witness(queue);
    if (reader != writer) { queue->witness = connection_duplicate(reader ? queue->writer : queue->reader); }
    queue->loss = queue->witness < 0 ? LOSS_OTHER : reader ? LOSS_READER : LOSS_WRITER;
}

/* Forgets the loss if the other connection was closed, too: then no limit was the cause. */
static void hear_witness(struct queue *queue)
{
    char byte;
    ssize_t length = queue->witness < 0 ? 1 : recv(queue->witness, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    bool open = length > 0 || (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
    if (!open) { queue->loss = LOSS_OTHER; }
    dismiss_witness(queue);
}

void queue_down(struct queue *queue, const struct err *err)
{
    if (queue->state != QUEUE_UP && queue->state != QUEUE_CONNECTING) { return; }
    if (err->status == STATUS_DENIED) {
        stop(queue, err);
        return;
    }
    if (queue->state == QUEUE_UP) {
        note_loss(queue);
        forgive(queue);
    }
    uint64_t wait_ms = backoff_ms(queue, queue->tries++);
    wait_ms = wait_ms / 2 + random_next(&queue->random) % (wait_ms / 2 + 1);
    queue->trouble = *err;
    log_warn(queue->state == QUEUE_UP ? "redis_lost" : "redis_unavailable", log_str("queue", queue->options.name),
             log_str("reason", err->message), log_int("retry_in_ms", (int64_t)wait_ms));
    drop(queue, QUEUE_WAITING);
    queue_wake_in(queue->retry, wait_ms);
}

static void on_down(void *context, const struct err *err)
{
    queue_down(context, err);
}

static void on_reader_up(void *context);
static void on_writer_up(void *context);

static void connect_both(struct queue *queue, const struct endpoint *endpoint)
{
    struct err err;
    struct connection_options options = {
        .base = queue->options.base,
        .address = queue->options.address,
        .endpoint = endpoint,
        .resolver = find_master_resolver(queue->finder),
        .name = queue->worker,
        .master_only = endpoint,
        .connect_timeout_ms = queue->options.connect_timeout_ms,
        .max_reply_bytes = queue->options.max_reply_bytes,
        .cut_bytes = queue->options.max_reply_bytes / CUT_PART,
        .context = queue,
        .on_up = on_writer_up,
        .on_down = on_down,
    };
    queue->endpoint = endpoint;
    enum status status = connection_open(&options, &queue->writer, &err);
    options.on_up = on_reader_up;
    if (!status) { status = connection_open(&options, &queue->reader, &err); }
    if (status) { queue_down(queue, &err); }
}

static void on_found(void *context, const struct endpoint *endpoint)
{
    connect_both(context, endpoint);
}

static void on_retry(evutil_socket_t fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    hear_witness(queue);
    queue->state = QUEUE_CONNECTING;
    if (queue->moved_due) {
        queue->moved_due = false;
        connect_both(queue, &queue->moved);
    } else {
        find_master_start(queue->finder);
    }
}

/* --- Errors of Redis ---------------------------------------------------------------------------------------------- */

static void follow(struct queue *queue, const struct resp_value *reply)
{
    const char *space = resp_is_error(reply, "MOVED") ? strrchr(reply->bytes, ' ') : NULL;
    const char *colon = space ? strrchr(space, ':') : NULL;
    long port = colon ? strtol(colon + 1, NULL, 10) : 0;
    const struct address *address = queue->options.address;
    const struct endpoint *here = queue->endpoint ? queue->endpoint : address->endpoints;
    if (port < 1 || port > 65535 || !here) { return; }
    int length = (int)(colon - space - 1);
    if (length > 0) { /* 0: the same host */
        snprintf(queue->moved_host, sizeof queue->moved_host, "%.*s", length, space + 1);
    } else if (here != &queue->moved) {
        snprintf(queue->moved_host, sizeof queue->moved_host, "%s", here->host);
    }
    queue->moved = (struct endpoint){queue->moved_host, (uint16_t)port};
    queue->moved_due = true;
}

/* Logs the same refusal at most once a second: a refused command is tried again ten times a second. */
static void log_refused(struct queue *queue, const struct err *err)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns - queue->refused_ns < NS_PER_S && strcmp(err->message, queue->refused.message) == 0) { return; }
    queue->refused = *err;
    queue->refused_ns = now_ns;
    log_warn("redis_refused", log_str("queue", queue->options.name), log_str("reason", err->message));
}

/* True for an error that passes without a new connection: the command is tried again. */
static bool is_passing(const struct resp_value *reply)
{
    return resp_is_error(reply, "OOM") || resp_is_error(reply, "TRYAGAIN") || resp_is_error(reply, "ASK");
}

static void create_groups(struct queue *queue);

bool queue_refused(struct queue *queue, const struct resp_value *reply, const char *what)
{
    struct err err;
    enum status status = resp_check(reply, &err);
    if (status == STATUS_OK) { return false; }
    err_prefix(&err, "%s", what);
    bool wrong_type = resp_is_error(reply, "WRONGTYPE"); /* of a stream (lua/group says more) or another key */
    if (wrong_type) { log_refused(queue, &err); }
    follow(queue, reply);
    if (resp_is_error(reply, "NOGROUP") || resp_is_error(reply, "UNBLOCKED") || wrong_type) {
        create_groups(queue);
    } else if (status == STATUS_DENIED) {
        stop(queue, &err);
    } else if (status == STATUS_UNAVAILABLE && !is_passing(reply)) {
        queue_down(queue, &err);
    } else {
        log_refused(queue, &err);
    }
    return true;
}

/* --- Joining: from two connections to EVENT_CONNECTED ----------------------------------------------------------- */

/* The steps: check the server, load the scripts, pin the model and take our name (lua/join), make missing groups
 * (lua/group), ask for the time. */

static void put_hex(char *to, size_t bytes)
{
    unsigned char random[16] = {0};
    if (getrandom(random, bytes, 0) != (ssize_t)bytes) {
        memset(random, getpid() & 255, sizeof random); /* then only the process id makes the name unique */
    }
    for (size_t i = 0; i < bytes; i++) { snprintf(to + 2 * i, 3, "%02x", random[i]); }
}

void queue_host(char host[QUEUE_HOST_MAX + 1])
{
    strcpy(host, "host");
    gethostname(host, QUEUE_HOST_MAX + 1);
    host[QUEUE_HOST_MAX] = '\0';
    for (char *at = host; *at; at++) { *at = isalnum((unsigned char)*at) || *at == '.' ? *at : '-'; }
}

static void make_name(struct queue *queue)
{
    char host[QUEUE_HOST_MAX + 1], incarnation[9];
    queue_host(host);
    put_hex(incarnation, 4);
    put_hex(queue->token, 16);
    queue->housekeeping.command[0] = '\0'; /* it was for the previous name */
    snprintf(queue->worker, sizeof queue->worker, "%s-%d-%s", host, (int)getpid(), incarnation);
}

bool queue_worker_name_is(const char *name, size_t length)
{
    enum { HEX = 8 };
    size_t end = length > HEX ? length - HEX - 1 : 0, digits = end; /* where the two dashes are */
    bool ok = end > 0 && length < QUEUE_WORKER_MAX && name[end] == '-';
    for (size_t i = end + 1; ok && i < length; i++) { ok = isxdigit((unsigned char)name[i]); }
    while (ok && digits > 0 && isdigit((unsigned char)name[digits - 1])) { digits--; }
    ok = ok && digits > 0 && digits < end && name[digits - 1] == '-';
    for (size_t i = 0; ok && i < digits; i++) {
        ok = isalnum((unsigned char)name[i]) || name[i] == '.' || name[i] == '-';
    }
    return ok;
}

/* Logs why the server closed our connection, once we are back. */
static void log_loss(const struct queue *queue)
{
    static const char *const reasons[] = {
        [LOSS_READER] =
            "it sent more at once than its client-output-buffer-limit (normal) or maxmemory-clients allows, "
            "or somebody killed the connection",
        [LOSS_WRITER] = "it got or sent more than its proto-max-bulk-len, client-query-buffer-limit, "
                        "client-output-buffer-limit (normal) or maxmemory-clients allows, or somebody killed the "
                        "connection"};
    if (queue->loss == LOSS_READER || queue->loss == LOSS_WRITER) {
        log_warn("redis_closed_connection", log_str("queue", queue->options.name),
                 log_str("connection", queue->loss == LOSS_READER ? "reader" : "writer"),
                 log_str("reason", reasons[queue->loss]));
    }
}

static void up(struct queue *queue, uint64_t redis_ms)
{
    char text[ADDRESS_TEXT];
    log_info("redis_connected",
             log_str("address", queue->endpoint ? endpoint_print(queue->endpoint, text)
                                                : address_print(queue->options.address, text)),
             log_str("queue", queue->options.name), log_str("worker", queue->worker));
    log_loss(queue);
    queue->state = QUEUE_UP;
    queue->connects++;
    queue->up_ns = clock_now_ns();
    queue->up_ended = count_ended(queue);
    queue_control_start(queue);
    emit(queue, &(struct event){.kind = EVENT_CONNECTED, .connected = {.redis_ms = redis_ms, .loss = queue->loss}});
    queue->loss = LOSS_OTHER;
}

/* --- The groups --------------------------------------------------------------------------------------------------- */

/* Groups begin at 0, because a stream holds exactly the unfinished work.
 *
 * A key of another type in the place of a stream (a producer's SET) disables that class only: reads and claims leave it
 * out, the log names the key, and it is checked again with a backoff that doubles. */

/* Disables the class until the key is gone. */
static void on_wrong_type(struct group *group)
{
    struct queue *queue = group->queue;
    if (!group->unusable) {
        group->unusable = true;
        queue->group_tries = 0;
        log_error("stream_unusable", log_str("queue", queue->options.name),
                  log_str("key", queue->streams[group->class]),
                  log_str("reason", "it is not a stream: remove or rename that key"));
    }
    if (!evtimer_pending(queue->group_retry, NULL)) {
        queue_wake_in(queue->group_retry, backoff_ms(queue, queue->group_tries++));
    }
}

static void on_group(void *context, const struct resp_value *reply)
{
    struct group *group = context;
    struct queue *queue = group->queue;
    queue->groups_asked--;
    if (!reply) { return; }
    if (resp_is_error(reply, "WRONGTYPE")) {
        on_wrong_type(group);
        return;
    }
    if (queue_refused(queue, reply, "lua/group")) { return; }
    if (reply->type == RESP_INTEGER && reply->integer == 1) {
        log_info("group_created", log_str("key", queue->streams[group->class]));
    }
    if (group->unusable) {
        group->unusable = false;
        log_info("stream_usable_again", log_str("key", queue->streams[group->class]));
    }
}

static void create_groups(struct queue *queue)
{
    if (queue->groups_asked > 0) { return; /* several commands got NOGROUP at once */ }
    for (int c = 0; c < CLASS_COUNT; c++) {
        struct group *group = &queue->groups[c];
        struct command command = {0};
        script_begin(&queue->scripts, SCRIPT_GROUP, 1, &command);
        queue_add_stream(queue, &command, group->class);
        queue->groups_asked++;
        queue_call(queue, &command, on_group, group);
    }
}

static void on_group_retry(int fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    if (queue->state == QUEUE_UP) { create_groups(queue); }
}

bool queue_serves(const struct queue *queue, enum request_class class)
{
    return !queue->groups[class].unusable;
}

/* --- The clock ---------------------------------------------------------------------------------------------------- */

/* The unix ms of an answer to TIME; 0 for another shape. */
static uint64_t time_of(const struct resp_value *reply)
{
    if (reply->type != RESP_ARRAY || reply->count != 2 || reply->items[0].type != RESP_STRING ||
        reply->items[1].type != RESP_STRING) {
        return 0;
    }
    return strtoull(reply->items[0].bytes, NULL, 10) * 1000 + strtoull(reply->items[1].bytes, NULL, 10) / 1000;
}

static void on_time(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    struct err err;
    if (!reply) { return; /* queue_down has handled the lost connection */ }
    if (resp_check(reply, &err)) {
        queue_down(queue, &err);
    } else if (time_of(reply) == 0) {
        err_set(&err, STATUS_INTERNAL, "TIME answered in an unknown shape");
        queue_down(queue, &err);
    } else {
        queue->writer_ready = true;
        if (queue->reader_ready) { up(queue, time_of(reply)); }
    }
}

/* Asks for the time, as the last step, so that it is still right when the worker gets it. */
static void ask_time(struct queue *queue)
{
    queue_command(queue, 1, (const char *const[]){"TIME"}, on_time, queue);
}

/* --- The name and the model --------------------------------------------------------------------------------------- */

static void join(struct queue *queue);

enum status queue_refuse_precision(const char *name, const char *pinned, const char *ours, struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT,
                   "queue %s is pinned to precision %s, this worker computes in %s: start it with --precision %s, or "
                   "let others in (`sluice pin --precision any`)",
                   name, pinned, ours, pinned);
}

static void refuse_queue(struct queue *queue, long long code, const char *text)
{
    struct err err;
    if (code == -1) {
        err_set(&err, STATUS_UNSUPPORTED, "queue %s speaks protocol %s, this program speaks %d: use a newer one",
                queue->options.name, text, QUEUE_PROTOCOL);
    } else if (code == -4) {
        err_set(&err, STATUS_DENIED,
                "Redis' user may not %s: acl/worker.acl has what a worker needs, "
                "`sluice doctor` names all that is missing",
                text);
    } else if (code == -3) {
        (void)queue_refuse_precision(queue->options.name, text, queue->options.precision, &err);
    } else {
        err_set(&err, STATUS_BAD_INPUT,
                "queue %s belongs to the model %s, this worker's is %s (%s): one queue has one model, choose another "
                "--queue",
                queue->options.name, text, queue->options.model_id, queue->options.model_name);
    }
    stop(queue, &err);
}

static void on_joined(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    struct err bad;
    if (!reply) { return; /* queue_down has handled the lost connection */ }
    if (resp_check(reply, &bad)) {
        follow(queue, reply);
        queue_down(queue, &bad);
    } else if (reply->type != RESP_ARRAY || reply->count != 2 || reply->items[0].type != RESP_INTEGER ||
               reply->items[1].type != RESP_STRING) {
        err_set(&bad, STATUS_INTERNAL, "lua/join answered in an unknown shape");
        queue_down(queue, &bad);
    } else if (reply->items[0].integer == 1) {
        create_groups(queue);
        ask_time(queue); /* its answer follows theirs */
    } else if (reply->items[0].integer == 0) {
        make_name(queue);
        join(queue);
    } else {
        refuse_queue(queue, reply->items[0].integer, reply->items[1].bytes);
    }
}

static void join(struct queue *queue)
{
    struct command command = {0};
    size_t count;
    const struct right *rights = rights_table(&count);
    script_begin(&queue->scripts, SCRIPT_JOIN, 2, &command);
    queue_add_key(queue, &command, "meta", "");
    queue_add_key(queue, &command, "alive:", queue->worker);
    command_number(&command, QUEUE_PROTOCOL);
    command_text(&command, queue->options.model_id);
    command_text(&command, queue->token);
    command_number(&command, queue->options.lease_ms);
    command_text(&command, queue->options.precision);
    command_text(&command, queue->options.model_name);
    for (size_t i = 0; i < count; i++) {
        if (rights[i].roles & ROLE_WORKER) { command_text(&command, rights[i].command); }
    }
    queue_call(queue, &command, on_joined, queue);
}

/* ACTION_REJOIN. */
static void rejoin(struct queue *queue)
{
    make_name(queue);
    if (queue->state == QUEUE_UP) { join(queue); } /* else the next connect takes the new name */
}

/* --- The server --------------------------------------------------------------------------------------------------- */

static void on_scripts(void *context, const struct err *err)
{
    if (err) {
        queue_down(context, err);
    } else {
        join(context);
    }
}

/* Checks that a queue can run on this server. */
static enum status check_server(struct queue *queue, const char *info, struct err *err)
{
    char value[64];
    if (resp_info_field(info, "loading", value, sizeof value) && strcmp(value, "0") != 0) {
        return err_set(err, STATUS_UNAVAILABLE, "Redis is loading its data");
    }
    bool has_mode = resp_info_field(info, "redis_mode", value, sizeof value) ||
                    resp_info_field(info, "server_mode", value, sizeof value); /* Valkey's name for it */
    if (has_mode && strcmp(value, "sentinel") == 0) {
        return err_set(err, STATUS_BAD_INPUT, "this is a Sentinel: its address is redis+sentinel://HOST:PORT/NAME");
    }
    if (resp_info_field(info, "role", value, sizeof value) && strcmp(value, "master") != 0) {
        resp_info_field(info, "master_host", value, sizeof value);
        return err_set(err, STATUS_UNAVAILABLE, "Redis is a replica of %s: requests are served where it is master",
                       value);
    }
    if (!resp_info_field(info, "redis_version", value, sizeof value) || atoi(value) < REDIS_MAJOR_LEAST) {
        return err_set(err, STATUS_UNSUPPORTED, "Redis %d.0 or later is needed", REDIS_MAJOR_LEAST);
    }
    /* A worker that was connected before continues: without it the waiting requests are in more danger. The pulse
     * warns. */
    if (!queue->options.allow_eviction && queue->connects == 0 &&
        resp_info_field(info, "maxmemory_policy", value, sizeof value) && strcmp(value, "noeviction") != 0) {
        return err_set(err, STATUS_BAD_INPUT,
                       "maxmemory-policy is %s: Redis could drop requests and replies when it is full; "
                       "set it to noeviction, or allow it (allow_eviction)",
                       value);
    }
    if (resp_info_field(info, "run_id", value, sizeof value) && strcmp(value, queue->run_id) != 0) {
        if (queue->run_id[0]) {
            log_warn("redis_restarted", log_str("queue", queue->options.name), log_str("run_id", value));
            queue->loss = LOSS_RESTART;
        }
        snprintf(queue->run_id, sizeof queue->run_id, "%.47s", value);
    }
    return STATUS_OK;
}

static void on_info(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    struct err bad;
    if (!reply) { return; }
    enum status status = resp_check(reply, &bad);
    if (!status && reply->type != RESP_STRING) {
        status = err_set(&bad, STATUS_INTERNAL, "INFO answered in an unknown shape");
    }
    if (!status) { status = check_server(queue, reply->bytes, &bad); }
    if (!status) { status = scripts_load(&queue->scripts, &bad); }
    if (status == STATUS_UNSUPPORTED || status == STATUS_BAD_INPUT) {
        stop(queue, &bad);
    } else if (status) {
        queue_down(queue, &bad);
    }
}

static void on_writer_up(void *context)
{
    struct queue *queue = context;
    queue->scripts.connection = queue->writer;
    queue->scripts.context = queue;
    queue->scripts.on_loaded = on_scripts;
    queue_command(queue, 1, (const char *const[]){"INFO"}, on_info, queue);
}

static void on_client_id(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    struct err bad;
    if (reply && resp_check(reply, &bad)) {
        err_prefix(&bad, "CLIENT ID");
        queue_down(queue, &bad);
    } else if (reply) {
        queue->reader_id = reply->type == RESP_INTEGER ? reply->integer : 0;
        queue->reader_ready = true;
        if (queue->writer_ready) { /* the writer came up first, and its time is old by now */
            ask_time(queue);
        }
    }
}

static void on_reader_up(void *context)
{
    struct queue *queue = context;
    ask(queue, queue->reader, 2, (const char *const[]){"CLIENT", "ID"}, on_client_id, queue);
}

static void on_unblocked(void *context, const struct resp_value *reply)
{
    if (reply) { queue_refused(context, reply, "CLIENT UNBLOCK"); }
}

/* ACTION_UNBLOCK has no event: if it fails, the read blocks for its full time. */
static void unblock(struct queue *queue)
{
    char id[24];
    snprintf(id, sizeof id, "%lld", queue->reader_id);
    if (queue->state == QUEUE_UP) {
        queue_command(queue, 3, (const char *const[]){"CLIENT", "UNBLOCK", id}, on_unblocked, queue);
    }
}

/* --- Life -------------------------------------------------------------------------------------------------------- */

bool queue_name_is(const char *name, size_t length)
{
    return length >= 1 && length <= QUEUE_NAME_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.-") >= length;
}

static void set_defaults(struct queue_options *options)
{
    options->connect_timeout_ms = options->connect_timeout_ms ? options->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    options->command_timeout_ms = options->command_timeout_ms ? options->command_timeout_ms : COMMAND_TIMEOUT_MS;
    options->backoff_ms = options->backoff_ms ? options->backoff_ms : BACKOFF_MS;
    if (options->backoff_cap_ms == 0) { /* so all workers are back before one may judge the leases of the others */
        uint32_t half_ms = options->lease_ms / 2;
        options->backoff_cap_ms = half_ms < options->backoff_ms ? options->backoff_ms
                                  : half_ms < BACKOFF_CAP_MS    ? half_ms
                                                                : BACKOFF_CAP_MS;
    }
    options->max_reply_bytes = options->max_reply_bytes ? options->max_reply_bytes : MAX_REPLY_BYTES;
    options->revision = options->revision ? options->revision : "";
    options->precision = options->precision ? options->precision : "f32";
    options->ttl_s = options->ttl_s ? options->ttl_s : TTL_S;
}

enum status queue_open(const struct queue_options *options, struct queue **out, struct err *err)
{
    if (!queue_name_is(options->name, strlen(options->name))) {
        return err_set(err, STATUS_BAD_INPUT, "a queue's name is 1 to %d of a-z 0-9 _ . -", QUEUE_NAME_MAX);
    }
    struct queue *queue = calloc(1, sizeof *queue);
    if (!queue) { return err_set(err, STATUS_NO_MEMORY, "no memory for the queue"); }
    queue->options = *options;
    queue->witness = -1;
    set_defaults(&queue->options);
    queue->random = options->seed;
    queue->retry = evtimer_new(options->base, on_retry, queue);
    queue->outbox.wake = event_new(options->base, -1, 0, on_outbox, queue);
    queue->group_retry = evtimer_new(options->base, on_group_retry, queue);
    queue->control.timer = evtimer_new(options->base, queue_on_control, queue);
    if (!queue->retry || !queue->outbox.wake || !queue->group_retry || !queue->control.timer) {
        queue_close(queue);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the queue");
    }
    struct find_master_options find = {.base = options->base,
                                       .address = options->address,
                                       .timeout_ms = queue->options.connect_timeout_ms,
                                       .context = queue,
                                       .on_found = on_found,
                                       .on_failed = on_down};
    enum status status = find_master_open(&find, &queue->finder, err);
    if (status) {
        queue_close(queue);
        return status;
    }
    for (int c = 0; c < CLASS_COUNT; c++) {
        queue_key(queue, class_streams[c], "", queue->streams[c]);
        queue->groups[c] = (struct group){.queue = queue, .class = (enum request_class)c};
    }
    make_name(queue);
    queue_meet_neighbours(queue);
    *out = queue;
    return STATUS_OK;
}

void queue_start(struct queue *queue)
{
    queue_wake_in(queue->retry, 0);
}

void queue_close(struct queue *queue)
{
    if (!queue) { return; }
    queue->state = QUEUE_STOPPED;
    dismiss_witness(queue);
    close_connections(queue); /* the failed events of tasks go nowhere; worker_close frees the requests */
    find_master_close(queue->finder);
    entries_free(&queue->entries);
    struct event *const events[] = {queue->retry, queue->outbox.wake, queue->group_retry, queue->control.timer};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (events[i]) { event_free(events[i]); }
    }
    free(queue);
}

struct queue_counters queue_counters(const struct queue *queue)
{
    struct queue_counters counters = {.commands = queue->commands,
                                      .script_calls = queue->scripts.calls,
                                      .script_ns = queue->scripts.calls_ns,
                                      .connects = queue->connects};
    memcpy(counters.ended, queue->ended, sizeof counters.ended);
    return counters;
}

bool queue_tried(const struct queue *queue)
{
    return queue->state != QUEUE_STOPPED && (queue->connects > 0 || queue->trouble.status != STATUS_OK);
}

const char *queue_trouble(const struct queue *queue)
{
    if (queue->state == QUEUE_UP) { return NULL; }
    return queue->trouble.status == STATUS_OK ? "not connected yet" : queue->trouble.message;
}

const char *queue_worker_name(const struct queue *queue)
{
    return queue->worker;
}
