/* The int8 kernels for any machine. */
#include "engine/cpu/vec_generic.h"

#include <stdbool.h>

enum { DOT_ROWS = 2 };

static inline vec vec_from_s32(const int32_t *from)
{
    vec_int whole;
    memcpy(&whole, from, sizeof whole);
    return __builtin_convertvector(whole, vec);
}

/* As in cpu_int8_words_avx512.h. */
struct vec_range {
    int32_t high[VEC];
    uint32_t low[VEC];
};

static inline struct vec_range vec_range_none(void)
{
    return (struct vec_range){{0}, {0}};
}

static inline struct vec_range vec_widen(struct vec_range range, vec a)
{
    vec_int bits = (vec_int)a;
    for (int i = 0; i < VEC; i++) {
        range.high[i] = bits[i] > range.high[i] ? bits[i] : range.high[i];
        range.low[i] = (uint32_t)bits[i] > range.low[i] ? (uint32_t)bits[i] : range.low[i];
    }
    return range;
}

static inline int32_t vec_high(struct vec_range range)
{
    int32_t high = 0;
    for (int i = 0; i < VEC; i++)
        high = range.high[i] > high ? range.high[i] : high;
    return high;
}

static inline uint32_t vec_low(struct vec_range range)
{
    uint32_t low = 0;
    for (int i = 0; i < VEC; i++)
        low = range.low[i] > low ? range.low[i] : low;
    return low;
}

/* The nearest whole number of a * inverse, less `middle`. Rounded once, as a fused multiply and add does it: in f64 the
 * product is exact, and 1.5 * 2^52 pushes its fraction out. */
static inline void vec_store_s8(int8_t *to, vec a, vec inverse, vec middle)
{
    for (int i = 0; i < VEC; i++) {
        double shifted = (double)a[i] * (double)inverse[i] + (6755399441055744.0 - (double)middle[i]);
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        to[i] = (int8_t)(uint8_t)bits;
    }
}

typedef int16_t int8_pairs __attribute__((vector_size(16))); /* two bytes in a lane, or a number of their size */
typedef uint16_t int8_bits __attribute__((vector_size(16)));
typedef int32_t int8_fours __attribute__((vector_size(16)));
typedef uint32_t int8_four_bits __attribute__((vector_size(16)));

static inline int8_pairs first_of(int8_pairs two)
{
    return (int8_pairs)((int8_bits)two << 8) >> 8;
}

static inline int8_pairs second_of(int8_pairs two)
{
    return two >> 8;
}

/* Four values of a row, again and again. */
static inline int8_pairs spread(const int8_t *from)
{
    int32_t four;
    memcpy(&four, from, sizeof four);
    return (int8_pairs)(int8_fours){four, four, four, four};
}

static inline int8_fours add_halves(int8_pairs both)
{
    int8_fours whole = (int8_fours)both;
    return (whole >> 16) + ((int8_fours)((int8_four_bits)whole << 16) >> 16);
}

/* Rows by the 16 outputs of one half of a panel, four of them in a vector. No sum of two products leaves 16 bits, as
 * no byte is below -127. Weight and values are taken apart alike, so that the order of bytes does not matter. */
static inline void dot_half(const int8_t *from, size_t stride, const int8_t *packed, uint32_t steps,
                            int32_t sums[DOT_ROWS][32])
{
    int8_fours sum[DOT_ROWS][4] = {{{0}}};
    for (uint32_t step = 0; step < steps; step++, packed += 1024) /* over the other half */
        for (uint32_t four = 0; four < 16; four++, packed += 64) {
            int8_pairs value[DOT_ROWS];
            for (uint32_t row = 0; row < DOT_ROWS; row++)
                value[row] = spread(from + row * stride + (size_t)step * 64 + four * 4);
            for (uint32_t i = 0; i < 4; i++) {
                int8_pairs weight;
                memcpy(&weight, packed + 16 * i, sizeof weight);
                for (uint32_t row = 0; row < DOT_ROWS; row++)
                    sum[row][i] +=
                        add_halves(first_of(weight) * first_of(value[row]) + second_of(weight) * second_of(value[row]));
            }
        }
    for (uint32_t row = 0; row < DOT_ROWS; row++)
        memcpy(sums[row], sum[row], sizeof sum[row]);
}

static bool int8_runs_here(void)
{
    return true;
}

#include "engine/cpu/int8_words_plain.h"

#define INT8_NAME int8_generic
#define INT8_LABEL "generic"
#include "engine/cpu/gemm_int8.inc"
