/* The promise behind bit-identical vectors, checked on the machine at hand: a row's product does not depend on how many
 * rows are computed with it, nor on its place among them.
 *
 * The rows of the input repeat after CHECK_ROWS; every row of every bucket's product must have the bits of the row with
 * the same input in the largest bucket. The product is kept in f32, where another order of summation shows. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/cpu/gemm_onednn_parts.h"

enum { CHECK_ROWS = 5 };

struct shape_check {
    float *weight, *product;
    char *from;
    void *packed;
    struct matmul_weights *weights;
    struct matmul_runner *runner;
};

static float next_float(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1.0f;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void check_fill(const struct matmul *matmul, struct shape_check *c)
{
    uint32_t state = 1;
    for (size_t i = 0; i < (size_t)matmul->outputs * matmul->inputs; i++)
        c->weight[i] = next_float(&state);
    size_t row_bytes = matmul->inputs * matmul_element_bytes(matmul);
    for (uint32_t r = 0; r < MATMUL_ROWS; r++) {
        if (r >= CHECK_ROWS) {
            memcpy(c->from + r * row_bytes, c->from + r % CHECK_ROWS * row_bytes, row_bytes);
            continue;
        }
        for (uint32_t i = 0; i < matmul->inputs; i++) {
            float value = next_float(&state);
            uint16_t half = to_bf16(value);
            if (matmul->precision == PRECISION_BF16)
                memcpy(c->from + r * row_bytes + i * sizeof half, &half, sizeof half);
            else
                memcpy(c->from + r * row_bytes + i * sizeof value, &value, sizeof value);
        }
    }
}

/* Whether every row of the bucket's product has the bits of the reference row with the same input. */
static bool same_bits(const struct matmul *matmul, const float *reference, const float *product, uint32_t rows)
{
    size_t stride = matmul->whole ? matmul->outputs : matmul->block_outputs;
    for (uint32_t r = 0; r < rows; r++)
        if (memcmp(product + r * stride, reference + r % CHECK_ROWS * stride, matmul->block_outputs * sizeof(float)) !=
            0)
            return false;
    return true;
}

/* What few rows gave: the whole product's rows, or strip by strip. */
static bool few_same_bits(const struct matmul *matmul, const float *reference, const float *product, uint32_t rows)
{
    if (matmul->whole)
        return same_bits(matmul, reference, product, rows);
    for (uint32_t o = 0; o < matmul->block_outputs; o += FEW_STRIP, product += (size_t)rows * FEW_STRIP)
        for (uint32_t r = 0; r < rows; r++)
            if (memcmp(product + r * FEW_STRIP, reference + r % CHECK_ROWS * matmul->block_outputs + o,
                       FEW_STRIP * sizeof(float)) != 0)
                return false;
    return true;
}

static bool few_rows_right(const struct matmul *matmul, const struct shape_check *c, const float *reference,
                           float *product)
{
    const void *from = c->from;
    const struct matmul_way way = {0};
    for (uint32_t rows = 1; rows <= FEW_ROWS; rows++) {
        for (uint32_t strip = 0; strip < matmul->block_outputs / FEW_STRIP; strip++) {
            float *to = matmul->whole ? product : product + (size_t)strip * FEW_STRIP * rows;
            matmul_few_rows_run(matmul, c->weights, strip, &way, rows, from, to);
        }
        if (!few_same_bits(matmul, reference, product, rows))
            return false;
    }
    return true;
}

/* The same for the product of few rows, which is done without where it differs. How many inputs oneDNN sums at once,
 * trying shows. */
static void check_few_rows(struct matmul *matmul, const struct shape_check *c, const float *reference, float *product)
{
    enum { PARTS_MOST = 4 };
    if (matmul->few_rows == NULL)
        return;
    for (uint32_t parts = 1; parts <= PARTS_MOST; parts++) {
        if (matmul->panel_inputs % parts != 0)
            continue;
        matmul->few_inputs = matmul->panel_inputs / parts;
        if (few_rows_right(matmul, c, reference, product))
            return;
    }
    matmul->few_rows = NULL;
}

static enum status check_buckets(struct matmul *matmul, struct shape_check *c, struct err *err)
{
    size_t row = matmul->outputs;
    float *reference = c->product, *product = c->product + CHECK_ROWS * row;
    check_fill(matmul, c);
    TRY(matmul_pack(matmul, c->weight, c->packed, &c->weights, err));
    TRY(matmul_runner_open(matmul->device, &matmul, 1, &c->runner, err));
    uint32_t last = MATMUL_ROWS / matmul->bucket_rows - 1;
    for (uint32_t bucket = last + 1; bucket-- > 0;) {
        if (!matmul->usable[bucket])
            continue;
        TRY(matmul_run_bucket(c->runner, c->runner->shapes, c->weights, 0, bucket, c->from, product, err));
        if (bucket == last)
            memcpy(reference, product, CHECK_ROWS * row * sizeof(float));
        matmul->usable[bucket] = same_bits(matmul, reference, product, (bucket + 1) * matmul->bucket_rows);
    }
    if (!matmul->usable[last])
        return err_set(err, STATUS_UNSUPPORTED, "oneDNN's product of %u by %u depends on a row's place in the batch",
                       matmul->outputs, matmul->inputs);
    check_few_rows(matmul, c, reference, product);
    return STATUS_OK;
}

enum status matmul_check_bits(struct matmul *matmul, struct err *err)
{
    size_t weight_bytes = (size_t)matmul->outputs * matmul->inputs * sizeof(float);
    size_t from_bytes = (size_t)MATMUL_ROWS * matmul->inputs * sizeof(float);
    size_t product_bytes = (size_t)(MATMUL_ROWS + CHECK_ROWS) * matmul->outputs * sizeof(float);
    struct shape_check c = {.weight = memory_aligned(weight_bytes),
                            .product = memory_aligned(product_bytes),
                            .from = memory_aligned(from_bytes),
                            .packed = memory_aligned(matmul_packed_bytes(matmul))};
    enum status status = STATUS_NO_MEMORY;
    if (c.weight != NULL && c.product != NULL && c.from != NULL && c.packed != NULL)
        status = check_buckets(matmul, &c, err);
    else
        err_set(err, status, "no memory to check a matmul");
    matmul_runner_close(c.runner);
    matmul_weights_close(c.weights);
    free(c.weight);
    free(c.product);
    free(c.from);
    free(c.packed);
    return status;
}
