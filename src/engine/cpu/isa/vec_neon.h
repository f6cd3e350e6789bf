/* The vector words of kernels.inc and gemm_int8.inc in NEON: 4 floats, 32 registers. */
#ifndef ENGINE_VEC_NEON_H
#define ENGINE_VEC_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef float32x4_t vec;

enum { VEC = 4, TILE_ROWS = 6, TILE_VECS = 4, FLOAT_UNIT = 4 };

static inline vec vec_load(const float *from)
{
    return vld1q_f32(from);
}

static inline vec vec_load_part(const float *from, size_t n)
{
    float part[VEC] = {0};
    memcpy(part, from, n * sizeof(float));
    return vld1q_f32(part);
}

static inline void vec_store(float *to, vec a)
{
    vst1q_f32(to, a);
}

static inline void vec_store_part(float *to, vec a, size_t n)
{
    memcpy(to, &a, n * sizeof(float));
}

static inline vec vec_set(float a)
{
    return vdupq_n_f32(a);
}

static inline vec vec_add(vec a, vec b)
{
    return vaddq_f32(a, b);
}

static inline vec vec_sub(vec a, vec b)
{
    return vsubq_f32(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
    return vmulq_f32(a, b);
}

/* a * b + c */
static inline vec vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}

static inline vec vec_max(vec a, vec b)
{
    return vmaxq_f32(a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return vminq_f32(a, b);
}

static inline vec vec_reciprocal(vec a)
{
    return vdivq_f32(vdupq_n_f32(1.0f), a);
}

/* 1 / a within 2^-15: for results in bf16. */
static inline vec vec_reciprocal_rough(vec a)
{
    vec rough = vrecpeq_f32(a);
    return vmulq_f32(rough, vrecpsq_f32(a, rough));
}

/* The nearest integer. */
static inline vec vec_round(vec a)
{
    return vrndnq_f32(a);
}

/* a * 2^n for an integer n in -126..127. */
static inline vec vec_scale(vec a, vec n)
{
    int32x4_t exponent = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
    return vmulq_f32(a, vreinterpretq_f32_s32(exponent));
}

static inline float vec_sum(vec a)
{
    return vaddvq_f32(a);
}

static inline float vec_largest(vec a)
{
    return vmaxvq_f32(a);
}

static inline vec vec_load_bf16(const uint16_t *from)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from), 16));
}

static inline vec vec_load_f16(const uint16_t *from)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}

/* The lower or the upper of the two bf16 numbers in each lane, as floats. */
static inline vec vec_bf16_lower(vec two)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(two), 16));
}

static inline vec vec_bf16_upper(vec two)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(two), vdupq_n_u32(0xffff0000)));
}

/* Round to nearest even. */
static inline void vec_store_bf16(uint16_t *to, vec a)
{
    uint32x4_t bits = vreinterpretq_u32_f32(a);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    vst1_u16(to, vshrn_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16));
}

/* --- for int8 --- */

static inline vec vec_from_s32(const int32_t *from)
{
    return vcvtq_f32_s32(vld1q_s32(from));
}

/* As in vec_avx512.h. */
struct vec_range {
    int32x4_t high;
    uint32x4_t low;
};

static inline struct vec_range vec_range_none(void)
{
    return (struct vec_range){vdupq_n_s32(0), vdupq_n_u32(0)};
}

static inline struct vec_range vec_widen(struct vec_range range, vec a)
{
    range.high = vmaxq_s32(range.high, vreinterpretq_s32_f32(a));
    range.low = vmaxq_u32(range.low, vreinterpretq_u32_f32(a));
    return range;
}

static inline int32_t vec_high(struct vec_range range)
{
    return vmaxvq_s32(range.high);
}

static inline uint32_t vec_low(struct vec_range range)
{
    return vmaxvq_u32(range.low);
}

/* As in vec_avx512.h, these two. */
static inline vec vec_larger(vec m, vec a)
{
    return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(m), vreinterpretq_u32_f32(vabsq_f32(a))));
}

static inline uint32_t vec_widen_within(struct vec_range *range, vec a, vec bound)
{
    const uint32x4_t lane = {1, 2, 4, 8};
    uint32x4_t beyond = vcgtq_u32(vreinterpretq_u32_f32(vabsq_f32(a)), vreinterpretq_u32_f32(bound));
    *range = vec_widen(*range, vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), beyond)));
    return vaddvq_u32(vandq_u32(beyond, lane));
}

/* round(a * inverse) - middle: adding 1.5 * 2^23 leaves it in the lowest byte. */
static inline void vec_store_s8(int8_t *to, vec a, vec inverse, vec middle)
{
    vec shift = vsubq_f32(vdupq_n_f32(12582912.0f), middle);
    uint16x4_t low = vmovn_u32(vreinterpretq_u32_f32(vfmaq_f32(shift, a, inverse)));
    uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(low, low))), 0);
    memcpy(to, &bytes, sizeof bytes);
}

/* --- int8 products, as in vec_avx512.h --- */

typedef int32x4_t vec_s32;
typedef int8x16_t dot_weight;

enum { DOT_VECS = 4, DOT_UNIT = 2, DOT_ROWS = 4 };

static inline vec_s32 dot_set(int32_t a)
{
    return vdupq_n_s32(a);
}

static inline void dot_store(int32_t *to, vec_s32 a)
{
    vst1q_s32(to, a);
}

static inline dot_weight dot_load(const int8_t *packed)
{
    return vld1q_s8(packed);
}

/* For machines without the dot-product instruction. The sum of two products fits in 16 bits, because no byte is below
 * -127. */
static inline vec_s32 dot_add(vec_s32 sum, dot_weight weight, vec_s32 values)
{
    int8x16_t value = vreinterpretq_s8_s32(values);
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, weight, value);
#else
    int16x8_t low = vmull_s8(vget_low_s8(weight), vget_low_s8(value)), high = vmull_high_s8(weight, value);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
#endif
}

#endif
