/* The processor's tile registers (AMX), as their users see them. Included by cpu_kernels_amx.c alone.
 *
 * A tile is 16 rows of 64 bytes. tdpbf16ps adds to 16 x 16 f32 sums the products of 16 rows by 32 inputs and 32 inputs
 * by 16 columns; the right operand holds pairs of inputs side by side: row i is inputs 2i and 2i + 1 of column 0, of
 * column 1, and so on. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS. */
#ifndef ENGINE_CPU_TILES_H
#define ENGINE_CPU_TILES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum {
    AMX_ROWS = 16,
    AMX_PAIRED = 32, /* inputs of one step */
    AMX_TILE = AMX_ROWS * AMX_PAIRED,
};

struct amx_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Sets all eight tiles to their full size for this thread; _tile_release ends it. GCC 12 believes that the instruction
 * reads eight bytes alone, so it is told that all of them are wanted. */
static inline void amx_configure(void)
{
    struct amx_tile_config config = {.palette = 1};
    for (unsigned tile = 0; tile < 8; tile++) {
        config.row_bytes[tile] = 64;
        config.rows[tile] = AMX_ROWS;
    }
    __asm__ volatile("" : : "r"(&config) : "memory");
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

#endif
