/* The int8 kernels for any machine. */
#include "engine/vec_generic.h"

#include <stdbool.h>

enum { DOT_ROWS = 2 };

static inline vec vec_from_s32(const int32_t *from)
{
    vec_int whole;
    memcpy(&whole, from, sizeof whole);
    return __builtin_convertvector(whole, vec);
}

/* a, or where it is beyond it the limit with the sign of a. */
static inline vec vec_clamp(vec a, float limit)
{
    return vec_max(vec_set(-limit), vec_min(vec_set(limit), a));
}

static inline void vec_store_two_bf16(uint16_t *to, vec a, vec b)
{
    vec_store_bf16(to, a);
    vec_store_bf16(to + VEC, b);
}

/* The larger magnitude, lane by lane; compared as whole numbers, so that infinity and NaN are the largest. */
static inline vec vec_magnitude(vec so_far, vec a)
{
    vec_int magnitude = (vec_int)a & 0x7fffffff, largest = (vec_int)so_far;
    return vec_pick(magnitude > largest, (vec)magnitude, so_far);
}

static inline float vec_largest_magnitude(vec a)
{
    vec_int bits = (vec_int)a;
    int32_t largest = bits[0];
    for (int i = 1; i < VEC; i++)
        largest = bits[i] > largest ? bits[i] : largest;
    float value;
    memcpy(&value, &largest, sizeof value);
    return value;
}

/* Rounded once, as a fused multiply and add does it: in f64 the product is exact, and 1.5 * 2^52 pushes its fraction
 * out. */
static inline void vec_store_s8(int8_t *to, vec a, vec inverse)
{
    for (int i = 0; i < VEC; i++) {
        double shifted = (double)a[i] * (double)inverse[i] + 6755399441055744.0;
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        to[i] = (int8_t)(uint8_t)bits;
    }
}

/* Two vectors' magnitudes in bf16 to those so far, and what vec_magnitude would have made of them. */
static inline vec vec_magnitude_bf16(vec so_far, const uint16_t *from)
{
    return vec_magnitude(vec_magnitude(so_far, vec_load_bf16(from)), vec_load_bf16(from + VEC));
}

static inline vec vec_magnitude_of_bf16(vec a)
{
    return a;
}

static inline void vec_store_s8_bf16(int8_t *to, const uint16_t *from, vec inverse)
{
    vec_store_s8(to, vec_load_bf16(from), inverse);
    vec_store_s8(to + VEC, vec_load_bf16(from + VEC), inverse);
}

/* One row's sums with one panel. */
static inline void dot_row(const int8_t *from, const int8_t *packed, uint32_t steps, int32_t sums[32])
{
    memset(sums, 0, 32 * sizeof sums[0]);
    for (uint32_t tile = 0; tile < 2 * steps; tile++)
        for (uint32_t four = 0; four < 16; four++, packed += 64) {
            const int8_t *left = from + (size_t)(tile / 2) * 64 + four * 4;
            int32_t *to = sums + tile % 2 * 16;
            for (uint32_t o = 0; o < 16; o++)
                to[o] += left[0] * packed[4 * o] + left[1] * packed[4 * o + 1] + left[2] * packed[4 * o + 2] +
                         left[3] * packed[4 * o + 3];
        }
}

static inline void int8_dots(const int8_t *from, size_t stride, const int8_t *packed, uint32_t steps,
                             int32_t sums[DOT_ROWS][32])
{
    for (uint32_t row = 0; row < DOT_ROWS; row++)
        dot_row(from + row * stride, packed, steps, sums[row]);
}

static bool int8_runs_here(void)
{
    return true;
}

#define INT8_NAME int8_generic
#define INT8_LABEL "generic"
#include "engine/cpu_int8_body.h"
