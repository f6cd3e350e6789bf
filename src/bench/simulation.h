/* A queue in virtual time: requests at random times, a Redis that does one thing at a time, and workers, each of which
 * is the daemon's own (schedule/worker.h) with prep and compute threads that take given times. So the workers' reads,
 * and the moment and size of each batch, are not modelled: only times are.
 *
 * Nothing fails in it, and all requests are of one class, one tenant and one text. The same options give the same
 * result. */
#ifndef BENCH_SIMULATION_H
#define BENCH_SIMULATION_H

#include "base/err.h"
#include "bench/report.h"
#include "schedule/worker.h"

/* The costs of a request in addition to its batch. */
struct simulated_costs {
    double hop_ns;     /* from one thread or process to the next; a request takes ten of them */
    double redis_ns;   /* of Redis' main thread, from XADD to the reply */
    double prepare_ns; /* of a prep thread: to tokenise its text … */
    double format_ns;  /* … and to write its reply */
    double alone;     /* how much longer than predicted a batch takes that is alone on the machine, after a pause … */
    double crowded;   /* … or while all compute threads have one; 1: not longer */
    uint32_t cores;   /* of the machine; 0: a GPU computes. If none is idle, prep and I/O threads slow batches, … */
    double wake_ns;   /* … by this for each wake-up, in addition to the times above, … */
    double beside_ns; /* … and other programs do, by this for a request */
    uint32_t prep_threads;
    uint32_t reply_bytes;
};

enum { SIMULATION_FIELDS = 2 };

/* Writes the fields of an entry that has this text embedded, or classified by a model with labels. Returns their
 * number. */
size_t simulation_fields(const struct request_rules *rules, const char *text, size_t bytes,
                         struct entry_field out[SIMULATION_FIELDS]);

/* The length of a text. */
struct simulated_text {
    uint32_t tokens, bytes;
};

/* The queue to simulate. */
struct simulation {
    struct worker_options options; /* of each worker; batches take the time that its cost predicts */
    uint32_t workers;
    const struct simulated_text
        *texts; /* [text_count]; each request has one of them at random, but with ids of its own */
    size_t text_count;
    double rate;     /* requests a second, a Poisson process */
    uint64_t for_ns; /* they come for this time; the first half is not counted */
    uint64_t seed;
    struct simulated_costs costs;
};

/* The results. All but the latencies are of the second half. */
struct simulated {
    struct sample latency_ms; /* from XADD to the reply, of requests that came in the second half; those that have none
                                 at the end count as if they got it then. The caller frees it */
    double requests_per_s;    /* answered */
    double busy_share;        /* of all compute threads */
    double redis_share;       /* of Redis' main thread */
    double batch_rows;        /* the mean */
};

/* Runs a simulation. Owns: the caller ends `out` with sample_free(&out->latency_ms), also after an error. Errors: those
 * of worker_open; STATUS_NO_MEMORY; STATUS_INTERNAL (a worker acts as only faults can make it act). Thread: any. */
MUST_CHECK enum status simulation_run(const struct simulation *simulation, struct simulated *out, struct err *err);

#endif
