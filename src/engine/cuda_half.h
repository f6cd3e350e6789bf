/* From f32 to the 16-bit floats, rounded to nearest, ties to even, as the device does it. Too large is infinity.
 * Integer arithmetic, without branches that a compiler could not turn into vectors. Source: IEEE 754-2008, binary16. */
#ifndef ENGINE_CUDA_HALF_H
#define ENGINE_CUDA_HALF_H

#include <stdint.h>
#include <string.h>

/* The bits of a float. */
static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The nearest bf16. */
static inline uint16_t to_bf16(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded); /* a NaN stays one */
}

/* The nearest f16. */
static inline uint16_t to_f16(float value)
{
    uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    float shifted; /* adding 2^-1 puts a subnormal's bits, rounded by the addition, at the end of the sum */
    memcpy(&shifted, &magnitude, sizeof shifted);
    uint32_t subnormal = float_bits(shifted + 0.5f) - 0x3f000000;
    uint32_t half = magnitude < 0x38800000 ? subnormal : normal;
    half = magnitude >= 0x477ff000 ? 0x7c00 : half; /* from the middle between the largest half and 2^16 on */
    half = magnitude > 0x7f800000 ? 0x7e00 : half;
    return (uint16_t)(sign | half);
}

#endif
