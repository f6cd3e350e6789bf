/* See kernel_numbers.h. */
#include "kernel_numbers.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Rounds by value: nearbyint rounds the number after scaling gave the type's last digit the weight 1. */
uint16_t f16_from_f32(float x)
{
    uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
    if (isnan(x)) { return sign | 0x7e00; }
    double size = fabs((double)x);
    int exponent;
    frexp(size, &exponent); /* size < 2^exponent */
    if (exponent < -13) { exponent = -13; /* subnormal: steps of 2^-24 */ }
    double steps = nearbyint(ldexp(size, 11 - exponent));
    double value = ldexp(steps, exponent - 11);
    if (value > 65504.0) { return sign | 0x7c00; }
    if (value < ldexp(1.0, -14)) { return sign | (uint16_t)ldexp(value, 24); }
    frexp(value, &exponent);
    return sign | (uint16_t)((exponent + 14) << 10) | ((uint16_t)ldexp(value, 11 - exponent) & 0x3ff);
}

float f32_from_f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, digits = bits & 0x3ff;
    float size = ldexpf((float)digits, -24);
    if (exponent == 31) {
        size = digits == 0 ? INFINITY : NAN;
    } else if (exponent > 0) {
        size = ldexpf((float)(digits + 1024), exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -size : size;
}

uint16_t bf16_from_f32(float x)
{
    uint32_t bits = bits_of(x);
    if (isnan(x)) { return (uint16_t)(bits >> 16 | 0x40); }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float f32_from_bf16(uint16_t bits)
{
    return of_bits((uint32_t)bits << 16);
}

size_t number_bytes(enum kernel_type type)
{
    return type == KERNEL_F32 ? sizeof(float) : sizeof(uint16_t);
}

void numbers_write(enum kernel_type type, const float *from, size_t count, void *to)
{
    for (size_t i = 0; i < count; i++) {
        if (type == KERNEL_F32) {
            ((float *)to)[i] = from[i];
        } else {
            ((uint16_t *)to)[i] = type == KERNEL_F16 ? f16_from_f32(from[i]) : bf16_from_f32(from[i]);
        }
    }
}

void numbers_read(enum kernel_type type, const void *from, size_t count, float *to)
{
    for (size_t i = 0; i < count; i++) {
        if (type == KERNEL_F32) {
            to[i] = ((const float *)from)[i];
            continue;
        }
        uint16_t bits = ((const uint16_t *)from)[i];
        to[i] = type == KERNEL_F16 ? f32_from_f16(bits) : f32_from_bf16(bits);
    }
}

float number_step(enum kernel_type type, float x)
{
    const int digits = type == KERNEL_F32 ? 24 : type == KERNEL_F16 ? 11 : 8;
    const int least = type == KERNEL_F16 ? -24 : -133;
    int exponent;
    frexpf(x, &exponent);
    return ldexpf(1.0f, exponent - digits > least ? exponent - digits : least);
}

void numbers_random(enum kernel_type type, uint64_t seed, size_t count, float *to)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        float x = (float)(int32_t)(seed >> 32) * 0x1p-31f;
        if (type == KERNEL_F16) {
            x = f32_from_f16(f16_from_f32(x));
        } else if (type == KERNEL_BF16) {
            x = f32_from_bf16(bf16_from_f32(x));
        }
        to[i] = x;
    }
}
