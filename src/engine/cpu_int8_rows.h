/* Rows of floats, and the whole numbers that are made of them: each row has a scale of its own, and an offset where it
 * is to have one. Included by cpu_int8_norm.h, behind the words of cpu_int8_body.h. */
#ifndef ENGINE_CPU_INT8_ROWS_H
#define ENGINE_CPU_INT8_ROWS_H

#include "engine/cpu_int8.h"
#include "engine/cpu_rows.h"

/* As load_upto, of bf16. */
INLINE vec int8_load_half(const uint16_t *from, uint32_t left)
{
    uint16_t half[VEC] = {0};
    if (left >= VEC)
        return vec_load_bf16(from);
    memcpy(half, from, left * sizeof half[0]);
    return vec_load_bf16(half);
}

/* The other way: what is behind `left` is not touched. */
INLINE void int8_store(float *to, vec a, uint32_t left)
{
    if (left >= VEC)
        vec_store(to, a);
    else
        vec_store_part(to, a, left);
}

/* The same as bf16. */
INLINE void int8_store_half(uint16_t *to, vec a, uint32_t left)
{
    uint16_t half[VEC];
    if (left >= VEC) {
        vec_store_bf16(to, a);
        return;
    }
    vec_store_bf16(half, a);
    memcpy(to, half, left * sizeof half[0]);
}

/* How a row becomes whole numbers: the nearest ones of x * inverse, less `middle`. */
struct int8_fit {
    float inverse, middle;
};

/* The same as whole numbers. */
INLINE void int8_store_whole(int8_t *to, vec a, struct int8_fit fit, uint32_t left)
{
    int8_t whole[VEC];
    if (left >= VEC) {
        vec_store_s8(to, a, vec_set(fit.inverse), vec_set(fit.middle));
        return;
    }
    vec_store_s8(whole, a, vec_set(fit.inverse), vec_set(fit.middle));
    memcpy(to, whole, left);
}

INLINE float int8_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The scale of a row whose largest magnitude is known. Of a row below 1e-30 nothing is left, as 127 / largest has to
 * stay finite. */
INLINE struct int8_fit int8_fit_even(float largest, float *scale)
{
    *scale = isfinite(largest) ? 0 : NAN;
    if (!isfinite(largest) || largest < 1e-30f)
        return (struct int8_fit){0, 0};
    *scale = largest / INT8_LARGEST;
    return (struct int8_fit){INT8_LARGEST / largest, 0};
}

/* The same with an offset. With the ends 253 steps apart and the middle rounded, no number leaves -127 to 127. Each
 * product is a statement, lest a compiler fuse it with a sum on some instruction sets and not on others. */
INLINE struct int8_fit int8_fit_uneven(float high, float low, float *scale, float *offset)
{
    float above = high * (1.0f / INT8_RANGE), below = low * (1.0f / INT8_RANGE), step = above - below;
    *offset = 0;
    *scale = isfinite(step) ? 0 : NAN;
    if (!isfinite(step) || step < 1e-32f)
        return (struct int8_fit){0, 0};
    float inverse = 1 / step, middle = rintf((high + low) * (0.5f * inverse));
    *scale = step;
    *offset = middle * step;
    return (struct int8_fit){inverse, middle};
}

/* The scale and, where it is to have one, the offset of a row whose range is known. */
INLINE struct int8_fit int8_fit_row(struct vec_range range, struct int8_rows to, uint32_t row)
{
    uint32_t high = (uint32_t)vec_high(range), low = vec_low(range), sign = 0x80000000;
    low = low < sign ? sign : low;
    if (to.offset != NULL)
        return int8_fit_uneven(int8_float(high), int8_float(low), to.scale + row, to.offset + row);
    return int8_fit_even(int8_float(high > low - sign ? high : low - sign), to.scale + row);
}

static void int8_quantise_plain(uint32_t width, const float *from, struct int8_rows to, uint32_t row, size_t stride)
{
    struct vec_range range = vec_range_none();
    int8_t *value = to.value + row * stride;
    for (uint32_t i = 0; i < width; i += VEC)
        range = vec_widen(range, load_upto(from + i, width - i));
    struct int8_fit fit = int8_fit_row(range, to, row);
    for (uint32_t i = 0; i < width; i += VEC)
        int8_store_whole(value + i, load_upto(from + i, width - i), fit, width - i);
}

/* Two vectors at a time, as long as there are whole ones. */
static void int8_quantise_half(uint32_t width, const uint16_t *from, struct int8_rows to, uint32_t row, size_t stride)
{
    struct vec_range range = vec_range_none();
    uint32_t pairs = width / (2 * VEC) * (2 * VEC);
    int8_t *value = to.value + row * stride;
    for (uint32_t i = 0; i < pairs; i += 2 * VEC)
        range = vec_widen_bf16(range, from + i);
    range = vec_range_of_bf16(range);
    for (uint32_t i = pairs; i < width; i += VEC)
        range = vec_widen(range, int8_load_half(from + i, width - i));
    struct int8_fit fit = int8_fit_row(range, to, row);
    for (uint32_t i = 0; i < pairs; i += 2 * VEC)
        vec_store_s8_bf16(value + i, from + i, vec_set(fit.inverse), vec_set(fit.middle));
    for (uint32_t i = pairs; i < width; i += VEC)
        int8_store_whole(value + i, int8_load_half(from + i, width - i), fit, width - i);
}

static void int8_quantise(uint32_t rows, uint32_t width, struct activations from, struct int8_rows to, size_t stride)
{
    for (uint32_t row = 0; row < rows; row++) {
        if (from.f32 != NULL)
            int8_quantise_plain(width, from.f32 + (size_t)row * width, to, row, stride);
        else
            int8_quantise_half(width, from.bf16 + (size_t)row * width, to, row, stride);
    }
}

#endif
