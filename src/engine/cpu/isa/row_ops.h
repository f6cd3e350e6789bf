/* Rows of activations, written on the words of a vec_*.h header that is included first: loads and stores of any width,
 * sums, and LayerNorm, whose arithmetic is the same wherever a row is normalised. */
#ifndef ENGINE_CPU_ISA_ROW_OPS_H
#define ENGINE_CPU_ISA_ROW_OPS_H

#include <math.h>
#include <string.h>

#include "engine/cpu/isa/vec_math.h"
#include "engine/cpu/kernels.h"

/* The next min(left, VEC) floats of a row; the rest of the vector is 0. */
INLINE vec load_upto(const float *from, uint32_t left)
{
    return left >= VEC ? vec_load(from) : vec_load_part(from, left);
}

/* The same from bf16. */
INLINE vec load_bf16_upto(const uint16_t *from, uint32_t left)
{
    uint16_t half[VEC] = {0};
    if (left >= VEC) { return vec_load_bf16(from); }
    memcpy(half, from, left * sizeof half[0]);
    return vec_load_bf16(half);
}

/* The same from a weight as it is stored, from element `at` on. */
INLINE vec load_stored_upto(const void *from, enum dtype dtype, size_t at, uint32_t left)
{
    uint16_t half[VEC] = {0};
    if (dtype == DTYPE_F32) { return load_upto((const float *)from + at, left); }
    const uint16_t *stored = (const uint16_t *)from + at;
    if (dtype == DTYPE_BF16) { return load_bf16_upto(stored, left); }
    if (left >= VEC) { return vec_load_f16(stored); }
    memcpy(half, stored, left * sizeof half[0]);
    return vec_load_f16(half);
}

/* Stores the first min(left, VEC) floats. */
INLINE void vec_store_upto(float *to, vec a, uint32_t left)
{
    if (left >= VEC) {
        vec_store(to, a);
    } else {
        vec_store_part(to, a, left);
    }
}

/* The same, rounded to bf16. */
INLINE void vec_store_bf16_upto(uint16_t *to, vec a, uint32_t left)
{
    uint16_t half[VEC];
    if (left >= VEC) {
        vec_store_bf16(to, a);
        return;
    }
    vec_store_bf16(half, a);
    memcpy(to, half, left * sizeof half[0]);
}

/* The same from element `at` on, to each destination in `to`. */
INLINE void activations_store(struct activations to, size_t at, vec a, uint32_t left)
{
    if (to.f32) { vec_store_upto(to.f32 + at, a, left); }
    if (to.bf16) { vec_store_bf16_upto(to.bf16 + at, a, left); }
}

/* Sums of one row in four vectors, so that an addition need not wait for the one before. */
struct row_sums {
    vec part[4];
};

/* Sums of nothing yet. */
INLINE struct row_sums no_sums(void)
{
    return (struct row_sums){{vec_set(0.0f), vec_set(0.0f), vec_set(0.0f), vec_set(0.0f)}};
}

/* The total of the first `parts` vectors, 1 or 4. */
INLINE float total_of_row(const struct row_sums *sums, const uint32_t parts)
{
    if (parts == 1) { return vec_sum(sums->part[0]); }
    return vec_sum(vec_add(vec_add(sums->part[0], sums->part[1]), vec_add(sums->part[2], sums->part[3])));
}

/* The mean that a norm subtracts from a row. */
INLINE float norm_mean(const struct norm_weights *norm, float sum, uint32_t width)
{
    return norm->rms ? 0.0f : sum / (float)width;
}

/* x = x + product + bias, one row. Returns its sum. */
INLINE float row_add(uint32_t width, const float *product, const float *bias, float *x)
{
    struct row_sums sums = no_sums();
    for (uint32_t i = 0, k = 0; i < width; i += VEC, k = (k + 1) % 4) {
        uint32_t left = width - i;
        vec y = vec_add(load_upto(product + i, left), load_upto(bias + i, left));
        y = vec_add(y, load_upto(x + i, left));
        sums.part[k] = vec_add(sums.part[k], y);
        vec_store_upto(x + i, y, left);
    }
    return total_of_row(&sums, 4);
}

/* --- LayerNorm of some rows in step, so that no row waits for its own sums. A row's arithmetic does not depend on
 * their number. `rows` and `parts` are constants at every call. --- */

enum { NORM_ROWS_MAX = 4 };

/* 1 / the standard deviation of each row. */
INLINE void norm_scales(const uint32_t rows, const uint32_t parts, uint32_t width, const float *x, const float *mean,
                        float eps, float *scale)
{
    struct row_sums squares[NORM_ROWS_MAX];
    uint32_t i = 0;
    for (uint32_t r = 0; r < rows; r++) { squares[r] = no_sums(); }
    for (; i + parts * VEC <= width; i += parts * VEC) {
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t k = 0; k < parts; k++) {
                vec d = vec_sub(vec_load(x + (size_t)r * width + i + k * VEC), vec_set(mean[r]));
                squares[r].part[k] = vec_fma(d, d, squares[r].part[k]);
            }
        }
    }
    for (uint32_t r = 0; r < rows; r++) {
        float square = total_of_row(&squares[r], parts);
        for (uint32_t k = i; k < width; k++) {
            float d = x[(size_t)r * width + k] - mean[r];
            square += d * d;
        }
        scale[r] = 1.0f / sqrtf(square / (float)width + eps);
    }
}

/* Writes the normalised rows of `from` to each destination in `x`. */
INLINE void norm_write(const uint32_t rows, uint32_t width, const float *from, const float *mean, const float *scale,
                       const struct norm_weights *norm, struct activations x)
{
    for (uint32_t i = 0; i < width; i += VEC) {
        uint32_t left = width - i;
        vec gain = load_upto(norm->gain + i, left), bias = load_upto(norm->bias + i, left);
        for (uint32_t r = 0; r < rows; r++) {
            size_t at = (size_t)r * width + i;
            vec y = vec_mul(vec_sub(load_upto(from + at, left), vec_set(mean[r])), vec_set(scale[r]));
            y = vec_fma(y, gain, bias);
            activations_store(x, at, y, left);
        }
    }
}

/* The destination of one row; x.f32 must not be NULL. Shapes: x [rows, width]. */
INLINE struct activations activations_row(struct activations x, size_t row, uint32_t width)
{
    return (struct activations){x.f32 + row * width, x.bf16 ? x.bf16 + row * width : NULL};
}

#endif
