/* Measured values, kept one by one: percentiles are read off, not estimated. Zero-initialise to start. */
#ifndef BENCH_SAMPLE_H
#define BENCH_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>

/* Values, in the order of their coming until a quantile is asked for. */
struct sample {
    double *values; /* [count] */
    size_t count, capacity;
    bool broken; /* memory ran out, and values are missing */
    bool sorted;
};

/* Adds a value. Errors: the sample is broken. */
void sample_add(struct sample *sample, double value);

/* Frees the values and leaves an empty sample. */
void sample_free(struct sample *sample);

/* The smallest value that a share `q` of all values does not exceed (0.5: the median); NAN without values. */
double sample_quantile(struct sample *sample, double q);

#endif
