/* Batches of rows for the tests of the CUDA engine: random ids, packed or padded, one engine and encoder around them.
 */
#ifndef TESTS_CUDA_ROWS_H
#define TESTS_CUDA_ROWS_H

#include "engine/engine.h"
#include "memory_model.h"

enum { CUDA_ROWS_MOST = 48, CUDA_ROWS_TOKENS = 2048 };

/* A batch that owns what it points to. */
struct cuda_rows {
    struct engine_batch batch;
    uint32_t dim;
    uint32_t start[CUDA_ROWS_MOST], length[CUDA_ROWS_MOST];
    int32_t ids[CUDA_ROWS_TOKENS];
    float output[CUDA_ROWS_MOST * 256];
};

/* Rows of the given lengths (0 ends the list) with ids by `seed`; rows are `stride` apart, 0: packed. The gaps hold
 * numbers that would be refused as ids. */
void cuda_rows_make(struct cuda_rows *rows, const struct model *model, const uint32_t *lengths, uint32_t stride,
                    uint64_t seed);

/* How far the vectors are from the plain f64 reference: the least cosine of any row and the largest difference of any
 * element. */
struct cuda_distance {
    double cosine, difference;
};
struct cuda_distance cuda_rows_compare(const struct cuda_rows *rows, const struct model *model);

struct cuda_opened {
    struct model *model;
    struct engine *engine;
    struct encoder *encoder;
};

/* Opens "cuda" for a model in memory, which it takes over; any failure ends the process. NULL options: room for
 * CUDA_ROWS_TOKENS. */
struct cuda_opened cuda_opened(struct model *model, const struct engine_options *options);
void cuda_opened_close(struct cuda_opened *opened);

#endif
