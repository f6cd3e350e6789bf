/* The vector words of kernels.inc and gemm_int8.inc in AVX-512: 16 floats, 32 registers. */
#ifndef ENGINE_VEC_AVX512_H
#define ENGINE_VEC_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

typedef __m512 vec;

enum { VEC = 16, TILE_ROWS = 8, TILE_VECS = 2, FLOAT_UNIT = 4 };

static inline vec vec_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline vec vec_load_part(const float *from, size_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
}

static inline void vec_store(float *to, vec a)
{
    _mm512_storeu_ps(to, a);
}

static inline void vec_store_part(float *to, vec a, size_t n)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), a);
}

static inline vec vec_set(float a)
{
    return _mm512_set1_ps(a);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

static inline vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

/* a * b + c */
static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

/* 1 / a within two units in the last place: the estimate and one Newton step, a third of a division's time. */
static inline vec vec_reciprocal(vec a)
{
    vec r = _mm512_rcp14_ps(a);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(a, r, _mm512_set1_ps(1.0f)), r, r);
}

/* 1 / a within 2^-14: for results in bf16. */
static inline vec vec_reciprocal_rough(vec a)
{
    return _mm512_rcp14_ps(a);
}

/* The nearest integer. */
static inline vec vec_round(vec a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* a * 2^n for an integer n in -126..127. */
static inline vec vec_scale(vec a, vec n)
{
    return _mm512_scalef_ps(a, n);
}

/* Picks one of 16 floats by an integer 0..15 that was added to VEC_PICK. */
#define VEC_PICK 12582912.0f /* 1.5 * 2^23, so that the number is in the lowest bits */

static inline vec vec_pick(const float table[16], vec which)
{
    return _mm512_permutexvar_ps(_mm512_castps_si512(which), _mm512_loadu_ps(table));
}

static inline vec vec_abs(vec a)
{
    return _mm512_abs_ps(a);
}

static inline float vec_sum(vec a)
{
    return _mm512_reduce_add_ps(a);
}

static inline float vec_largest(vec a)
{
    return _mm512_reduce_max_ps(a);
}

static inline vec vec_load_bf16(const uint16_t *from)
{
    __m256i half = _mm256_loadu_si256((const void *)from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline vec vec_load_f16(const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

/* The lower or the upper of the two bf16 numbers in each lane, as floats. */
static inline vec vec_bf16_lower(vec two)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(two), 16));
}

static inline vec vec_bf16_upper(vec two)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(two), _mm512_set1_epi32((int)0xffff0000)));
}

#ifdef __AVX512BF16__
#define VEC_DOT_BF16
/* sum + the products of two bf16 numbers in each lane */
static inline vec vec_dot_bf16(vec sum, vec a, vec b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
#endif

/* Round to nearest even. */
static inline void vec_store_bf16(uint16_t *to, vec a)
{
#ifdef __AVX512BF16__
    __m256bh half = _mm512_cvtneps_pbh(a);
    __builtin_memcpy(to, &half, sizeof half);
#else
    __m512i bits = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    _mm256_storeu_si256((void *)to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
#endif
}

/* --- for int8 --- */

static inline vec vec_from_s32(const int32_t *from)
{
    return _mm512_cvtepi32_ps(_mm512_loadu_si512(from));
}

/* a, bounded in magnitude by `limit`. */
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

/* The bits of the highest and of the lowest number, as the largest signed and the largest unsigned integer; infinities
 * and NaN count. Both begin at zero; the lowest stays zero if nothing is negative. */
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

/* The larger magnitudes: m's, which has no signs, or a's. NaN is larger than all numbers. */
static inline vec vec_larger(vec m, vec a)
{
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(m), _mm512_castps_si512(vec_abs(a))));
}

/* Widens the range by the lanes whose magnitude is not above the bound; returns the others as bits. */
static inline uint32_t vec_widen_within(struct vec_range *range, vec a, vec bound)
{
    __m512i bits = _mm512_castps_si512(a);
    __mmask16 within = _mm512_cmple_epi32_mask(_mm512_castps_si512(vec_abs(a)), _mm512_castps_si512(bound));
    range->high = _mm512_mask_max_epi32(range->high, within, range->high, bits);
    range->low = _mm512_mask_max_epu32(range->low, within, range->low, bits);
    return (uint16_t)~within;
}

/* round(a * inverse) - middle: adding 1.5 * 2^23 leaves it in the lowest byte. */
static inline void vec_store_s8(int8_t *to, vec a, vec inverse, vec middle)
{
    vec shifted = _mm512_fmadd_ps(a, inverse, _mm512_sub_ps(_mm512_set1_ps(12582912.0f), middle));
    _mm_storeu_si128((void *)to, _mm512_cvtepi32_epi8(_mm512_castps_si512(shifted)));
}

/* round(a * inverse) in 16 bits. */
static inline void vec_store_s16(int8_t *to, vec a, vec inverse)
{
    vec shifted = _mm512_fmadd_ps(a, inverse, _mm512_set1_ps(12582912.0f));
    _mm256_storeu_si256((void *)to, _mm512_cvtepi32_epi16(_mm512_castps_si512(shifted)));
}

/* vec_widen by two vectors in bf16; the range is kept in the upper and lower halves of the lanes. */
static inline struct vec_range vec_widen_bf16(struct vec_range range, const uint16_t *from)
{
    __m512i bits = _mm512_loadu_si512(from);
    range.high = _mm512_max_epi16(range.high, bits);
    range.low = _mm512_max_epu16(range.low, bits);
    return range;
}

/* Converts such a range from half lanes to whole ones, as vec_widen keeps it. */
static inline struct vec_range vec_range_of_bf16(struct vec_range range)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    range.high = _mm512_max_epi32(_mm512_and_si512(range.high, upper), _mm512_slli_epi32(range.high, 16));
    range.low = _mm512_max_epu32(_mm512_and_si512(range.low, upper), _mm512_slli_epi32(range.low, 16));
    return range;
}

/* Pairs of 16-bit integers, a's in the lower halves of lanes: the numbers times `inverse`, rounded. */
static inline vec vec_pairs(vec a, vec b, vec inverse)
{
    const vec shift = _mm512_set1_ps(12582912.0f);
    __m512i lower = _mm512_castps_si512(_mm512_fmadd_ps(a, inverse, shift));
    __m512i upper = _mm512_castps_si512(_mm512_fmadd_ps(b, inverse, shift));
    return _mm512_castsi512_ps(_mm512_mask_blend_epi16(0xaaaaaaaa, lower, _mm512_slli_epi32(upper, 16)));
}

/* Lane j of row i becomes lane i of row j. */
static inline void vec_transpose(vec row[VEC])
{
    vec half[VEC];
    for (unsigned i = 0; i < VEC; i += 2) {
        half[i] = _mm512_unpacklo_ps(row[i], row[i + 1]);
        half[i + 1] = _mm512_unpackhi_ps(row[i], row[i + 1]);
    }
    for (unsigned i = 0; i < VEC; i += 4) {
        row[i] = _mm512_shuffle_ps(half[i], half[i + 2], 0x44);
        row[i + 1] = _mm512_shuffle_ps(half[i], half[i + 2], 0xee);
        row[i + 2] = _mm512_shuffle_ps(half[i + 1], half[i + 3], 0x44);
        row[i + 3] = _mm512_shuffle_ps(half[i + 1], half[i + 3], 0xee);
    }
    for (unsigned i = 0; i < 4; i++) {
        vec even = _mm512_shuffle_f32x4(row[i], row[i + 4], 0x88), odd = _mm512_shuffle_f32x4(row[i], row[i + 4], 0xdd);
        vec even8 = _mm512_shuffle_f32x4(row[i + 8], row[i + 12], 0x88);
        vec odd8 = _mm512_shuffle_f32x4(row[i + 8], row[i + 12], 0xdd);
        half[i] = _mm512_shuffle_f32x4(even, even8, 0x88);
        half[i + 8] = _mm512_shuffle_f32x4(even, even8, 0xdd);
        half[i + 4] = _mm512_shuffle_f32x4(odd, odd8, 0x88);
        half[i + 12] = _mm512_shuffle_f32x4(odd, odd8, 0xdd);
    }
    __builtin_memcpy(row, half, sizeof half);
}

/* --- int8 products: a lane sums the products of four inputs of one output. DOT_ROWS rows by DOT_VECS vectors of
 * outputs fill the registers. --- */

typedef __m512i vec_s32;

enum { DOT_VECS = 2, DOT_UNIT = 4, DOT_ROWS = 12 };

static inline vec_s32 dot_set(int32_t a)
{
    return _mm512_set1_epi32(a);
}

static inline void dot_store(int32_t *to, vec_s32 a)
{
    _mm512_storeu_si512(to, a);
}

#ifdef __AVX512VNNI__
/* VNNI requires one unsigned operand, so 128 is added to every weight when it is packed. That adds 128 times the sum of
 * a row's values to its sums, so these begin with minus that number. */
#define DOT_FLIP 0x80

typedef __m512i dot_weight;

static inline int32_t dot_start(const int8_t *from, uint32_t bytes)
{
    __m512i sum = _mm512_setzero_si512();
    for (uint32_t i = 0; i < bytes; i += 64) {
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_loadu_si512(from + i));
    }
    return -128 * _mm512_reduce_add_epi32(sum);
}

static inline dot_weight dot_load(const int8_t *packed)
{
    return _mm512_loadu_si512(packed);
}

static inline vec_s32 dot_add(vec_s32 sum, dot_weight weight, vec_s32 values)
{
    return _mm512_dpbusd_epi32(sum, weight, values);
}

/* The same with two inputs of 16 bits in a lane. */
#define DOT_PAIRS
static inline vec_s32 dot_add_pairs(vec_s32 sum, vec_s32 weight, vec_s32 values)
{
    return _mm512_dpwssd_epi32(sum, weight, values);
}
#else
/* As in vec_avx2.h. */
typedef struct {
    __m512i size;
    __mmask64 negative;
} dot_weight;

static inline dot_weight dot_load(const int8_t *packed)
{
    __m512i weight = _mm512_loadu_si512(packed);
    return (dot_weight){_mm512_abs_epi8(weight), _mm512_movepi8_mask(weight)};
}

static inline vec_s32 dot_add(vec_s32 sum, dot_weight weight, vec_s32 values)
{
    __m512i value = _mm512_mask_sub_epi8(values, weight.negative, _mm512_setzero_si512(), values);
    __m512i pairs = _mm512_maddubs_epi16(weight.size, value);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

#define DOT_PAIRS
static inline vec_s32 dot_add_pairs(vec_s32 sum, vec_s32 weight, vec_s32 values)
{
    return _mm512_add_epi32(sum, _mm512_madd_epi16(weight, values));
}
#endif

#endif
