/* The three things that the GPU check does with a job: vectors, throughput, latency. Any failure ends the process. */
#ifndef TESTS_GPU_RUN_H
#define TESTS_GPU_RUN_H

#include "gpu_job.h"

struct gpu_timing {
    uint32_t runs;      /* how often all loads are run for their vectors */
    uint32_t rounds;    /* how often each load is measured */
    uint32_t round_ms;  /* at least so long; a load is repeated as a whole */
    uint32_t warm_ups;  /* runs of each load before any is measured: algorithms are chosen and graphs captured there */
    uint32_t latencies; /* runs of each load for its p50 and p99 */
};

/* An encoder and how many batches it takes at a time. */
struct gpu_lane {
    struct encoder *encoder;
    unsigned slots;
};

/* Computes all loads `runs` times and writes the last run's vectors to `path`: f32, in the order of the job. */
void gpu_run_vectors(const struct gpu_lane *lane, const struct gpu_job *job, const struct gpu_timing *timing,
                     const char *path);

/* Keeps as many batches under way as the lane takes. Prints a JSON line for each load:
 * {"load": 3, "rows": 64, "tokens": 8192, "seconds": [s, ...]}: seconds for one run of it, one figure for each round.
 */
void gpu_run_rates(const struct gpu_lane *lane, const struct gpu_job *job, const struct gpu_timing *timing);

/* One batch at a time, waiting for each. Prints for each load {"load": 0, "samples": 2000, "p50_ms": ..., "p99_ms":
 * ..., "least_ms": ...}; a load of several batches is one sample for each of them. */
void gpu_run_latencies(const struct gpu_lane *lane, const struct gpu_job *job, const struct gpu_timing *timing);

#endif
