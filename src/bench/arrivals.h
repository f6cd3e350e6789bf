/* When requests come: schedules made before the run, so that nothing that happens in it can hold back the next one
 * (an open loop). */
#ifndef BENCH_ARRIVALS_H
#define BENCH_ARRIVALS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A schedule. */
struct arrivals {
    uint64_t *at_ns; /* [count], from the beginning of the run on, none before the one before it */
    size_t count;
};

/* Arrivals of `rate` a second for `for_ns`: `burst` at once, bursts at independent times (a Poisson process; with a
 * burst of 1, of requests). At least one comes. Owns: the caller frees at_ns. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status arrivals_make(double rate, uint32_t burst, uint64_t for_ns, uint64_t seed, struct arrivals *out,
                                     struct err *err);

#endif
