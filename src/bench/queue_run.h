/* One measurement of the queue's loop, on a Redis or at least a queue of its own: what one has written the next must
 * not pay for. */
#ifndef BENCH_QUEUE_RUN_H
#define BENCH_QUEUE_RUN_H

#include <signal.h>

#include "serve/config.h"

/* Who settles: a daemon with the null engine, or the bare client of ceiling.c. */
enum queue_kind { QUEUE_DAEMON, QUEUE_BARE, QUEUE_KINDS };

/* What is measured. */
struct queue_run {
    const struct config *config;
    const volatile sig_atomic_t *stop;
    bool appendonly;
    const char *encoding;
    uint32_t dim;
    uint64_t requests; /* that are settled */
    uint64_t depth;    /* that wait all the time, because as many are added as are settled; 0: the stream runs dry */
};

/* Requests in a second, and what each cost Redis' main thread. Units: us, in Redis itself and in the kernel. */
struct queue_figures {
    double per_s, user_us, system_us;
};

/* Fills a stream and measures. Of a stream that stays full it is the middle eight tenths of the requests, with both
 * kinds. Errors: those of stage_open and ceiling_run; STATUS_TIMEOUT, STATUS_INTERNAL (a request has no vector). */
MUST_CHECK enum status queue_run(const struct queue_run *run, enum queue_kind kind, struct queue_figures *out,
                                 struct err *err);

#endif
