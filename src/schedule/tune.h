/* The length of batches: how long one may be so that 99 of 100 requests are answered within a target.
 *
 * A request that comes while all compute threads are busy waits for one batch and is in the next, so every request pays
 * for the length of batches. The share of the target that a batch may take is found by feedback: it shrinks while the
 * 99th percentile is above the target, and grows while it is well below, because long batches cost less per text. Two
 * bounds prevent harm: a batch is always worth its fixed cost; and if requests wait longer than the target anyway, only
 * throughput helps. */
#ifndef SCHEDULE_TUNE_H
#define SCHEDULE_TUNE_H

#include <stdint.h>

#include "engine/cost.h"

enum {
    TUNE_BUCKETS = 192, /* 8 per doubling of the latency, from 1 ms on */
    TUNE_SEEN_MIN = 200 /* latencies before a percentile means something */
};

/* Recent latencies, and the share that follows from them. */
struct tune {
    uint64_t target_ns; /* 0: off */
    double share;       /* of the target that a batch may take */
    uint32_t buckets[TUNE_BUCKETS], seen;
    uint64_t ends_ns; /* the percentile is not computed earlier */
    uint32_t p99_ms;  /* the last percentile, the upper bound of its bucket; 0: none yet */
};

/* Starts again, also after the target changed. 0: no target; the percentile is still computed. */
void tune_begin(struct tune *tune, uint32_t target_ms);

/* Notes a request's latency, from its XADD to its answer. */
void tune_answered(struct tune *tune, uint64_t latency_ms, uint64_t now_ns);

/* The predicted time that a batch may take; 0: no limit. `oldest_ns`: how long the oldest row has waited. */
double tune_batch_ns(const struct tune *tune, const struct cost *cost, uint64_t oldest_ns);

enum { BUDGET_GROWS_AFTER = 16 }; /* good batches after which a halved budget doubles again */

/* The token budget of a batch: halved when memory ran out, doubled again after a while. */
struct budget {
    uint32_t full, tokens, good;
};

/* Halves the budget, to at least one token, because memory ran out. */
void budget_halve(struct budget *budget);

/* Notes a batch that succeeded: after BUDGET_GROWS_AFTER of them the budget doubles, up to `full`. */
void budget_good(struct budget *budget);

#endif
