/* What the int8 kernels need that follows from fewer words, for the files that have nothing better: those of a vec_*.h
 * header, struct vec_range and vec_widen, vec_store_s8 and dot_half. Included after them. */
#ifndef ENGINE_CPU_INT8_WORDS_PLAIN_H
#define ENGINE_CPU_INT8_WORDS_PLAIN_H

#include <string.h>

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

/* Two vectors in bf16, and what vec_widen would have made of them. */
static inline struct vec_range vec_widen_bf16(struct vec_range range, const uint16_t *from)
{
    return vec_widen(vec_widen(range, vec_load_bf16(from)), vec_load_bf16(from + VEC));
}

static inline struct vec_range vec_range_of_bf16(struct vec_range range)
{
    return range;
}

static inline void vec_store_s8_bf16(int8_t *to, const uint16_t *from, vec inverse, vec middle)
{
    vec_store_s8(to, vec_load_bf16(from), inverse, middle);
    vec_store_s8(to + VEC, vec_load_bf16(from + VEC), inverse, middle);
}

/* Rows by a whole panel. */
static inline void int8_dots(const int8_t *from, size_t stride, const int8_t *packed, uint32_t steps,
                             int32_t sums[DOT_ROWS][32])
{
    int32_t half[DOT_ROWS][32];
    dot_half(from, stride, packed, steps, sums);
    dot_half(from, stride, packed + 1024, steps, half);
    for (uint32_t row = 0; row < DOT_ROWS; row++)
        memcpy(sums[row] + 16, half[row], 16 * sizeof half[row][0]);
}

#endif
