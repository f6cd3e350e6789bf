/* Requests to a queue and their replies: what a producer sees, from the time at which it meant to send.
 *
 * A thread of its own reads the results stream that every request names, so that a reply is seen when it comes,
 * whatever the sender does. Every request has a number in its id: a reply that is missing, doubled or an error is
 * noticed. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "bench/report.h"
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

/* When requests come: schedules made before the run, so that nothing that happens in it can hold back the next one
 * (an open loop). */

/* A schedule. */
struct arrivals {
    uint64_t *at_ns; /* [count], from the beginning of the run on, none before the one before it */
    size_t count;
};

/* Arrivals of `rate` a second for `for_ns`: `burst` at once, bursts at independent times (a Poisson process; with a
 * burst of 1, of requests). At least one comes. Owns: the caller frees at_ns. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status arrivals_make(double rate, uint32_t burst, uint64_t for_ns, uint64_t seed, struct arrivals *out,
                                     struct err *err);

/* One run with a daemon of its own: started, warmed up, loaded, ended, its counters read. */

/* What is tried. */
struct trial {
    struct stage *stage;
    const struct texts *texts;
    const char *const *flags; /* of the daemon */
    double offered;           /* requests in a second, at random; NAN: as many as it takes */
    uint32_t burst;           /* so many at once; 0 and 1: one by one */
    uint32_t outstanding;     /* where it takes what it can: so many wait; 0: by the length of the texts */
    uint64_t for_ns;
};

/* What it gave. */
struct trial_result {
    struct load_result load;
    struct daemon_counts counts;
    double mean_tokens;    /* of a text */
    double cpu_s, peak_mb; /* of the daemon, its start included */
};

/* Starts a daemon, sends the load, ends the daemon. Owns: the caller ends the result with trial_free, also after an
 * error.
 * Errors: those of stage_daemon, load_run and stage_end_daemon. */
MUST_CHECK enum status trial_run(const struct trial *trial, struct trial_result *out, struct err *err);

/* Frees the latencies. */
void trial_free(struct trial_result *result);

#endif
