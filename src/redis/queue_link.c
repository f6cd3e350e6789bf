#include "redis/queue_link.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "redis/queue_ends.h"

static void close_connections(struct queue *queue)
{
    struct connection *reader = queue->reader, *writer = queue->writer;
    queue->reader = queue->writer = NULL;
    queue->scripts.connection = NULL;
    queue->reader_ready = queue->writer_ready = false;
    find_master_stop(queue->link->finder);
    connection_close(reader);
    connection_close(writer);
}

/* Changes to state `to`: all tasks fail, and a worker that was connected gets EVENT_DISCONNECTED. */
static void drop_connections(struct queue *queue, enum queue_state to)
{
    if (queue->state == QUEUE_UP) {
        queue->outbox.disconnect_due = true;
        event_active(queue->outbox.wake, EV_TIMEOUT, 1);
    }
    queue->state = to;
    close_connections(queue);
}

static void dismiss_witness(struct queue *queue)
{
    if (queue->link->witness >= 0) { close(queue->link->witness); }
    queue->link->witness = -1;
}

void queue_stop(struct queue *queue, const struct err *err)
{
    if (queue->state == QUEUE_STOPPED) { return; }
    queue->outbox.fatal = *err;
    if (strstr(err->message, "NOPERM")) {
        size_t length = strlen(err->message);
        snprintf(queue->outbox.fatal.message + length, sizeof err->message - length,
                 " (a worker needs the worker's login: acl/worker.acl)");
    }
    queue->outbox.fatal_due = true;
    queue->link->why_down = *err;
    event_active(queue->outbox.wake, EV_TIMEOUT, 1);
    event_del(queue->link->retry);
    dismiss_witness(queue);
    drop_connections(queue, QUEUE_STOPPED);
}

uint64_t queue_link_backoff_ms(const struct queue *queue, unsigned tries)
{
    uint64_t wait_ms = queue->options.backoff_ms;
    for (unsigned i = 0; i < tries && wait_ms < queue->options.backoff_cap_ms; i++) { wait_ms *= 2; }
    return wait_ms < queue->options.backoff_cap_ms ? wait_ms : queue->options.backoff_cap_ms;
}

/* Shortens the backoff: to its beginning after a connection that lasted, and to nearly that after one on which requests
 * ended. Coming up alone is not enough: Redis may close each connection over our first commands. */
static void shorten_backoff(struct queue *queue)
{
    enum { SERVED_TRIES = 2 };
    bool lasted = clock_now_ns() - queue->link->up_ns >= queue->options.backoff_cap_ms * NS_PER_MS;
    if (lasted) {
        queue->link->tries = 0;
    } else if (queue->link->tries > SERVED_TRIES && queue_ended(queue) > queue->link->up_ended) {
        queue->link->tries = SERVED_TRIES;
    }
}

/* A limit of Redis closes only one connection. Keeps a descriptor of the other one, which shows at the next attempt
 * whether that stayed open. */
static void note_loss(struct queue *queue)
{
    bool reader = connection_was_closed(queue->reader), writer = connection_was_closed(queue->writer);
    dismiss_witness(queue);
    if (reader != writer) { queue->link->witness = connection_duplicate(reader ? queue->writer : queue->reader); }
    queue->link->loss = queue->link->witness < 0 ? LOSS_OTHER : reader ? LOSS_READER : LOSS_WRITER;
}

/* Forgets the loss if the other connection was closed, too: then no limit was the cause. */
static void hear_witness(struct queue *queue)
{
    char byte;
    ssize_t length = queue->link->witness < 0 ? 1 : recv(queue->link->witness, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    bool open = length > 0 || (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
    if (!open) { queue->link->loss = LOSS_OTHER; }
    dismiss_witness(queue);
}

void queue_link_lost(struct queue *queue, const struct err *err)
{
    if (queue->state != QUEUE_UP && queue->state != QUEUE_CONNECTING) { return; }
    if (err->status == STATUS_DENIED) {
        queue_stop(queue, err);
        return;
    }
    if (queue->state == QUEUE_UP) {
        note_loss(queue);
        shorten_backoff(queue);
    }
    uint64_t wait_ms = queue_link_backoff_ms(queue, queue->link->tries++);
    wait_ms = wait_ms / 2 + random_next(&queue->link->random) % (wait_ms / 2 + 1);
    queue->link->why_down = *err;
    log_warn(queue->state == QUEUE_UP ? "redis_lost" : "redis_unavailable", log_str("queue", queue->options.name),
             log_str("reason", err->message), log_int("retry_in_ms", (int64_t)wait_ms));
    drop_connections(queue, QUEUE_WAITING);
    queue_wake_in(queue->link->retry, wait_ms);
}

enum loss queue_link_up(struct queue *queue)
{
    enum loss loss = queue->link->loss;
    queue->state = QUEUE_UP;
    queue->link->ups++;
    queue->link->up_ns = clock_now_ns();
    queue->link->up_ended = queue_ended(queue);
    queue->link->loss = LOSS_OTHER;
    return loss;
}

static void on_down(void *context, const struct err *err)
{
    queue_link_lost(context, err);
}

static void on_found(void *context, const struct endpoint *endpoint)
{
    struct queue *queue = context;
    struct err err;
    struct connection_options options = {
        .base = queue->options.base,
        .address = queue->options.address,
        .endpoint = endpoint,
        .resolver = find_master_resolver(queue->link->finder),
        .name = queue->worker,
        .master_only = endpoint,
        .connect_timeout_ms = queue->options.connect_timeout_ms,
        .max_reply_bytes = queue->options.max_reply_bytes,
        .cut_bytes = queue->options.max_reply_bytes / CUT_PART,
        .context = queue,
        .on_up = queue->link->on_writer_up,
        .on_down = on_down,
    };
    queue->link->endpoint = endpoint;
    enum status status = connection_open(&options, &queue->writer, &err);
    options.on_up = queue->link->on_reader_up;
    if (!status) { status = connection_open(&options, &queue->reader, &err); }
    if (status) { queue_link_lost(queue, &err); }
}

static void on_retry(evutil_socket_t fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    hear_witness(queue);
    queue->state = QUEUE_CONNECTING;
    find_master_start(queue->link->finder);
}

enum status queue_link_open(struct queue *queue, struct err *err)
{
    struct find_master_options find = {.base = queue->options.base,
                                       .address = queue->options.address,
                                       .timeout_ms = queue->options.connect_timeout_ms,
                                       .context = queue,
                                       .on_found = on_found,
                                       .on_failed = on_down};
    queue->link->random = queue->options.seed;
    queue->link->retry = evtimer_new(queue->options.base, on_retry, queue);
    if (!queue->link->retry) { return err_set(err, STATUS_NO_MEMORY, "no memory for the queue"); }
    return find_master_open(&find, &queue->link->finder, err);
}

void queue_link_close(struct queue *queue)
{
    queue->state = QUEUE_STOPPED;
    dismiss_witness(queue);
    close_connections(queue); /* the failed events of tasks go nowhere; worker_close frees the requests */
    find_master_close(queue->link->finder);
    if (queue->link->retry) { event_free(queue->link->retry); }
}
