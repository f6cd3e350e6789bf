/* The vector words of kernels.inc and gemm_int8.inc in AVX2 with FMA: 8 floats, 16 registers. */
#ifndef ENGINE_VEC_AVX2_H
#define ENGINE_VEC_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

typedef __m256 vec;

enum { VEC = 8, TILE_ROWS = 4, TILE_VECS = 2, FLOAT_UNIT = 2 };

static inline __m256i vec_part_mask(size_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

static inline vec vec_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

static inline vec vec_load_part(const float *from, size_t n)
{
    return _mm256_maskload_ps(from, vec_part_mask(n));
}

static inline void vec_store(float *to, vec a)
{
    _mm256_storeu_ps(to, a);
}

static inline void vec_store_part(float *to, vec a, size_t n)
{
    _mm256_maskstore_ps(to, vec_part_mask(n), a);
}

static inline vec vec_set(float a)
{
    return _mm256_set1_ps(a);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

static inline vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

/* a * b + c */
static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* The same for code whose sums fill the 16 registers: the compiler would copy them between registers, and then they do
 * not all fit. */
#define VEC_FMA_IN_PLACE
static inline vec vec_fma_in_place(vec a, vec b, vec c)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
}

static inline vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

static inline vec vec_reciprocal(vec a)
{
    return _mm256_div_ps(_mm256_set1_ps(1.0f), a);
}

/* 1 / a within 1.5 * 2^-12: for results in bf16. */
static inline vec vec_reciprocal_rough(vec a)
{
    return _mm256_rcp_ps(a);
}

/* The nearest integer. */
static inline vec vec_round(vec a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* a * 2^n for an integer n in -126..127. */
static inline vec vec_scale(vec a, vec n)
{
    __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(a, _mm256_castsi256_ps(exponent));
}

static inline float vec_sum(vec a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float vec_largest(vec a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline vec vec_load_bf16(const uint16_t *from)
{
    __m128i half = _mm_loadu_si128((const void *)from);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static inline vec vec_load_f16(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

/* The lower or the upper of the two bf16 numbers in each lane, as floats. */
static inline vec vec_bf16_lower(vec two)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(two), 16));
}

static inline vec vec_bf16_upper(vec two)
{
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(two), _mm256_set1_epi32((int)0xffff0000)));
}

/* Round to nearest even. */
static inline void vec_store_bf16(uint16_t *to, vec a)
{
    __m256i bits = _mm256_castps_si256(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    _mm_storeu_si128((void *)to, half);
}

/* --- for int8 --- */

static inline vec vec_from_s32(const int32_t *from)
{
    return _mm256_cvtepi32_ps(_mm256_loadu_si256((const void *)from));
}

/* As in vec_avx512.h. */
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

/* As in vec_avx512.h, these two. */
static inline vec vec_larger(vec m, vec a)
{
    __m256i size = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(m), size));
}

static inline uint32_t vec_widen_within(struct vec_range *range, vec a, vec bound)
{
    __m256i size = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
    vec beyond = _mm256_castsi256_ps(_mm256_cmpgt_epi32(size, _mm256_castps_si256(bound)));
    *range = vec_widen(*range, _mm256_andnot_ps(beyond, a));
    return (uint32_t)_mm256_movemask_ps(beyond);
}

/* round(a * inverse) - middle: adding 1.5 * 2^23 leaves it in the lowest byte. */
static inline void vec_store_s8(int8_t *to, vec a, vec inverse, vec middle)
{
    vec shift = _mm256_sub_ps(_mm256_set1_ps(12582912.0f), middle);
    __m256i bits = _mm256_castps_si256(_mm256_fmadd_ps(a, inverse, shift));
    const __m256i lowest = _mm256_set1_epi32(0x0c080400);
    __m256i bytes = _mm256_shuffle_epi8(bits, lowest); /* each half's four bytes, in each of its lanes */
    _mm_storel_epi64((void *)to, _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
}

/* As in vec_avx512.h. */
static inline void vec_store_s16(int8_t *to, vec a, vec inverse)
{
    __m256i bits = _mm256_castps_si256(_mm256_fmadd_ps(a, inverse, _mm256_set1_ps(12582912.0f)));
    bits = _mm256_and_si256(bits, _mm256_set1_epi32(0xffff));
    _mm_storeu_si128((void *)to, _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
}

/* As in vec_avx512.h. */
static inline vec vec_pairs(vec a, vec b, vec inverse)
{
    const vec shift = _mm256_set1_ps(12582912.0f);
    __m256i lower = _mm256_castps_si256(_mm256_fmadd_ps(a, inverse, shift));
    __m256i upper = _mm256_castps_si256(_mm256_fmadd_ps(b, inverse, shift));
    return _mm256_castsi256_ps(_mm256_blend_epi16(lower, _mm256_slli_epi32(upper, 16), 0xaa));
}

static inline void vec_transpose(vec row[VEC])
{
    vec half[VEC];
    for (unsigned i = 0; i < VEC; i += 2) {
        half[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
        half[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
    }
    for (unsigned i = 0; i < VEC; i += 4) {
        row[i] = _mm256_shuffle_ps(half[i], half[i + 2], 0x44);
        row[i + 1] = _mm256_shuffle_ps(half[i], half[i + 2], 0xee);
        row[i + 2] = _mm256_shuffle_ps(half[i + 1], half[i + 3], 0x44);
        row[i + 3] = _mm256_shuffle_ps(half[i + 1], half[i + 3], 0xee);
    }
    for (unsigned i = 0; i < 4; i++) {
        vec low = row[i], high = row[i + 4];
        row[i] = _mm256_permute2f128_ps(low, high, 0x20);
        row[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}

/* --- int8 products, as in vec_avx512.h --- */

typedef __m256i vec_s32;

static inline vec_s32 dot_set(int32_t a)
{
    return _mm256_set1_epi32(a);
}

static inline void dot_store(int32_t *to, vec_s32 a)
{
    _mm256_storeu_si256((void *)to, a);
}

#ifdef __AVXVNNI__
enum { DOT_VECS = 2, DOT_UNIT = 2, DOT_ROWS = 6 };

#define DOT_FLIP 0x80

typedef __m256i dot_weight;

static inline int32_t dot_start(const int8_t *from, uint32_t bytes)
{
    __m256i sum = _mm256_setzero_si256();
    int32_t lane[8], all = 0;
    for (uint32_t i = 0; i < bytes; i += 32) {
        sum = _mm256_dpbusd_avx_epi32(sum, _mm256_set1_epi8(1), _mm256_loadu_si256((const void *)(from + i)));
    }
    dot_store(lane, sum);
    for (int i = 0; i < 8; i++) { all += lane[i]; }
    return -128 * all;
}

static inline dot_weight dot_load(const int8_t *packed)
{
    return _mm256_loadu_si256((const void *)packed);
}

static inline vec_s32 dot_add(vec_s32 sum, dot_weight weight, vec_s32 values)
{
    return _mm256_dpbusd_avx_epi32(sum, weight, values);
}

#define DOT_PAIRS
static inline vec_s32 dot_add_pairs(vec_s32 sum, vec_s32 weight, vec_s32 values)
{
    return _mm256_dpwssd_avx_epi32(sum, weight, values);
}
#else
/* The product of bytes requires one unsigned operand: the weight's sign is moved to the row's value. No pair's sum
 * overflows 16 bits, because neither operand is below -127. */
enum { DOT_VECS = 2, DOT_UNIT = 2, DOT_ROWS = 4 };

typedef struct {
    __m256i weight, size;
} dot_weight;

static inline dot_weight dot_load(const int8_t *packed)
{
    __m256i weight = _mm256_loadu_si256((const void *)packed);
    return (dot_weight){weight, _mm256_abs_epi8(weight)};
}

static inline vec_s32 dot_add(vec_s32 sum, dot_weight weight, vec_s32 values)
{
    __m256i pairs = _mm256_maddubs_epi16(weight.size, _mm256_sign_epi8(values, weight.weight));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#define DOT_PAIRS
static inline vec_s32 dot_add_pairs(vec_s32 sum, vec_s32 weight, vec_s32 values)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(weight, values));
}
#endif

#endif
