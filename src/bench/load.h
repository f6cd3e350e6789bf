/* Requests to a queue and their replies: what a producer sees, from the time at which it meant to send.
 *
 * A thread of its own reads the results stream that every request names, so that a reply is seen when it comes,
 * whatever the sender does. Every request has a number in its id: a reply that is missing, doubled or an error is
 * noticed. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include "bench/arrivals.h"
#include "bench/sample.h"
#include "bench/stage.h"
#include "bench/texts.h"

/* What is sent, and how fast. */
struct load {
    struct stage *stage;
    const struct texts *texts;
    const char *encoding;
    struct child *daemon;            /* is to live as long as the run */
    const struct arrivals *arrivals; /* NULL: as many as make `outstanding` requests wait, all the time … */
    uint32_t outstanding;
    uint64_t for_ns; /* … for so long */
};

/* What came of it. */
struct load_result {
    size_t sent, answered, failed; /* failed: answered by an error */
    size_t doubled;                /* answers to what had its answer */
    double seconds;                /* from the first arrival to the last answer */
    double texts_per_s;            /* with `outstanding`: over the last four fifths of the time it was kept up; else of
                                      all, over `seconds` */
    struct sample latency_ms;      /* from the intended arrival to the reply; the caller frees it */
};

/* Sends all requests and waits for every reply. Errors: those of client_open and client_command; STATUS_TIMEOUT (no
 * reply for a minute, or interrupted); STATUS_UNAVAILABLE (the daemon has ended). */
MUST_CHECK enum status load_run(const struct load *load, struct load_result *out, struct err *err);

/* Sends one request and waits for its reply: the daemon is ready then. Errors: as load_run. */
MUST_CHECK enum status load_warm_up(const struct load *load, struct err *err);

#endif
