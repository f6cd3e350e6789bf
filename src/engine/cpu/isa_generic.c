/* The kernels for any machine. */
#include "engine/cpu/vec_generic.h"

enum { DOT_ROWS = 2 };

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
    for (uint32_t step = 0; step < steps; step++, packed += 1024) { /* over the other half */
        for (uint32_t four = 0; four < 16; four++, packed += 64) {
            int8_pairs value[DOT_ROWS];
            for (uint32_t row = 0; row < DOT_ROWS; row++) {
                value[row] = spread(from + row * stride + (size_t)step * 64 + four * 4);
            }
            for (uint32_t i = 0; i < 4; i++) {
                int8_pairs weight;
                memcpy(&weight, packed + 16 * i, sizeof weight);
                for (uint32_t row = 0; row < DOT_ROWS; row++) {
                    sum[row][i] +=
                        add_halves(first_of(weight) * first_of(value[row]) + second_of(weight) * second_of(value[row]));
                }
            }
        }
    }
    for (uint32_t row = 0; row < DOT_ROWS; row++) {
        memcpy(sums[row], sum[row], sizeof sum[row]);
    }
}

#define KERNELS_NAME kernels_generic
#include "engine/cpu/kernels.inc"

#define INT8_NAME int8_generic
#define INT8_DOT_HALF
#include "engine/cpu/gemm_int8.inc"
