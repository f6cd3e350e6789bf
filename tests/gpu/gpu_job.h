/* The work of the GPU check: texts as token ids, and loads, each a sequence of batches over those texts. */
#ifndef TESTS_GPU_JOB_H
#define TESTS_GPU_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

/* The arrays that a batch points to. */
struct gpu_rows {
    int32_t *ids;
    uint32_t *start, *length;
};

struct gpu_load {
    uint32_t batches;
    struct engine_batch *batch; /* [batches]; each with an output of its own */
    struct gpu_rows *own;       /* [batches] */
    uint64_t tokens, rows;      /* of all its batches, without padding */
};

struct gpu_job {
    uint32_t loads;
    struct gpu_load *load;
    uint32_t most_tokens, most_rows; /* of a batch, padding included */
    float *output;                   /* [rows of all loads, dim], in the order of the file */
    size_t output_floats;
};

/* Reads a job, written by tests/gpu/driver.py, in native int32: the number of texts; their lengths; all their ids; the
 * number of loads, and for each its number of batches, and for each of those 0 (packed) or 1 (padded), its number of
 * rows, and their texts. A file that breaks this ends the process. Owns: the caller ends it with gpu_job_free. */
struct gpu_job *gpu_job_read(const char *path, uint32_t dim);
void gpu_job_free(struct gpu_job *job);

#endif
