/* The vectors that a job has written, or another program: read from the first row to the last, a piece at a time.
 *
 * They are read and not mapped: a file that gets shorter or a disk that fails is then a message and not the end of the
 * process, memory stays that of one piece, and the copy costs less than the products that follow. */
#ifndef BULK_MATRIX_H
#define BULK_MATRIX_H

#include "bulk/output.h"
#include "bulk/store.h"

struct matrix;

/* Opens FILE.npy, FILE.f32 or a folder of .npy files, whose rows have `dim` columns.
 * Owns: the caller ends it with matrix_close; `output` must outlive it. Errors: STATUS_NOT_FOUND, STATUS_DENIED,
 * STATUS_IO, STATUS_NO_MEMORY; STATUS_BAD_INPUT naming the file: not an .npy, not f32 or f16, columns that lie
 * together, other dimensions, a size that does not fit its head, a job that has not finished. */
MUST_CHECK enum status matrix_open(const struct output *output, uint32_t dim, struct matrix **out, struct err *err);

/* Closes the files and frees the piece at hand. NULL is allowed. */
void matrix_close(struct matrix *matrix);

/* Rows in all, known from the files' heads. */
uint64_t matrix_rows(const struct matrix *matrix);

/* The next rows; `*count` is 0 at the end. Shapes: rows [count, dim] f32, they live until the next call.
 * Errors: STATUS_IO naming the file. */
MUST_CHECK enum status matrix_next(struct matrix *matrix, const float **rows, uint32_t *count, struct err *err);

#endif
