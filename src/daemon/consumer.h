/* One queue of the daemon: the worker that decides for it, and its connections to Redis.
 *
 *   queue ──events──► worker_step ──actions──► queue (Redis), prep (tokenise, format), shares (compute), deadline
 *
 * The server owns what the queues share: loop, prep pool, compute threads. A consumer decides nothing: it carries
 * events in and actions out. Thread: the I/O thread, for all of this. */
#ifndef DAEMON_CONSUMER_H
#define DAEMON_CONSUMER_H

#include <stdbool.h>

#include "base/log.h"
#include "compute/compute.h"
#include "compute/models.h"
#include "compute/shares.h"
#include "compute/writer.h"
#include "config/config.h"
#include "daemon/prep.h"
#include "daemon/traces.h"
#include "redis/address.h"
#include "redis/queue.h"
#include "schedule/worker.h"

struct event_base;

/* The state that all queues share; the server owns it. */
struct shared {
    struct address address;
    struct event_base *base;
    struct prep *prep;
    struct traces *traces;                   /* NULL: none are asked for */
    struct shares shares, background_shares; /* background_shares: of the background threads */
    struct exclusive exclusive;    /* which worker has the process to itself; the queue's number is its index */
    struct compute_state capacity; /* at startup */
    size_t queues;
    void *context;
    void (*on_step)(void *context); /* after a step of a queue: batches may wait, its deadline may have changed */
};

/* A queue that is served. Only consumer.c, server.c and monitor.c look inside. */
struct consumer {
    struct shared *shared;
    const struct config *config; /* this queue's own */
    const struct model *model;
    const struct cost *cost;     /* the cost of a batch, as calibrated */
    const struct engine *engine; /* one of the model's engines, which are alike */
    unsigned engine_number;      /* for the compute threads */
    struct writer *writer;       /* in their place if the model generates; else NULL */
    size_t number;               /* its index among the queues and in `shares` */

    struct worker *worker;
    struct queue *queue;
    struct prep_client client;
    struct actions actions;
    uint64_t deadline_ns;
    uint64_t compute_timeout_ns; /* 0: none */

    struct buffer facts;        /* of the model, for queue_options: a C string */
    char kind[ENGINE_KIND + 1]; /* of the engine */

    bool was_ready;
    bool stopped, clean;
    enum status ended_with; /* why it stopped; STATUS_OK after a drain */
};

/* The options of a queue's worker, by the queue's settings, without the seed. The options point into `config` and
 * `model`, which must outlive the worker. */
struct worker_options consumer_options(const struct config *config, const struct model *model,
                                       const struct engine *engine, const struct cost *cost,
                                       struct compute_state capacity);

/* Opens worker and queue; config, model, cost, engine and the numbers are set before. Nothing is connected before
 * queue_start(self->queue). Owns: the caller ends it with consumer_close, also after an error. Errors:
 * STATUS_NO_MEMORY, STATUS_BAD_INPUT. */
MUST_CHECK enum status consumer_open(struct consumer *self, struct shared *shared, struct err *err);

/* Frees worker and queue. No thread may still use their requests and batches. */
void consumer_close(struct consumer *self);

/* Gives the worker an event and executes its actions. */
void consumer_step(struct consumer *self, const struct event *event);

/* Call it when a batch goes to a compute thread: from then on it can hang. */
void consumer_starts(struct consumer *self, struct batch *batch);

/* Gives the worker the requests that the prep pool has finished. */
void consumer_take_prepared(struct consumer *self);

/* Applies the settings that a reload may change; `config` is this queue's new one. Errors: those of worker_tune. */
MUST_CHECK enum status consumer_tune(struct consumer *self, const struct config *config, struct err *err);

/* Logs a line of counters. */
void consumer_log_stats(const struct consumer *self, enum log_level level, const char *event);

/* Logs the requests that the worker holds: a line of sums, and a line for each of at most `most` requests. */
void consumer_log_held(struct consumer *self, uint32_t most);

#endif
