/* Estimates how long a job still takes: the work that was planned but not computed, plus the rest of the input if it is
 * like the last window, at the speed of the last minutes. Earlier windows predict less, because equal texts become more
 * frequent in the course of a job. Earlier minutes do, too, because a machine or a queue has other work.
 *
 * Work is tokens (bytes of text where there are none). Rows that copy an equal text, that failed when they were read or
 * that an earlier run computed take no time and are no work. */
#ifndef BULK_ESTIMATE_H
#define BULK_ESTIMATE_H

#include <stdint.h>

/* Zero-initialise. */
struct estimate {
    uint64_t since_ns;      /* when the last work was done, or planned for the first time; 0: no work yet */
    double recent, seconds; /* work, and the time that it took; earlier work counts less */
    uint64_t planned, done; /* work of this process */
    uint64_t found;         /* planned work, whichever run computed it */
    double from, to;        /* the part of the input that this process has planned: shares, 0 to 1 */
    double density;         /* work of a whole input that is like the last window */
};

/* Call it when computing begins, at this share of the input; negative: unknown. */
void estimate_begin(struct estimate *estimate, double share);

/* Call it when everything up to `share` is planned: `todo` more work, and `known` work that an earlier run did. */
void estimate_plan(struct estimate *estimate, double share, uint64_t todo, uint64_t known, uint64_t now_ns);

/* Adds the work that was computed since the last call. */
void estimate_done(struct estimate *estimate, uint64_t work, uint64_t now_ns);

/* The share of the input that is computed, 0 to 1; negative: unknown. */
double estimate_share(const struct estimate *estimate);

/* Seconds that are left; negative: unknown. */
double estimate_left_s(const struct estimate *estimate, uint64_t now_ns);

#endif
