/* Numbers in f32 to digits (cpu_digits.h). Included by cpu_kernels_amx.c alone. */
#ifndef ENGINE_CPU_DIGITS_SPLIT_H
#define ENGINE_CPU_DIGITS_SPLIT_H

#include "engine/cpu_digits.h"
#include "engine/cpu_rows.h"

enum {
    DIGIT_TILE = DIGITS_ROWS * DIGITS_STEP,
    STEP_BYTES = DIGITS * DIGIT_TILE, /* of a strip or a panel */
    STEP_VECS = DIGITS_STEP / VEC,
};

/* The bits of a row's largest magnitude; what is not a number is larger than all. */
INLINE uint32_t largest_bits(uint32_t inputs, const float *from)
{
    __m512i largest = _mm512_setzero_si512();
    for (uint32_t i = 0; i < inputs; i += VEC)
        largest = _mm512_max_epu32(largest, _mm512_castps_si512(vec_abs(load_upto(from + i, inputs - i))));
    return _mm512_reduce_max_epu32(largest);
}

/* 2^(exponent - 127) */
INLINE float power_of_two(uint32_t exponent)
{
    uint32_t bits = exponent << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* The power of two that takes a row's largest number to at most 0x7f7f7f7f, which is what digits from -128 to 127 hold,
 * and more than half of that; a row smaller than 2^-97 counts as that size. `scale` is that of the highest digit. */
INLINE float power_for(uint32_t largest, float *scale)
{
    enum { INFINITE = 0x7f800000, OVER = 0x7fffff - 0x7efefe, EXPONENT_LEAST = 30, HIGHEST = 6 };
    uint32_t exponent = (largest + OVER) >> 23;
    exponent = exponent < EXPONENT_LEAST ? EXPONENT_LEAST : exponent;
    *scale = largest >= INFINITE ? NAN : power_of_two(exponent - HIGHEST);
    return power_of_two(127 + 127 + 30 - exponent);
}

/* Bytes 0 and 2 of each number of `low`, each followed by that of `high`; or bytes 1 and 3. */
INLINE __m512i even_bytes(__m512i low, __m512i high)
{
    return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, low, _mm512_slli_epi32(high, 8));
}

INLINE __m512i odd_bytes(__m512i low, __m512i high)
{
    return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, _mm512_srli_epi32(low, 8), high);
}

INLINE __m512i lower_halves(__m512i low, __m512i high)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16));
}

INLINE __m512i upper_halves(__m512i low, __m512i high)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(low, 16), high);
}

/* One step of a row. A whole number plus 128 at the place of each lower digit has the digits in its bytes, the lower
 * ones 128 too large. */
INLINE void split_step(const vec x[STEP_VECS], vec power, int8_t *to)
{
    const __m512i middle = _mm512_set1_epi32(0x808080), sign = _mm512_set1_epi8((char)0x80);
    __m512i whole[STEP_VECS], even[2], odd[2];
    for (unsigned i = 0; i < STEP_VECS; i++)
        whole[i] = _mm512_add_epi32(_mm512_cvtps_epi32(vec_mul(x[i], power)), middle);
    for (unsigned i = 0; i < 2; i++) {
        even[i] = even_bytes(whole[2 * i], whole[2 * i + 1]);
        odd[i] = odd_bytes(whole[2 * i], whole[2 * i + 1]);
    }
    _mm512_store_si512(to, upper_halves(odd[0], odd[1]));
    _mm512_store_si512(to + DIGIT_TILE, _mm512_xor_si512(upper_halves(even[0], even[1]), sign));
    _mm512_store_si512(to + 2 * DIGIT_TILE, _mm512_xor_si512(lower_halves(odd[0], odd[1]), sign));
    _mm512_store_si512(to + 3 * DIGIT_TILE, _mm512_xor_si512(lower_halves(even[0], even[1]), sign));
}

static void digits_split(uint32_t first_row, uint32_t last_row, uint32_t inputs, const float *from,
                         struct digit_rows to)
{
    size_t strip = digits_bytes(DIGITS_ROWS, inputs);
    for (uint32_t row = first_row; row < last_row; row++) {
        const float *numbers = from + (size_t)row * inputs;
        int8_t *at = to.value + row / DIGITS_ROWS * strip + (size_t)(row % DIGITS_ROWS) * DIGITS_STEP;
        vec x[STEP_VECS], power = vec_set(power_for(largest_bits(inputs, numbers), &to.scale[row]));
        for (uint32_t input = 0; input < inputs; input += DIGITS_STEP, at += STEP_BYTES) {
            for (uint32_t i = 0; i < STEP_VECS; i++) {
                uint32_t first = input + i * VEC;
                x[i] = first < inputs ? load_upto(numbers + first, inputs - first) : vec_set(0.0f);
            }
            split_step(x, power, at);
        }
    }
}

/* Turns a tile of 16 outputs by 16 fours of inputs over. */
static void turn_tile(int8_t *tile)
{
    int32_t fours[DIGITS_ROWS][DIGITS_ROWS], turned[DIGITS_ROWS][DIGITS_ROWS];
    memcpy(fours, tile, sizeof fours);
    for (unsigned i = 0; i < DIGITS_ROWS; i++)
        for (unsigned j = 0; j < DIGITS_ROWS; j++)
            turned[j][i] = fours[i][j];
    memcpy(tile, turned, sizeof turned);
}

static void digits_pack(uint32_t outputs, uint32_t inputs, const float *weight, struct digit_rows to)
{
    digits_split(0, outputs, inputs, weight, to);
    for (size_t at = 0; at < digits_bytes(outputs, inputs); at += DIGIT_TILE)
        turn_tile(to.value + at);
}

#endif
