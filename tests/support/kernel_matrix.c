/* See kernel_matrix.h. */
#include "kernel_matrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_device.h"
#include "kernel_numbers.h"

static void *need(size_t bytes)
{
    void *memory = calloc(1, bytes == 0 ? 1 : bytes);
    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        abort();
    }
    return memory;
}

static size_t elements(const struct kernel_matrix *matrix)
{
    return (size_t)matrix->rows * matrix->columns;
}

struct kernel_matrix matrix_blank(enum kernel_type type, uint32_t rows, uint32_t columns)
{
    struct kernel_matrix matrix = {type, rows, columns, NULL, NULL};
    matrix.host = need(elements(&matrix) * sizeof(float));
    for (size_t i = 0; i < elements(&matrix); i++) { matrix.host[i] = NAN; }
    matrix.device = device_new(elements(&matrix) * number_bytes(type), NULL);
    return matrix;
}

struct kernel_matrix matrix_random(enum kernel_type type, uint64_t seed, uint32_t rows, uint32_t columns)
{
    struct kernel_matrix matrix = matrix_blank(type, rows, columns);
    numbers_random(type, seed, elements(&matrix), matrix.host);
    matrix_put(&matrix);
    return matrix;
}

void matrix_free(struct kernel_matrix *matrix)
{
    device_free(matrix->device);
    free(matrix->host);
}

void matrix_put(struct kernel_matrix *matrix)
{
    const size_t bytes = elements(matrix) * number_bytes(matrix->type);
    void *packed = need(bytes);
    numbers_write(matrix->type, matrix->host, elements(matrix), packed);
    device_free(matrix->device);
    matrix->device = device_new(bytes, packed);
    free(packed);
}

void matrix_fetch(struct kernel_matrix *matrix)
{
    const size_t bytes = elements(matrix) * number_bytes(matrix->type);
    void *packed = need(bytes);
    device_read(packed, matrix->device, bytes);
    numbers_read(matrix->type, packed, elements(matrix), matrix->host);
    free(packed);
}

float *matrix_at(const struct kernel_matrix *matrix, uint32_t row, uint32_t column)
{
    return matrix->host + (size_t)row * matrix->columns + column;
}

static void fill_tokens(struct kernel_rows *rows, uint32_t vocabulary)
{
    for (uint32_t t = 0; t < rows->tokens; t++) { rows->ids[t] = t % 2 == 0 ? -1 : INT32_MAX; }
    for (uint32_t r = 0; r < rows->rows; r++) {
        for (uint32_t t = 0; t < rows->length[r]; t++) {
            rows->ids[rows->start[r] + t] = (int32_t)((r * 31 + t * 7) % vocabulary);
            rows->position[rows->start[r] + t] = t;
        }
    }
}

struct kernel_rows rows_new(uint32_t rows, const uint32_t *length, uint32_t gap, uint32_t vocabulary)
{
    struct kernel_rows out = {.rows = rows};
    out.start = need(rows * sizeof *out.start);
    out.length = need(rows * sizeof *out.length);
    for (uint32_t r = 0; r < rows; r++) {
        out.start[r] = out.tokens;
        out.length[r] = length[r];
        out.tokens += length[r] + gap;
    }
    out.ids = need(out.tokens * sizeof *out.ids);
    out.position = need(out.tokens * sizeof *out.position);
    fill_tokens(&out, vocabulary);
    uint32_t counts[KERNEL_COUNTS] = {0};
    counts[KERNEL_COUNT_ROWS] = rows;
    counts[KERNEL_COUNT_TOKENS] = out.tokens;
    out.device = (struct kernel_ragged){
        .counts = device_new(sizeof counts, counts),
        .ids = device_new(out.tokens * sizeof *out.ids, out.ids),
        .position = device_new(out.tokens * sizeof *out.position, out.position),
        .start = device_new(rows * sizeof *out.start, out.start),
        .length = device_new(rows * sizeof *out.length, out.length),
    };
    return out;
}

static void device_free_const(const void *device)
{
    void *memory;
    memcpy(&memory, &device, sizeof memory); /* memory that rows_new allocated */
    device_free(memory);
}

void rows_free(struct kernel_rows *rows)
{
    device_free_const(rows->device.counts);
    device_free_const(rows->device.ids);
    device_free_const(rows->device.position);
    device_free_const(rows->device.start);
    device_free_const(rows->device.length);
    free(rows->start);
    free(rows->length);
    free(rows->position);
    free(rows->ids);
}
