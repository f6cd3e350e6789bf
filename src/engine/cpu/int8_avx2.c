/* The int8 kernels for AVX2 with FMA; cmake/Kernels.cmake gives this file its instruction set. */
#ifdef SLUICE_X86
#include "engine/cpu/vec_avx2.h"

#include <dnnl.h>
#include <stdbool.h>

enum { DOT_ROWS = 4 };

static inline vec vec_from_s32(const int32_t *from)
{
    return _mm256_cvtepi32_ps(_mm256_loadu_si256((const void *)from));
}

/* As in cpu_int8_words_avx512.h. */
struct vec_range {
    __m256i high, low;
};

static inline struct vec_range vec_range_none(void)
{
    return (struct vec_range){_mm256_setzero_si256(), _mm256_setzero_si256()};
}

static inline struct vec_range vec_widen(struct vec_range range, vec a)
{
    range.high = _mm256_max_epi32(range.high, _mm256_castps_si256(a));
    range.low = _mm256_max_epu32(range.low, _mm256_castps_si256(a));
    return range;
}

static inline int32_t vec_high(struct vec_range range)
{
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(range.high), _mm256_extracti128_si256(range.high, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

static inline uint32_t vec_low(struct vec_range range)
{
    __m128i s = _mm_max_epu32(_mm256_castsi256_si128(range.low), _mm256_extracti128_si256(range.low, 1));
    s = _mm_max_epu32(s, _mm_shuffle_epi32(s, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* The nearest whole number of a * inverse, less `middle`: adding 1.5 * 2^23 leaves it in the lowest byte. */
static inline void vec_store_s8(int8_t *to, vec a, vec inverse, vec middle)
{
    vec shift = _mm256_sub_ps(_mm256_set1_ps(12582912.0f), middle);
    __m256i bits = _mm256_castps_si256(_mm256_fmadd_ps(a, inverse, shift));
    const __m256i lowest = _mm256_set1_epi32(0x0c080400);
    __m256i bytes = _mm256_shuffle_epi8(bits, lowest); /* each half's four bytes, in each of its lanes */
    _mm_storel_epi64((void *)to, _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
}

/* 4 rows by the 16 outputs of one half of a panel. The product of bytes wants one operand without sign: the weight's
 * sign is given to the row's value. No pair's sum leaves 16 bits, as neither operand is below -127. */
static inline void dot_half(const int8_t *from, size_t stride, const int8_t *packed, uint32_t steps,
                            int32_t sums[DOT_ROWS][32])
{
    __m256i sum[DOT_ROWS][2];
    const __m256i ones = _mm256_set1_epi16(1);
    for (uint32_t row = 0; row < DOT_ROWS; row++)
        sum[row][0] = sum[row][1] = _mm256_setzero_si256();
    for (uint32_t step = 0; step < steps; step++, packed += 1024) /* over the other half */
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
    for (uint32_t row = 0; row < DOT_ROWS; row++) {
        _mm256_storeu_si256((void *)sums[row], sum[row][0]);
        _mm256_storeu_si256((void *)(sums[row] + 8), sum[row][1]);
    }
}

static bool int8_runs_here(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma");
}

#include "engine/cpu/int8_words_plain.h"

#define INT8_NAME int8_avx2
#define INT8_LABEL "avx2"
#include "engine/cpu/gemm_int8.inc"
#endif
