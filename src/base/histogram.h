/* Counts of values between fixed bounds, from which a reader estimates quantiles. Plain integers: one thread adds. */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_BOUNDS = 18 };

/* The largest value of each bucket but the last, ascending, and how it is shown to readers; the last bucket takes all
 * larger values. */
struct histogram_bounds {
    struct {
        uint64_t most;
        const char *shown;
    } buckets[HISTOGRAM_BOUNDS];
    double unit; /* of a value, in what readers are shown: 1e-9 for nanoseconds shown as seconds */
};

extern const struct histogram_bounds histogram_times; /* ns, from 250 us to 5 min */
extern const struct histogram_bounds histogram_sizes; /* powers of two from 1 to 131,072 */

struct histogram {
    const struct histogram_bounds *bounds; /* set before the first value */
    uint64_t counts[HISTOGRAM_BOUNDS + 1]; /* of each bucket by itself */
    uint64_t sum;
};

/* Counts a value. */
void histogram_add(struct histogram *histogram, uint64_t value);

#endif
