/* The queue's frame: two connections that live and die together, and who executes which action.
 *
 * Everything that goes wrong ends in queue_down: close both connections (their commands come back unanswered, so each
 * task becomes a failed event), one EVENT_DISCONNECTED behind those, and a timer for the next try. */
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "io/queue_parts.h"

enum { CONNECT_TIMEOUT_MS = 5000, COMMAND_TIMEOUT_MS = 5000, BACKOFF_MS = 100, BACKOFF_CAP_MS = 5000, TTL_S = 3600 };
static const uint64_t MAX_REPLY_BYTES = 64 << 20;

/* --- Connections ------------------------------------------------------------------------------------------------- */

static void close_connections(struct queue *queue)
{
    struct connection *reader = queue->reader, *writer = queue->writer;
    queue->reader = queue->writer = NULL;
    queue->scripts.connection = NULL;
    queue->reader_ready = queue->writer_ready = queue->rejoining = false;
    find_master_stop(queue->finder);
    connection_close(reader);
    connection_close(writer);
}

/* Leaves the present state for `to`: everything that is out fails, and the worker hears of a disconnect if it had heard
 * of a connection. */
static void drop(struct queue *queue, enum queue_state to)
{
    if (queue->state == QUEUE_UP) {
        queue->disconnect_due = true;
        queue->stats.reconnects++;
        event_active(queue->outbox, EV_TIMEOUT, 1);
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
    queue->fatal = *err;
    queue->fatal_due = true;
    event_active(queue->outbox, EV_TIMEOUT, 1);
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
        .master_only = endpoint != NULL,
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

/* What finds the server: names to addresses, and which of several is the master. */
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
    for (int class = 0; class < CLASS_COUNT; class ++) {
        queue_key(queue, class_streams[class], "", queue->streams[class]);
        queue->groups[class] = (struct group){.queue = queue, .class = (enum request_class) class};
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
    queue->outbox = event_new(options->base, -1, 0, queue_on_outbox, queue);
    queue->group_retry = evtimer_new(options->base, queue_on_group_retry, queue);
    queue->control.timer = evtimer_new(options->base, queue_on_control, queue);
    if (!queue->retry || !queue->outbox || !queue->group_retry || !queue->control.timer) {
        queue_close(queue);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the queue");
    }
    enum status status = open_finders(queue, err);
    if (status) {
        queue_close(queue);
        return status;
    }
    name_streams(queue);
    queue_take_name(queue);
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
    close_connections(queue); /* every task becomes a failed event, which nobody hears; its requests are the worker's */
    find_master_close(queue->finder);
    resolver_close(queue->resolver);
    entries_free(&queue->entries);
    struct event *const events[] = {queue->retry, queue->outbox, queue->group_retry, queue->control.timer};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (events[i]) {
            event_free(events[i]);
        }
    }
    free(queue);
}

void queue_execute(struct queue *queue, struct action *action)
{
    switch (action->kind) {
    case ACTION_READ:
        queue_read(queue, action);
        break;
    case ACTION_READ_OWN:
        queue_read_own(queue, action);
        break;
    case ACTION_RECLAIM:
        queue_reclaim(queue, action);
        break;
    case ACTION_SHED:
        queue_shed(queue, action);
        break;
    case ACTION_FAIR:
        queue_fair(queue, action);
        break;
    case ACTION_SWEEP:
        queue_sweep(queue, action);
        break;
    case ACTION_TRACK:
        queue_track(queue, action);
        break;
    case ACTION_PULSE:
        queue_pulse(queue, action);
        break;
    case ACTION_SETTLE:
        queue_settle(queue, action);
        break;
    case ACTION_CHARGE:
        queue_charge(queue, action);
        break;
    case ACTION_RELEASE:
        queue_release(queue, action);
        break;
    case ACTION_RENEW:
        queue_renew(queue, action);
        break;
    case ACTION_PROMOTE:
        queue_promote(queue, action);
        break;
    case ACTION_MEND:
        queue_mend(queue, action);
        break;
    case ACTION_UNBLOCK:
        queue_unblock(queue);
        break;
    case ACTION_REJOIN:
        queue_rejoin(queue);
        break;
    default:
        break; /* PREPARE, SUBMIT, FORMAT and EXIT are serve's */
    }
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
