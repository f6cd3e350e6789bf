/* A lane: one queue of the daemon, with the worker that decides for it and its connections to Redis.
 *
 *   queue ──events──► worker_step ──actions──► queue (Redis), prep desk (tokenise, format), shares (compute), deadline
 *
 * What lanes share (loop, prep pool, compute threads) belongs to the server. A lane decides nothing: it carries events
 * in and actions out. Thread: the I/O thread, for all of this. */
#ifndef SERVE_LANE_H
#define SERVE_LANE_H

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

/* What the server lends to each of its lanes. */
struct lane_home {
    const struct address *address;
    struct event_base *base;
    struct prep *prep;
    struct shares *shares, *spare_shares; /* spare_shares: of the threads for spare time */
    struct alone *alone;                  /* who has the process: a worker for each lane, by its number */
    struct compute_state capacity;        /* at the start */
    void *context;
    void (*on_step)(void *context); /* a lane has moved: batches may wait, its deadline may be another one */
};

/* A queue that is served; only lane*.c and the server look inside. */
struct lane {
    const struct lane_home *home;
    const struct config *config; /* this queue's own */
    const struct model *model;
    const struct cost *cost;     /* of a batch, as calibrated */
    const struct engine *engine; /* one of them; they are alike */
    unsigned engine_number;      /* for the compute threads */
    size_t number;               /* its share of them */

    struct worker *worker;
    struct queue *queue;
    struct prep_desk desk;
    struct actions actions;
    uint64_t deadline_ns;
    uint64_t compute_timeout_ns; /* 0: none */

    bool was_ready;
    bool stopped, clean;
    enum status ended_with; /* why it stopped; STATUS_OK after a drain */
};

/* Opens worker and queue of a lane whose config, model and numbers are set; nothing is connected yet.
 * Owns: the caller ends it with lane_close, also after an error. Errors: STATUS_NO_MEMORY, STATUS_BAD_INPUT. */
MUST_CHECK enum status lane_open(struct lane *lane, const struct lane_home *home, struct err *err);

/* Begins to connect. */
void lane_start(struct lane *lane);

/* Frees worker and queue; no thread may use their requests and batches any more. */
void lane_close(struct lane *lane);

/* One step of the worker. */
void lane_step(struct lane *lane, const struct event *event);

/* A batch of this lane has had its turn: it goes to a compute thread now, and from now on it can hang. */
void lane_starts(struct lane *lane, struct batch *batch);

/* Steps with what the prep pool has finished. */
void lane_take_prepared(struct lane *lane);

/* Takes over what a reload may change; `config` is the new one of this queue. Errors: those of worker_tune. */
MUST_CHECK enum status lane_tune(struct lane *lane, const struct config *config, struct err *err);

/* A line of counters. */
void lane_log_stats(const struct lane *lane, enum log_level level, const char *event);

/* What the lane holds: a line of sums, and one for each of at most `most` requests. */
void lane_log_held(const struct lane *lane, uint32_t most);

#endif
