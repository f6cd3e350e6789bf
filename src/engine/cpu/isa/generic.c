/* The kernels for any machine: the vector words of kernels.inc and gemm_int8.inc in the compiler's own vector type, 4
 * floats. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/model.h"

typedef float vec __attribute__((vector_size(16)));
typedef int32_t vec_int __attribute__((vector_size(16)));
typedef uint32_t vec_bits __attribute__((vector_size(16)));

enum { VEC = 4, TILE_ROWS = 4, TILE_VECS = 2, FLOAT_UNIT = 2 };

static inline vec vec_load(const float *from)
{
    vec a;
    memcpy(&a, from, sizeof a);
    return a;
}

static inline vec vec_load_part(const float *from, size_t n)
{
    vec a = {0};
    memcpy(&a, from, n * sizeof(float));
    return a;
}

static inline void vec_store(float *to, vec a)
{
    memcpy(to, &a, sizeof a);
}

static inline void vec_store_part(float *to, vec a, size_t n)
{
    memcpy(to, &a, n * sizeof(float));
}

static inline vec vec_set(float a)
{
    return (vec){a, a, a, a};
}

static inline vec vec_add(vec a, vec b)
{
    return a + b;
}

static inline vec vec_sub(vec a, vec b)
{
    return a - b;
}

static inline vec vec_mul(vec a, vec b)
{
    return a * b;
}

/* a * b + c, rounded twice. */
static inline vec vec_fma(vec a, vec b, vec c)
{
    return a * b + c;
}

/* The lanes of a where the mask is all ones, else those of b. */
static inline vec vec_pick(vec_int mask, vec a, vec b)
{
    return (vec)(((vec_int)a & mask) | ((vec_int)b & ~mask));
}

static inline vec vec_max(vec a, vec b)
{
    return vec_pick(a > b, a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return vec_pick(a < b, a, b);
}

static inline vec vec_reciprocal(vec a)
{
    return vec_set(1.0f) / a;
}

static inline vec vec_reciprocal_rough(vec a)
{
    return vec_reciprocal(a);
}

/* The nearest integer, for |a| below 2^22: adding 1.5 * 2^23 pushes the fraction out. */
static inline vec vec_round(vec a)
{
    const vec shift = vec_set(12582912.0f);
    return (a + shift) - shift;
}

/* a * 2^n for an integer n in -126..127. */
static inline vec vec_scale(vec a, vec n)
{
    vec_int exponent = (__builtin_convertvector(n, vec_int) + 127) << 23;
    return a * (vec)exponent;
}

static inline float vec_sum(vec a)
{
    return (a[0] + a[2]) + (a[1] + a[3]);
}

static inline float vec_largest(vec a)
{
    return fmaxf(fmaxf(a[0], a[2]), fmaxf(a[1], a[3]));
}

static inline vec vec_load_bf16(const uint16_t *from)
{
    return (vec)(vec_int){(int32_t)((uint32_t)from[0] << 16), (int32_t)((uint32_t)from[1] << 16),
                          (int32_t)((uint32_t)from[2] << 16), (int32_t)((uint32_t)from[3] << 16)};
}

static inline vec vec_load_f16(const uint16_t *from)
{
    const struct tensor halves = {.dtype = DTYPE_F16, .data = from, .elements = VEC};
    float wide[VEC];
    tensor_read_f32(&halves, 0, VEC, wide);
    return vec_load(wide);
}

/* The lower or the upper of the two bf16 numbers in each lane, as floats. */
static inline vec vec_bf16_lower(vec two)
{
    return (vec)((vec_bits)two << 16);
}

static inline vec vec_bf16_upper(vec two)
{
    return (vec)((vec_bits)two & 0xffff0000);
}

/* Round to nearest even. */
static inline void vec_store_bf16(uint16_t *to, vec a)
{
    uint32_t bits[VEC];
    memcpy(bits, &a, sizeof bits);
    for (size_t i = 0; i < VEC; i++) { to[i] = (uint16_t)((bits[i] + 0x7fff + (bits[i] >> 16 & 1)) >> 16); }
}

/* --- for int8 --- */

static inline vec vec_from_s32(const int32_t *from)
{
    vec_int integers;
    memcpy(&integers, from, sizeof integers);
    return __builtin_convertvector(integers, vec);
}

/* As in vec_avx512.h. */
struct vec_range {
    int32_t high[VEC];
    uint32_t low[VEC];
};

static inline struct vec_range vec_range_none(void)
{
    return (struct vec_range){{0}, {0}};
}

static inline struct vec_range vec_widen(struct vec_range range, vec a)
{
    vec_int bits = (vec_int)a;
    for (int i = 0; i < VEC; i++) {
        range.high[i] = bits[i] > range.high[i] ? bits[i] : range.high[i];
        range.low[i] = (uint32_t)bits[i] > range.low[i] ? (uint32_t)bits[i] : range.low[i];
    }
    return range;
}

static inline int32_t vec_high(struct vec_range range)
{
    int32_t high = 0;
    for (int i = 0; i < VEC; i++) { high = range.high[i] > high ? range.high[i] : high; }
    return high;
}

static inline uint32_t vec_low(struct vec_range range)
{
    uint32_t low = 0;
    for (int i = 0; i < VEC; i++) { low = range.low[i] > low ? range.low[i] : low; }
    return low;
}

/* As in vec_avx512.h, these two. */
static inline vec vec_larger(vec m, vec a)
{
    vec_int size = (vec_int)a & 0x7fffffff;
    return vec_pick((vec_int)m > size, m, (vec)size);
}

static inline uint32_t vec_widen_within(struct vec_range *range, vec a, vec bound)
{
    vec_int beyond = ((vec_int)a & 0x7fffffff) > (vec_int)bound;
    uint32_t bits = 0;
    for (uint32_t i = 0; i < VEC; i++) { bits |= beyond[i] ? 1u << i : 0; }
    *range = vec_widen(*range, (vec)((vec_int)a & ~beyond));
    return bits;
}

/* The nearest integer to a * inverse, less `middle`. It is rounded once, as by a fused multiply-add: in f64 the product
 * is exact, and adding 1.5 * 2^52 pushes its fraction out. */
static inline void vec_store_s8(int8_t *to, vec a, vec inverse, vec middle)
{
    for (int i = 0; i < VEC; i++) {
        double shifted = (double)a[i] * (double)inverse[i] + (6755399441055744.0 - (double)middle[i]);
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        to[i] = (int8_t)(uint8_t)bits;
    }
}

/* --- int8 products, as in vec_avx512.h --- */

typedef int16_t int8_pairs __attribute__((vector_size(16))); /* two bytes in a lane, or a number of their size */
typedef uint16_t int8_bits __attribute__((vector_size(16)));
typedef vec_int vec_s32;

enum { DOT_VECS = 4, DOT_UNIT = 1, DOT_ROWS = 2 };

typedef int8_pairs dot_weight;

static inline vec_s32 dot_set(int32_t a)
{
    return (vec_s32){a, a, a, a};
}

static inline void dot_store(int32_t *to, vec_s32 a)
{
    memcpy(to, &a, sizeof a);
}

static inline dot_weight dot_load(const int8_t *packed)
{
    dot_weight weight;
    memcpy(&weight, packed, sizeof weight);
    return weight;
}

static inline int8_pairs first_of(int8_pairs two)
{
    return (int8_pairs)((int8_bits)two << 8) >> 8;
}

/* No sum of two products overflows 16 bits, because no byte is below -127. Weight and values are unpacked in the same
 * way, so the order of bytes does not matter. */
static inline vec_s32 dot_add(vec_s32 sum, dot_weight weight, vec_s32 values)
{
    int8_pairs value = (int8_pairs)values;
    vec_s32 both = (vec_s32)(first_of(weight) * first_of(value) + (weight >> 8) * (value >> 8));
    return sum + (both >> 16) + ((vec_s32)((vec_bits)both << 16) >> 16);
}

#define KERNELS_NAME kernels_generic
#include "engine/cpu/isa/kernels.inc"

#define INT8_NAME int8_generic
#include "engine/cpu/isa/gemm_int8.inc"
