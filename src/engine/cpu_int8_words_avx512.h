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

#endif
