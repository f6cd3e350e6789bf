/* The int8 kernels for AVX-512 with VNNI; cmake/Kernels.cmake gives this file its instruction set. */
#ifdef SLUICE_X86
#include "engine/cpu/vec_avx512.h"

enum { DOT_ROWS = 8 };

/* VNNI wants one operand without sign, so 128 is added to every weight; what that adds to a row's sums is 128 times the
 * sum of its values, which they begin with. */
static inline __m512i first_sum(const int8_t *from, uint32_t steps)
{
    __m512i sum = _mm512_setzero_si512();
    for (uint32_t step = 0; step < steps; step++) {
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_loadu_si512(from + (size_t)step * 64));
    }
    return _mm512_set1_epi32(-128 * _mm512_reduce_add_epi32(sum));
}

static inline void int8_dots(const int8_t *from, size_t stride, const int8_t *packed, uint32_t steps,
                             int32_t sums[DOT_ROWS][32])
{
    __m512i sum[DOT_ROWS][2];
    const __m512i high = _mm512_set1_epi8((char)-128);
    for (uint32_t row = 0; row < DOT_ROWS; row++) {
        sum[row][0] = sum[row][1] = first_sum(from + row * stride, steps);
    }
    for (uint32_t step = 0; step < steps; step++, packed += 2048) {
        for (uint32_t four = 0; four < 16; four++) {
            __m512i left = _mm512_xor_si512(_mm512_loadu_si512(packed + four * 64), high);
            __m512i right = _mm512_xor_si512(_mm512_loadu_si512(packed + 1024 + four * 64), high);
            for (uint32_t row = 0; row < DOT_ROWS; row++) {
                int32_t values;
                __builtin_memcpy(&values, from + row * stride + (size_t)step * 64 + four * 4, 4);
                sum[row][0] = _mm512_dpbusd_epi32(sum[row][0], left, _mm512_set1_epi32(values));
                sum[row][1] = _mm512_dpbusd_epi32(sum[row][1], right, _mm512_set1_epi32(values));
            }
        }
    }
    for (uint32_t row = 0; row < DOT_ROWS; row++) {
        _mm512_storeu_si512(sums[row], sum[row][0]);
        _mm512_storeu_si512(sums[row] + 16, sum[row][1]);
    }
}

#define INT8_NAME int8_vnni
#include "engine/cpu/gemm_int8.inc"
#endif
