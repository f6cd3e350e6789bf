/* The operands of the kernels' tests: matrices with an f32 copy on the test's side, and the ragged batch. */
#ifndef TESTS_KERNEL_MATRIX_H
#define TESTS_KERNEL_MATRIX_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

struct kernel_matrix {
    enum kernel_type type;
    uint32_t rows, columns;
    float *host;  /* [rows, columns] */
    void *device; /* [rows, columns] type */
};

/* Seeded numbers of [-1, 1), on both sides. Owns: matrix_free. */
struct kernel_matrix matrix_random(enum kernel_type type, uint64_t seed, uint32_t rows, uint32_t columns);

/* Not a number anywhere, on both sides. Owns: matrix_free. */
struct kernel_matrix matrix_blank(enum kernel_type type, uint32_t rows, uint32_t columns);

void matrix_free(struct kernel_matrix *matrix);

/* Copies from the test's side to the device, rounding; and back. */
void matrix_put(struct kernel_matrix *matrix);
void matrix_fetch(struct kernel_matrix *matrix);

/* One element on the test's side. */
float *matrix_at(const struct kernel_matrix *matrix, uint32_t row, uint32_t column);

/* Rows of tokens with random ids below a vocabulary; the gaps hold ids that no vocabulary has. */
struct kernel_rows {
    uint32_t rows, tokens;
    uint32_t *start, *length, *position; /* on the test's side, as are the ids */
    int32_t *ids;
    struct kernel_ragged device; /* without tiles */
};

/* Owns: the caller ends it with rows_free. `gap`: tokens after each row that belong to none. */
struct kernel_rows rows_new(uint32_t rows, const uint32_t *length, uint32_t gap, uint32_t vocabulary);
void rows_free(struct kernel_rows *rows);

#endif
