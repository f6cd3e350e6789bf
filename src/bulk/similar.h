/* Finds the rows of a job's output that are nearest to a vector by cosine, exactly: it compares all of them. Files are
 * read, not mapped: one that shrinks meanwhile is an error, not a crash. */
#ifndef BULK_SIMILAR_H
#define BULK_SIMILAR_H

#include "bulk/output/files.h"

/* A row and its similarity. */
struct near_row {
    uint64_t row;
    float cosine; /* -1 to 1, except for rounding */
};

/* A search and its results so far. */
struct nearest {
    const float *query; /* [dim] */
    uint32_t dim, most;
    double length;         /* of the query */
    struct near_row *rows; /* [most], the nearest first; of equal ones the first in the files */
    uint32_t count;
    uint64_t seen, skipped; /* rows compared; of these, rows without a direction: NaN or zeros */
};

/* Begins a search for the `most` nearest. Shapes: query [dim] f32, must outlive it. Owns: the caller frees
 * `nearest->rows`, also after an error. Errors: STATUS_BAD_INPUT when the query has no direction; STATUS_NO_MEMORY. */
MUST_CHECK enum status nearest_open(struct nearest *nearest, const float *query, uint32_t dim, uint32_t most,
                                    struct err *err);

/* Compares the next rows. Shapes: rows [count, dim] f32. */
void nearest_add(struct nearest *nearest, const float *rows, uint32_t count);

/* Compares all rows of FILE.npy, FILE.f32 or a folder of .npy files, a mebibyte at a time. Errors: STATUS_BAD_INPUT
 * naming a file that does not hold f32 or f16 in rows of `dim`, or a job that has not finished; others of files. */
MUST_CHECK enum status nearest_read(struct nearest *nearest, const struct output *output, struct err *err);

#endif
