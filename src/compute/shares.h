/* Chooses the queue whose batch is next: the queues of a daemon share its compute threads by weight.
 *
 * Each queue has a counter: the cost of its batches (tokens times the weights that a token passes through) divided by
 * the queue's weight. The queue with the lowest counter is next. A queue that was idle starts where the others are,
 * because idle time is not saved up. No queue waits while a thread is free: a single busy queue gets everything. Pure:
 * costs are counted, never measured, so the same batches give the same order. */
#ifndef COMPUTE_SHARES_H
#define COMPUTE_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include "schedule/batch.h"

/* One queue's share, and its waiting batches. */
struct share {
    uint32_t weight;
    double token_cost;      /* of one token; all shares use the same unit */
    struct batch **waiting; /* [capacity], a ring, the oldest at `first` */
    size_t first, count;
    double used; /* cost of the batches taken, divided by the weight */
};

/* All queues of the daemon. Zero-initialise for none. */
struct shares {
    struct share *items; /* [count] */
    size_t count;
    size_t capacity; /* of each ring */
    double level;    /* `used` of the share that was served last: where an idle queue starts again */
};

/* Makes `count` shares in which `capacity` batches may wait each. The caller sets weights (> 0) and costs.
 * Owns: the caller ends it with shares_close, also after an error. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status shares_open(struct shares *shares, size_t count, size_t capacity, struct err *err);

/* Frees the rings. Waiting batches still belong to their workers. */
void shares_close(struct shares *shares);

/* Appends a batch to share `who`, which must have room. */
void shares_put(struct shares *shares, size_t who, struct batch *batch);

/* Takes the next batch, and sets `who` to its share; NULL when none waits. */
struct batch *shares_take(struct shares *shares, size_t *who);

#endif
