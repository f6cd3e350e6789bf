/* The same work over and over on several threads at once, for a time: how much of it they do in a second. */
#ifndef BENCH_TURNS_H
#define BENCH_TURNS_H

#include <stdint.h>

#include "base/err.h"

/* What a thread does; all three on that thread. `open` fills `state`, also after an error, and `close` takes it. */
struct turns {
    enum status (*open)(void *context, void **state, struct err *err);
    enum status (*turn)(void *state, struct err *err);
    void (*close)(void *state);
    void *context;
};

enum { TURNS_THREADS_MAX = 256 };

/* Takes turns on `threads` threads (at most TURNS_THREADS_MAX) for `for_ns` after a first turn of each that does not
 * count. `rate`: turns in a second, of all threads together. Errors: of `open` and `turn`; STATUS_IO (no thread). */
MUST_CHECK enum status turns_measure(const struct turns *turns, unsigned threads, uint64_t for_ns, double *rate,
                                     struct err *err);

#endif
