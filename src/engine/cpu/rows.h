/* Rows of activations over the words of a vec_*.h header, which is included before this one: loads and stores of any
 * width, sums, and the normalisation, whose arithmetic is the same wherever a row is normalised. */
#ifndef ENGINE_CPU_ROWS_H
#define ENGINE_CPU_ROWS_H

#include <math.h>
#include <string.h>

#include "engine/cpu/kernels.h"
#include "engine/cpu/vec_math.h"

/* The next `left` floats of a row, or VEC of them where there are more; what is missing is 0. */
INLINE vec load_upto(const float *from, uint32_t left)
{
    return left >= VEC ? vec_load(from) : vec_load_part(from, left);
}

/* Likewise written, in each of the two forms that there is. */
INLINE void store_upto(struct activations to, size_t at, vec a, uint32_t left)
{
    if (to.f32 != NULL) {
        if (left >= VEC)
            vec_store(to.f32 + at, a);
        else
            vec_store_part(to.f32 + at, a, left);
    }
    if (to.bf16 != NULL) {
        if (left >= VEC) {
            vec_store_bf16(to.bf16 + at, a);
        } else {
            uint16_t half[VEC];
            vec_store_bf16(half, a);
            memcpy(to.bf16 + at, half, left * sizeof half[0]);
        }
    }
}

/* Sums of one row, in four vectors so that an addition need not wait for the one before. */
struct row_sums {
    vec part[4];
};

INLINE struct row_sums no_sums(void)
{
    return (struct row_sums){{vec_set(0.0f), vec_set(0.0f), vec_set(0.0f), vec_set(0.0f)}};
}

INLINE float total(const struct row_sums *sums)
{
    return vec_sum(vec_add(vec_add(sums->part[0], sums->part[1]), vec_add(sums->part[2], sums->part[3])));
}

/* --- normalisation, in three steps ---------------------------------------------------------------
 */

/* x = x + product + bias, one row. Returns its mean. */
INLINE float norm_add(uint32_t width, const float *product, const float *bias, float *x)
{
    struct row_sums sums = no_sums();
    for (uint32_t i = 0, k = 0; i < width; i += VEC, k = (k + 1) % 4) {
        uint32_t left = width - i;
        vec y = vec_add(load_upto(product + i, left), load_upto(bias + i, left));
        y = vec_add(y, load_upto(x + i, left));
        sums.part[k] = vec_add(sums.part[k], y);
        store_upto((struct activations){.f32 = x}, i, y, left);
    }
    return total(&sums) / (float)width;
}

/* One over the row's deviation. */
INLINE float norm_scale(uint32_t width, const float *x, float mean, float eps)
{
    vec middle = vec_set(mean);
    struct row_sums squares = no_sums();
    uint32_t i = 0;
    for (; i + 4 * VEC <= width; i += 4 * VEC) {
        for (uint32_t k = 0; k < 4; k++) {
            vec d = vec_sub(vec_load(x + i + k * VEC), middle);
            squares.part[k] = vec_fma(d, d, squares.part[k]);
        }
    }
    float square = total(&squares);
    for (; i < width; i++) {
        float d = x[i] - mean;
        square += d * d;
    }
    return 1.0f / sqrtf(square / (float)width + eps);
}

/* Writes the normalised row where x says, from x.f32. */
INLINE void norm_write(uint32_t width, float mean, float scale, const struct norm_weights *norm, struct activations x)
{
    vec middle = vec_set(mean), scales = vec_set(scale);
    for (uint32_t i = 0; i < width; i += VEC) {
        uint32_t left = width - i;
        vec d = vec_mul(vec_sub(load_upto(x.f32 + i, left), middle), scales);
        d = vec_fma(d, load_upto(norm->gain + i, left), load_upto(norm->bias + i, left));
        store_upto(x, i, d, left);
    }
}

INLINE struct activations activations_row(struct activations x, size_t row, uint32_t width)
{
    return (struct activations){x.f32 + row * width, x.bf16 == NULL ? NULL : x.bf16 + row * width};
}

#endif
