/* What the int8 kernels need beyond vec_avx512.h. */
#ifndef ENGINE_CPU_INT8_WORDS_AVX512_H
#define ENGINE_CPU_INT8_WORDS_AVX512_H

#include "engine/vec_avx512.h"

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

/* The larger magnitude, lane by lane; compared as whole numbers, so that infinity and NaN are the largest. */
static inline vec vec_magnitude(vec so_far, vec a)
{
    __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff));
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(so_far), magnitude));
}

static inline float vec_largest_magnitude(vec a)
{
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(_mm512_castps_si512(a)))));
}

/* Adding 1.5 * 2^23 leaves the nearest whole number in the lowest byte. */
static inline void vec_store_s8(int8_t *to, vec a, vec inverse)
{
    vec shifted = _mm512_fmadd_ps(a, inverse, _mm512_set1_ps(12582912.0f));
    _mm_storeu_si128((void *)to, _mm512_cvtepi32_epi8(_mm512_castps_si512(shifted)));
}

/* The larger magnitudes of two vectors in bf16: bit for bit in the upper and lower halves of the lanes. */
static inline vec vec_magnitude_bf16(vec so_far, const uint16_t *from)
{
    __m512i magnitude = _mm512_and_si512(_mm512_loadu_si512(from), _mm512_set1_epi16(0x7fff));
    return _mm512_castsi512_ps(_mm512_max_epu16(_mm512_castps_si512(so_far), magnitude));
}

/* From halves to whole lanes, as vec_magnitude has them. */
static inline vec vec_magnitude_of_bf16(vec a)
{
    __m512i bits = _mm512_castps_si512(a), upper = _mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000));
    return _mm512_castsi512_ps(_mm512_max_epi32(upper, _mm512_slli_epi32(bits, 16)));
}

/* vec_store_s8 for two vectors in bf16. */
static inline void vec_store_s8_bf16(int8_t *to, const uint16_t *from, vec inverse)
{
    const vec shift = _mm512_set1_ps(12582912.0f);
    __m512i bits = _mm512_loadu_si512(from), upper = _mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000));
    vec even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)), inverse, shift);
    vec odd = _mm512_fmadd_ps(_mm512_castsi512_ps(upper), inverse, shift);
    __m512i lowest =
        _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_castps_si512(even), _mm512_slli_epi32(_mm512_castps_si512(odd), 16));
    _mm256_storeu_si256((void *)to, _mm512_cvtepi16_epi8(lowest));
}

#endif
