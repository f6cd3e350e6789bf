/* Matrix products in f32 by whole numbers, on processors whose tile registers multiply 8-bit ones: a row of an operand
 * is whole numbers of 32 bits times a power of two, which is the row's own, and such a number is four digits to the
 * base 256.
 *
 * A number of f32 has 24 significant bits, so nothing of it is lost unless it is smaller than 2^-7 of the largest in
 * its row, and then no more than 2^-31 of that one. Digits are multiplied and summed exactly, in 32 bits: the products
 * with the same place value in one sum, for the four highest of the seven place values; what is left out is below 2^-30
 * of the largest product. Only when the four sums are put together is anything rounded to f32, while f32 sums are
 * rounded with every number that is added. So the results are nearer to the true ones than those of f32 products, and a
 * row's bits cannot depend on what is computed beside it, nor on the order.
 *
 * It is fast as well: ten products of 8-bit numbers take the tiles no longer than the vector units take for half of an
 * f32 product, and a weight as digits takes the same four bytes and needs no preparation while it is read. */
#ifndef ENGINE_CPU_DIGITS_H
#define ENGINE_CPU_DIGITS_H

#include "engine/cpu/kernels.h"

enum {
    DIGITS = 4,
    DIGITS_ROWS = 16,            /* of a strip, and outputs of a panel */
    DIGITS_STEP = 64,            /* inputs of one step; the last one is filled with zeros */
    DIGITS_INPUTS_MAX = 1 << 15, /* sums of more could leave their 32 bits */
};

/* Rows as digits, the highest first: value = digits * scale. A row that is not finite has a scale that is not, and any
 * digits. The inputs of a step stand in fours: 0, 16, 32, 48, then 1, 17, 33, 49 and so on.
 * Layout: [strips][steps][DIGITS][16 rows][16 fours][4], of a weight [panels][steps][DIGITS][16 fours][16 outputs][4].
 */
struct digit_rows {
    int8_t *value; /* [digits_bytes(rows, inputs)], aligned to 64 bytes */
    float *scale;  /* [rows]: of the highest digit */
};

/* A product with what follows it: to = end(from x weight^T). */
struct digits_job {
    uint32_t rows, outputs, inputs;     /* outputs are a multiple of DIGITS_ROWS */
    uint32_t first_output, last_output; /* those computed, the same */
    struct digit_rows from;             /* [rows, inputs], by split */
    struct digit_rows weight;           /* [outputs, inputs], by pack */
    enum product_end end;
    enum activation activation;
    const float *bias; /* [outputs] */
    float *to;         /* [rows, outputs] */
};

struct digits_kernels {
    /* Splits the rows from first_row to before last_row. Shapes: from [rows, inputs]; to the same. */
    void (*split)(uint32_t first_row, uint32_t last_row, uint32_t inputs, const float *from, struct digit_rows to);
    /* Shapes: weight [outputs, inputs]; to the same, written. */
    void (*pack)(uint32_t outputs, uint32_t inputs, const float *weight, struct digit_rows to);
    void (*product)(const struct digits_job *job);
};

static inline size_t digits_bytes(size_t rows, size_t inputs)
{
    size_t strips = (rows + DIGITS_ROWS - 1) / DIGITS_ROWS, steps = (inputs + DIGITS_STEP - 1) / DIGITS_STEP;
    return strips * DIGITS_ROWS * steps * DIGITS_STEP * DIGITS;
}

#endif
