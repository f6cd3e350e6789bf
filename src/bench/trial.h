/* One run with a daemon of its own: started, warmed up, loaded, ended, its counters read. */
#ifndef BENCH_TRIAL_H
#define BENCH_TRIAL_H

#include "bench/load.h"

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
