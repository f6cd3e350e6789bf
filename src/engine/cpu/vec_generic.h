/* The vector words of cpu_kernels_body.h for any machine: 4 floats in the compiler's own vector type. */
#ifndef ENGINE_VEC_GENERIC_H
#define ENGINE_VEC_GENERIC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef float vec __attribute__((vector_size(16)));
typedef int32_t vec_int __attribute__((vector_size(16)));

enum { VEC = 4, TILE_ROWS = 4, TILE_VECS = 2 };

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

/* The nearest whole number, for |a| below 2^22: adding 1.5 * 2^23 pushes the fraction out. */
static inline vec vec_round(vec a)
{
    const vec shift = vec_set(12582912.0f);
    return (a + shift) - shift;
}

/* a * 2^n for a whole n in -126..127. */
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

/* Round to nearest even. */
static inline void vec_store_bf16(uint16_t *to, vec a)
{
    uint32_t bits[VEC];
    memcpy(bits, &a, sizeof bits);
    for (size_t i = 0; i < VEC; i++)
        to[i] = (uint16_t)((bits[i] + 0x7fff + (bits[i] >> 16 & 1)) >> 16);
}

#endif
