/* Floats of 16 bits (IEEE 754 binary16, f16). */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>
#include <string.h>

#define HALF_LIMIT 65520.0f /* f16 holds only floats below this */

/* The bits of the nearest f16, ties to even. `value` is below HALF_LIMIT. Below 2^-14 the last bit of f16 is 2^-24:
 * adding 0.5, whose last bit is that in f32, rounds there. */
static inline uint16_t half_from_float(float value)
{
    uint32_t bits, sign;
    memcpy(&bits, &value, sizeof(bits));
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits < 0x38800000) {
        float shifted;
        memcpy(&shifted, &bits, sizeof(shifted));
        shifted += 0.5f;
        memcpy(&bits, &shifted, sizeof(bits));
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - ((127 - 15) << 23)) >> 13);
}

#endif
