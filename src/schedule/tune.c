/* The length of batches: how long one may be. */
#include "schedule/tune.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"

enum { PERIOD_MS = 1000, PER_DOUBLING = 8 };

static const double share_first = 0.25, share_least = 0.01, share_most = 1;
static const double shrink = 0.7, grow = 1.2; /* of the share, per period */
static const double well_below = 0.7;         /* of the target: below this the share grows */
static const double worth = 10;               /* a batch may take at least this many times the cost of an empty one */

void tune_begin(struct tune *tune, uint32_t target_ms)
{
    *tune = (struct tune){.target_ns = target_ms * NS_PER_MS, .share = share_first};
}

static uint32_t latency_bucket(uint64_t latency_ms)
{
    double place = latency_ms <= 1 ? 0 : ceil(log2((double)latency_ms) * PER_DOUBLING);
    return place < TUNE_BUCKETS ? (uint32_t)place : TUNE_BUCKETS - 1;
}

static uint32_t percentile_99(const struct tune *tune)
{
    uint32_t above = tune->seen / 100, bucket = TUNE_BUCKETS;
    for (uint32_t passed = 0; bucket > 0 && passed <= above;) { passed += tune->buckets[--bucket]; }
    return (uint32_t)floor(exp2((double)bucket / PER_DOUBLING));
}

static void adjust_share(struct tune *tune)
{
    double target_ms = (double)tune->target_ns / (double)NS_PER_MS;
    if (tune->p99_ms > target_ms) {
        tune->share = fmax(share_least, tune->share * shrink);
    } else if (tune->p99_ms < well_below * target_ms) {
        tune->share = fmin(share_most, tune->share * grow);
    }
}

void tune_answered(struct tune *tune, uint64_t latency_ms, uint64_t now_ns)
{
    if (tune->seen == 0) { tune->ends_ns = now_ns + PERIOD_MS * NS_PER_MS; }
    tune->buckets[latency_bucket(latency_ms)]++;
    if (++tune->seen < TUNE_SEEN_MIN || now_ns < tune->ends_ns) { return; }
    tune->p99_ms = percentile_99(tune);
    if (tune->target_ns != 0) { adjust_share(tune); }
    memset(tune->buckets, 0, sizeof tune->buckets);
    tune->seen = 0;
}

double tune_batch_ns(const struct tune *tune, const struct cost *cost, uint64_t oldest_ns)
{
    if (tune->target_ns == 0 || oldest_ns > tune->target_ns || !cost_known(cost)) { return 0; }
    return fmax(tune->share * (double)tune->target_ns, worth * cost_predict_ns(cost, (struct cost_shape){0}));
}

/* --- the token budget --- */

void budget_halve(struct budget *budget)
{
    budget->tokens = budget->tokens > 1 ? budget->tokens / 2 : 1;
    budget->good = 0;
}

void budget_good(struct budget *budget)
{
    if (budget->tokens >= budget->full || ++budget->good < BUDGET_GROWS_AFTER) { return; }
    budget->good = 0;
    budget->tokens = budget->tokens > budget->full / 2 ? budget->full : budget->tokens * 2;
}
