/* A queue worker: one queue of the daemon, with the worker that decides for it and its connections to Redis.
 *
 *   queue ──events──► worker_step ──actions──► queue (Redis), prep client (tokenise, format), shares (compute),
 * deadline
 *
 * What queue workers share (loop, prep pool, compute threads) belongs to the server. A queue worker decides nothing: it
 * carries events in and actions out. Thread: the I/O thread, for all of this. */
#ifndef SERVE_QUEUE_WORKER_H
#define SERVE_QUEUE_WORKER_H

#include <stdbool.h>

#include "base/log.h"
#include "io/address.h"
#include "io/queue.h"
#include "serve/compute.h"
#include "serve/config.h"
#include "serve/models.h"
#include "serve/prep.h"
#include "serve/shares.h"
#include "work/worker.h"

struct event_base;

/* What the server lends to each of its queue workers. */
struct shared {
    const struct address *address;
    struct event_base *base;
    struct prep *prep;
    struct shares *shares, *background_shares; /* background_shares: of the background threads */
    struct alone *alone;                       /* who has the process: a worker for each queue worker, by its number */
    struct compute_state capacity;             /* at the start */
    void *context;
    void (*on_step)(void *context); /* a queue worker has moved: batches may wait, its deadline may be another one */
};

/* A queue that is served; only queue worker*.c and the server look inside. */
struct queue_worker {
    const struct shared *shared;
    const struct config *config; /* this queue's own */
    const struct model *model;
    const struct cost *cost;     /* of a batch, as calibrated */
    const struct engine *engine; /* one of them; they are alike */
    unsigned engine_number;      /* for the compute threads */
    size_t number;               /* its share of them */

    struct worker *worker;
    struct queue *queue;
    struct prep_client client;
    struct actions actions;
    uint64_t deadline_ns;
    uint64_t compute_timeout_ns; /* 0: none */

    bool was_ready;
    bool stopped, clean;
    enum status ended_with; /* why it stopped; STATUS_OK after a drain */
};

/* Opens worker and queue of a queue worker whose config, model and numbers are set; nothing is connected yet.
 * Owns: the caller ends it with queue_worker_close, also after an error. Errors: STATUS_NO_MEMORY, STATUS_BAD_INPUT. */
MUST_CHECK enum status queue_worker_open(struct queue_worker *self, const struct shared *shared, struct err *err);

/* Begins to connect. */
void queue_worker_start(struct queue_worker *self);

/* Frees worker and queue; no thread may use their requests and batches any more. */
void queue_worker_close(struct queue_worker *self);

/* One step of the worker. */
void queue_worker_step(struct queue_worker *self, const struct event *event);

/* A batch of this queue worker has had its turn: it goes to a compute thread now, and from now on it can hang. */
void queue_worker_starts(struct queue_worker *self, struct batch *batch);

/* Steps with what the prep pool has finished. */
void queue_worker_take_prepared(struct queue_worker *self);

/* Takes over what a reload may change; `config` is the new one of this queue. Errors: those of worker_tune. */
MUST_CHECK enum status queue_worker_tune(struct queue_worker *self, const struct config *config, struct err *err);

/* A line of counters. */
void queue_worker_log_stats(const struct queue_worker *self, enum log_level level, const char *event);

/* What the queue worker holds: a line of sums, and one for each of at most `most` requests. */
void queue_worker_log_held(const struct queue_worker *self, uint32_t most);

#endif
