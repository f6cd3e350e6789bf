/* The kernels for AVX2 with FMA; cmake/Kernels.cmake gives this file its instruction set. */
#ifdef SLUICE_X86
#include "engine/cpu/vec_avx2.h"

enum { DOT_ROWS = 4 };

/* 4 rows by the 16 outputs of one half of a panel. The product of bytes wants one operand without sign: the weight's
 * sign is given to the row's value. No pair's sum leaves 16 bits, as neither operand is below -127. */
static inline void dot_half(const int8_t *from, size_t stride, const int8_t *packed, uint32_t steps,
                            int32_t sums[DOT_ROWS][32])
{
    __m256i sum[DOT_ROWS][2];
    const __m256i ones = _mm256_set1_epi16(1);
    for (uint32_t row = 0; row < DOT_ROWS; row++) {
        sum[row][0] = sum[row][1] = _mm256_setzero_si256();
    }
    for (uint32_t step = 0; step < steps; step++, packed += 1024) { /* over the other half */
        for (uint32_t four = 0; four < 16; four++, packed += 64) {
            for (uint32_t half = 0; half < 2; half++) {
                __m256i weight = _mm256_loadu_si256((const void *)(packed + 32 * half));
                __m256i size = _mm256_abs_epi8(weight);
                for (uint32_t row = 0; row < DOT_ROWS; row++) {
                    int32_t four_values;
                    __builtin_memcpy(&four_values, from + row * stride + (size_t)step * 64 + four * 4, 4);
                    __m256i value = _mm256_sign_epi8(_mm256_set1_epi32(four_values), weight);
                    __m256i pairs = _mm256_madd_epi16(_mm256_maddubs_epi16(size, value), ones);
                    sum[row][half] = _mm256_add_epi32(sum[row][half], pairs);
                }
            }
        }
    }
    for (uint32_t row = 0; row < DOT_ROWS; row++) {
        _mm256_storeu_si256((void *)sums[row], sum[row][0]);
        _mm256_storeu_si256((void *)(sums[row] + 8), sum[row][1]);
    }
}

#define KERNELS_NAME kernels_avx2
#include "engine/cpu/kernels.inc"

#define INT8_NAME int8_avx2
#define INT8_DOT_HALF
#include "engine/cpu/gemm_int8.inc"
#endif
