/* What the int8 kernels need beyond vec_avx512.h. */
#ifndef ENGINE_CPU_INT8_WORDS_AVX512_H
#define ENGINE_CPU_INT8_WORDS_AVX512_H

#include "engine/cpu/vec_avx512.h"

static inline vec vec_from_s32(const int32_t *from)
{
    return _mm512_cvtepi32_ps(_mm512_loadu_si512(from));
}

/* a, or where it is beyond it the limit with the sign of a. */
static inline vec vec_clamp(vec a, float limit)
{
    return _mm512_range_ps(a, _mm512_set1_ps(limit), 2); /* the smaller magnitude, with the sign of a */
}

static inline void vec_store_two_bf16(uint16_t *to, vec a, vec b)
{
#ifdef __AVX512BF16__
    __m512bh halves = _mm512_cvtne2ps_pbh(b, a);
    __builtin_memcpy(to, &halves, sizeof halves);
#else
    vec_store_bf16(to, a);
    vec_store_bf16(to + VEC, b);
#endif
}

/* The bits of the highest number and of the lowest one: the largest with and without a sign, infinities and NaN among
 * them. Both begin with zero, and where nothing is negative, the lowest is not either. */
struct vec_range {
    __m512i high, low;
};

static inline struct vec_range vec_range_none(void)
{
    return (struct vec_range){_mm512_setzero_si512(), _mm512_setzero_si512()};
}

static inline struct vec_range vec_widen(struct vec_range range, vec a)
{
    range.high = _mm512_max_epi32(range.high, _mm512_castps_si512(a));
    range.low = _mm512_max_epu32(range.low, _mm512_castps_si512(a));
    return range;
}

static inline int32_t vec_high(struct vec_range range)
{
    return _mm512_reduce_max_epi32(range.high);
}

static inline uint32_t vec_low(struct vec_range range)
{
    return _mm512_reduce_max_epu32(range.low);
}

/* The nearest whole number of a * inverse, less `middle`: adding 1.5 * 2^23 leaves it in the lowest byte. */
static inline void vec_store_s8(int8_t *to, vec a, vec inverse, vec middle)
{
    vec shifted = _mm512_fmadd_ps(a, inverse, _mm512_sub_ps(_mm512_set1_ps(12582912.0f), middle));
    _mm_storeu_si128((void *)to, _mm512_cvtepi32_epi8(_mm512_castps_si512(shifted)));
}

/* Of two vectors in bf16, in the upper and lower halves of the lanes. */
static inline struct vec_range vec_widen_bf16(struct vec_range range, const uint16_t *from)
{
    __m512i bits = _mm512_loadu_si512(from);
    range.high = _mm512_max_epi16(range.high, bits);
    range.low = _mm512_max_epu16(range.low, bits);
    return range;
}

/* From halves to whole lanes, as vec_widen has them. */
static inline struct vec_range vec_range_of_bf16(struct vec_range range)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    range.high = _mm512_max_epi32(_mm512_and_si512(range.high, upper), _mm512_slli_epi32(range.high, 16));
    range.low = _mm512_max_epu32(_mm512_and_si512(range.low, upper), _mm512_slli_epi32(range.low, 16));
    return range;
}

/* vec_store_s8 for two vectors in bf16. */
static inline void vec_store_s8_bf16(int8_t *to, const uint16_t *from, vec inverse, vec middle)
{
    const vec shift = _mm512_sub_ps(_mm512_set1_ps(12582912.0f), middle);
    __m512i bits = _mm512_loadu_si512(from), upper = _mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000));
    vec even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)), inverse, shift);
    vec odd = _mm512_fmadd_ps(_mm512_castsi512_ps(upper), inverse, shift);
    __m512i lowest =
        _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_castps_si512(even), _mm512_slli_epi32(_mm512_castps_si512(odd), 16));
    _mm256_storeu_si256((void *)to, _mm512_cvtepi16_epi8(lowest));
}

#endif
