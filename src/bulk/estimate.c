#include "bulk/estimate.h"

#include "base/clock.h"

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
    if (estimate->begun_ns == 0 && todo > 0) { estimate->begun_ns = now_ns; }
}

void estimate_done(struct estimate *estimate, uint64_t work)
{
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
    if (estimate->to < 0 || estimate->done == 0 || now_ns <= estimate->begun_ns) { return -1; }
    double seconds = (double)(now_ns - estimate->begun_ns) / (double)NS_PER_S;
    double left = (double)(estimate->planned - estimate->done) + estimate->density * (1 - estimate->to);
    return left * seconds / (double)estimate->done;
}
