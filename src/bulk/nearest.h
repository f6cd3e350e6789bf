/* The rows of a matrix that are nearest to a vector by cosine: all are looked at, so the answer is exact. */
#ifndef BULK_NEAREST_H
#define BULK_NEAREST_H

#include <stdint.h>

#include "base/err.h"

/* A row, and how near it is. */
struct near_row {
    uint64_t row;
    float cosine; /* -1 to 1, but for rounding */
};

/* A search, and what it has found so far. */
struct nearest {
    const float *query; /* [dim] */
    uint32_t dim, most;
    float length;          /* of the query */
    struct near_row *rows; /* [most], the nearest first; of equal ones the first in the matrix */
    uint32_t count;
    uint64_t seen, skipped; /* rows that were looked at; of them those without a direction: not-a-number, zeros */
};

/* Begins a search for the `most` nearest. Shapes: query [dim] f32, must outlive it. Owns: the caller ends it with
 * nearest_close.
 * Errors: STATUS_BAD_INPUT when the query has no direction; STATUS_NO_MEMORY. */
MUST_CHECK enum status nearest_open(struct nearest *nearest, const float *query, uint32_t dim, uint32_t most,
                                    struct err *err);

/* Frees the rows. */
void nearest_close(struct nearest *nearest);

/* Looks at the next rows. Shapes: rows [count, dim] f32. */
void nearest_add(struct nearest *nearest, const float *rows, uint32_t count);

#endif
