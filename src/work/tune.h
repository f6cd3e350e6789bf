/* How long a batch may be, so that 99 of 100 requests are answered within a target. Pure; private to work/.
 *
 * A request that comes while all compute threads are busy waits for one batch and is then in the next, so what a batch
 * takes is what tells on every request. The share of the target that a batch may take is found by looking: it shrinks
 * while the 99th percentile is above the target, and grows while it is well below, because long batches cost less per
 * text. Two bounds keep that from doing harm: a batch is always worth its fixed cost, and where requests wait longer
 * than the target anyhow, there is more work than time, and only throughput helps. */
#ifndef WORK_TUNE_H
#define WORK_TUNE_H

#include <stdint.h>

#include "engine/cost.h"

enum {
    TUNE_BUCKETS = 192,   /* 8 for each doubling of a latency, from 1 ms on */
    TUNE_SEEN_LEAST = 200 /* latencies before a percentile means something */
};

/* What is known of the latencies, and the share that follows from it. */
struct tune {
    uint64_t target_ns; /* 0: off */
    double share;       /* of the target that a batch may take */
    uint32_t buckets[TUNE_BUCKETS], seen;
    uint64_t ends_ns; /* the percentile is taken not before */
    uint32_t p99_ms;  /* the last that was taken; 0: none yet. Upper bound of its bucket */
};

/* Begins anew, also when the target has changed; 0: no target, the percentile is still taken. */
void tune_begin(struct tune *tune, uint32_t target_ms);

/* A request was answered so long after it was enqueued. */
void tune_answered(struct tune *tune, uint64_t latency_ms, uint64_t now_ns);

/* What a batch may take, as predicted by `cost`; 0: no limit. `oldest_ns`: how long the oldest row has waited. */
double tune_batch_ns(const struct tune *tune, const struct cost *cost, uint64_t oldest_ns);

#endif
