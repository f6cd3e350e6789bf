/* Whose batch is next: the queues of a daemon share its compute threads by weight.
 *
 * Each queue's finished work is counted in what it cost (tokens, times the weights that one token passes through) over
 * the queue's weight, and the queue that has had least is next. A queue that had nothing to compute for a while starts
 * where the others are: idle time is not saved up. Nobody waits while a thread is free: with one busy queue, it gets
 * everything. Pure; costs are counted, never measured, so the same batches give the same order. */
#ifndef SERVE_SHARES_H
#define SERVE_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include "work/batching.h"

/* One queue's part, and the batches that wait for it. */
struct share {
    uint32_t weight;
    double token_cost;      /* of one token, in any unit that all shares use */
    struct batch **waiting; /* [capacity], a ring, the oldest at `first` */
    size_t first, count;
    double used; /* cost of what was taken, over the weight */
};

/* All queues of the daemon. Zero-initialise for none. */
struct shares {
    struct share *items; /* [count] */
    size_t count;
    size_t capacity; /* batches that may wait in each share */
    double level;    /* `used` of the share that was served last: where a queue begins that was idle */
};

/* Makes `count` shares in which `capacity` batches may wait each; the caller sets their weights (> 0) and costs.
 * Owns: the caller ends it with shares_close, also after an error. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status shares_open(struct shares *shares, size_t count, size_t capacity, struct err *err);

/* Frees the rings; waiting batches stay their workers'. */
void shares_close(struct shares *shares);

/* Lets a batch of share `who` wait for its turn; there must be room. */
void shares_put(struct shares *shares, size_t who, struct batch *batch);

/* The next batch and whose it is; NULL when none waits. */
struct batch *shares_take(struct shares *shares, size_t *who);

#endif
