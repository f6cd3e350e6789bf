/* The processor's tile registers (AMX), as their users see them. Included by cpu_kernels_amx.c alone.
 *
 * A tile is 16 rows of 64 bytes. tdpbf16ps adds to 16 x 16 f32 sums the products of 16 rows by 32 inputs and 32 inputs
 * by 16 columns; the right operand holds pairs of inputs side by side: row i is inputs 2i and 2i + 1 of column 0, of
 * column 1, and so on. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS.
 *
 * An f32 number has 24 significant bits, a bf16 number 8: the nearest bf16 number, the nearest one to what that leaves
 * and the nearest one to the rest are together the number itself. So tiles multiply f32 numbers, too, part by part: of
 * the nine products of parts the six largest, as the others are below 2^-26 of the whole, less than what rounding each
 * sum to f32 costs. That is six products of bf16 for one of f32, which tiles do in less than half of the time that the
 * vector units take for one. */
#ifndef ENGINE_CPU_TILES_H
#define ENGINE_CPU_TILES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum {
    AMX_ROWS = 16,
    AMX_PAIRED = 32, /* inputs of one step */
    AMX_TILE = AMX_ROWS * AMX_PAIRED,
    AMX_PARTS = 3, /* of an f32 number */
};

struct amx_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Sets all eight tiles to their full size for this thread; _tile_release ends it. */
static inline void amx_configure(void)
{
    struct amx_tile_config config = {.palette = 1};
    for (unsigned tile = 0; tile < 8; tile++) {
        config.row_bytes[tile] = 64;
        config.rows[tile] = AMX_ROWS;
    }
    _tile_loadconfig(&config);
}

/* Two vectors as bf16 numbers side by side. */
static inline __m512i amx_rounded(const __m512 x[2])
{
    __m512bh halves = _mm512_cvtne2ps_pbh(x[1], x[0]);
    __m512i bits;
    memcpy(&bits, &halves, sizeof bits);
    return bits;
}

/* Two vectors as bf16 numbers in turn, one of the first, one of the second; what is below them is cut off. */
static inline __m512i amx_in_turn(const __m512i x[2])
{
    return _mm512_or_si512(_mm512_and_si512(x[1], _mm512_set1_epi32((int)0xffff0000)), _mm512_srli_epi32(x[0], 16));
}

/* The number without what a bf16 number has no room for. */
static inline __m512 amx_upper(__m512i bits)
{
    return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)));
}

/* Writes the three parts of two vectors, `plane` elements apart, the numbers of the two in turn. Each part is the
 * nearest bf16 number to what is left, half-way the larger one; the last one is exact. */
static inline void amx_store_parts(__m512 x[2], uint16_t *to, size_t plane)
{
    __m512i bits[2] = {_mm512_castps_si512(x[0]), _mm512_castps_si512(x[1])};
    for (unsigned part = 0; part < AMX_PARTS - 1; part++, to += plane) {
        for (unsigned i = 0; i < 2; i++)
            bits[i] = _mm512_add_epi32(bits[i], _mm512_set1_epi32(0x8000));
        _mm512_storeu_si512(to, amx_in_turn(bits));
        for (unsigned i = 0; i < 2; i++) {
            x[i] = _mm512_sub_ps(x[i], amx_upper(bits[i]));
            bits[i] = _mm512_castps_si512(x[i]);
        }
    }
    _mm512_storeu_si512(to, amx_in_turn(bits));
}

#endif
