/* A queue in virtual time: requests at random times, a Redis that does one thing at a time, and workers, each of which
 * is the daemon's own (schedule/worker.h) with prep and compute threads that take as long as they are said to take. So
 * what the workers read, when they cut a batch and how long it is are no model: only times are.
 *
 * Nothing fails in it, and all requests are of one class, one tenant and one text. The same options give the same
 * result. */
#ifndef BENCH_SIMULATION_H
#define BENCH_SIMULATION_H

#include "base/err.h"
#include "bench/report.h"
#include "schedule/worker.h"

/* What a request costs beside its batch. */
struct simulated_costs {
    double hop_ns;     /* from one thread or process to the next; a request takes ten of them */
    double redis_ns;   /* of Redis' main thread, from XADD to the reply */
    double prepare_ns; /* of a prep thread: to tokenise its text … */
    double format_ns;  /* … and to write its reply */
    double alone; /* how much longer than predicted a batch takes that has the machine for itself, after a pause … */
    double crowded; /* … and while all compute threads have one; 1: no longer */
    uint32_t cores; /* of the machine; 0: a GPU computes. If none idles, prep and I/O threads take from batches, … */
    double wake_ns; /* … so much each time that one wakes, beside the above, … */
    double beside_ns; /* … and other programs so much for a request */
    uint32_t prep_threads;
    uint32_t reply_bytes;
};

enum { SIMULATION_FIELDS = 2 };

/* The fields of an entry that has this text embedded, or classified by a model with labels. Returns how many. */
size_t simulation_fields(const struct request_rules *rules, const char *text, size_t bytes,
                         struct entry_field out[SIMULATION_FIELDS]);

/* The length of a text. */
struct simulated_text {
    uint32_t tokens, bytes;
};

/* What is simulated. */
struct simulation {
    struct worker_options options; /* of each worker; batches take what its cost predicts */
    uint32_t workers;
    const struct simulated_text
        *texts; /* [text_count], of which each request has one at random, different ids though */
    size_t text_count;
    double rate;     /* requests a second, a Poisson process */
    uint64_t for_ns; /* they come for so long; what came or ended in the first half is not counted */
    uint64_t seed;
    struct simulated_costs costs;
};

/* What came of it. All but latencies are of the second half. */
struct simulated {
    struct sample latency_ms; /* from XADD to the reply, of requests that came in the second half; those that have none
                                 at the end count as if they got it then. The caller frees it */
    double requests_per_s;    /* answered */
    double busy_share;        /* of all compute threads */
    double redis_share;       /* of Redis' main thread */
    double batch_rows;        /* the mean */
};

/* Runs it. Owns: the caller ends `out` with sample_free(&out->latency_ms), also after an error. Errors: those of
 * worker_open; STATUS_NO_MEMORY; STATUS_INTERNAL (a worker asks for what only faults bring). Thread: any. */
MUST_CHECK enum status simulation_run(const struct simulation *simulation, struct simulated *out, struct err *err);

#endif
