/* Sends requests to a queue and receives the replies, as a producer sees them. Latency is measured from the time
 * when a request was due to be sent.
 *
 * A separate thread reads the results stream that every request names, so each reply is seen as soon as it comes,
 * whatever the sender does. Every request has a number in its id, so a missing, doubled or failed reply is noticed. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "bench/report.h"
#include "bench/stage.h"
#include "bench/texts.h"

/* The result. */
struct load_result {
    size_t sent, answered, failed; /* failed: answered by an error */
    size_t doubled;                /* answers to requests that already had one */
    double seconds;                /* from the first arrival to the last answer */
    double texts_per_s;            /* with `outstanding`: over the last four fifths of `for_ns`; else over `seconds` */
    struct sample latency_ms;      /* from the intended arrival to the reply; the caller frees it */
};

/* The times at which requests come. The schedule is made before the run, so nothing that happens in the run can delay a
 * request (an open loop). */
struct arrivals {
    uint64_t *at_ns; /* [count], since the beginning of the run, ascending */
    size_t count;
};

/* Makes arrivals for `for_ns` at `rate` per second, at least one: a Poisson process. Owns: the caller frees at_ns.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status arrivals_make(double rate, uint64_t for_ns, uint64_t seed, struct arrivals *out,
                                     struct err *err);

/* One run with its own daemon. */
struct trial {
    struct stage *stage;
    const struct texts *texts;
    const char *const *flags; /* of the daemon */
    double offered;           /* requests per second at random times; NAN: at the daemon's limit */
    uint32_t outstanding;     /* with offered NAN: how many requests wait; 0: by the length of the texts */
    uint64_t for_ns;
};

/* The result of a trial. */
struct trial_result {
    struct load_result load;
    struct daemon_counts counts;
    double mean_tokens;    /* per text */
    double cpu_s, peak_mb; /* of the daemon, including its startup */
};

/* Starts a daemon, warms it up, sends the load, ends the daemon and reads its counters. Owns: the caller ends the
 * result with trial_free, also after an error. Errors: those of stage_daemon, client_open, client_command and
 * stage_end_daemon; STATUS_TIMEOUT (no reply for a minute, or interrupted); STATUS_UNAVAILABLE (the daemon has ended).
 */
MUST_CHECK enum status trial_run(const struct trial *trial, struct trial_result *out, struct err *err);

/* Frees the latencies. */
void trial_free(struct trial_result *result);

#endif
