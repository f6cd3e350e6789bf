#include "bulk/estimate.h"

#include <math.h>

#include "base/clock.h"

enum { RECENT_S = 120 };

static double seconds_since(uint64_t then_ns, uint64_t now_ns)
{
    return now_ns > then_ns ? (double)(now_ns - then_ns) / (double)NS_PER_S : 0;
}

void estimate_begin(struct estimate *estimate, double share)
{
    estimate->from = estimate->to = share;
}

void estimate_plan(struct estimate *estimate, double share, uint64_t todo, uint64_t known, uint64_t now_ns)
{
    estimate->planned += todo;
    estimate->found += todo + known;
    if (share > estimate->to) { estimate->density = (double)(todo + known) / (share - estimate->to); }
    if (share < 0 || share > estimate->to) { estimate->to = share; }
    if (estimate->since_ns == 0 && todo > 0) { estimate->since_ns = now_ns; }
}

void estimate_done(struct estimate *estimate, uint64_t work, uint64_t now_ns)
{
    double seconds = seconds_since(estimate->since_ns, now_ns), weight = exp(-seconds / RECENT_S);
    estimate->recent = estimate->recent * weight + (double)work;
    estimate->seconds = estimate->seconds * weight + seconds;
    estimate->since_ns = now_ns;
    estimate->done += work;
}

double estimate_share(const struct estimate *estimate)
{
    double waiting = (double)(estimate->planned - estimate->done), part = estimate->to - estimate->from;
    if (estimate->to < 0 || estimate->found == 0) { return estimate->to; }
    return estimate->to - part * waiting / (double)estimate->found;
}

double estimate_left_s(const struct estimate *estimate, uint64_t now_ns)
{
    double seconds = estimate->seconds + seconds_since(estimate->since_ns, now_ns);
    if (estimate->to < 0 || estimate->recent <= 0 || seconds <= 0) { return -1; }
    double left = (double)(estimate->planned - estimate->done) + estimate->density * (1 - estimate->to);
    return left * seconds / estimate->recent;
}
