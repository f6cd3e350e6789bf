/* Floats of 16 bits (IEEE 754 binary16, f16). */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>
#include <string.h>

#define HALF_LIMIT 65520.0f /* f16 holds only floats below this */

/* The bits of the nearest f16, ties to even; from HALF_LIMIT on infinity; a NaN stays one. Below 2^-14 the last bit of
 * f16 is 2^-24: adding 0.5, whose last bit is that in f32, shifts a number into the last bits and rounds it. There is
 * no branch, so that loops become vector code. */
static inline uint16_t half_from_float(float value)
{
    uint32_t magnitude, subnormal;
    memcpy(&magnitude, &value, sizeof magnitude);
    uint32_t sign = magnitude >> 16 & 0x8000;
    magnitude &= 0x7fffffff;
    uint32_t half = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    float shifted;
    memcpy(&shifted, &magnitude, sizeof shifted);
    shifted += 0.5f;
    memcpy(&subnormal, &shifted, sizeof subnormal);
    half = magnitude < 0x38800000 ? subnormal - 0x3f000000 : half;
    half = magnitude >= 0x477ff000 ? 0x7c00 : half; /* HALF_LIMIT: halfway from the largest f16 to 2^16 */
    half = magnitude > 0x7f800000 ? 0x7e00 : half;
    return (uint16_t)(sign | half);
}

#endif
