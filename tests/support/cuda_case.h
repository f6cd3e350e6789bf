/* How near the tests of the CUDA engine expect a batch to be to the reference. */
#ifndef TESTS_CUDA_CASE_H
#define TESTS_CUDA_CASE_H

#include "cuda_rows.h"
#include "harness.h"

#include "engine/encoder.h"

/* The least cosine to the reference, and the largest difference of an element. */
static const struct cuda_distance cuda_near_f16 = {0.99999, 3e-3};

static inline void cuda_expect(const struct cuda_rows *rows, const struct model *model, struct cuda_distance bounds)
{
    struct cuda_distance distance = cuda_rows_compare(rows, model);
    if (!(distance.cosine >= bounds.cosine) || !(distance.difference <= bounds.difference)) {
        fail_msg("cosine 1 - %g, largest difference %g", 1 - distance.cosine, distance.difference);
    }
}

static inline void cuda_run(struct cuda_opened *opened, struct cuda_rows *rows, enum status expected)
{
    struct err err = {0};
    enum status status = encoder_run(opened->encoder, &rows->batch, &err);
    if (status != expected) { fail_msg("%s: %s", status_name(status), err.message); }
}

#endif
