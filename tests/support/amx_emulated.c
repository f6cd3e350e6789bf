/* engine/cpu/isa/amx.c compiled once more on tiles in plain C, so that any machine with AVX-512's bf16 tests that code:
 * the row amx_emulated, which the table of products has in tests alone (gemm.c). Every tile instruction is a function
 * here that follows the manual, and ends the process where the processor would raise a fault. Source: Intel 64 and
 * IA-32 Architectures Software Developer's Manual, volume 2, LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBF16PS,
 * TDPBSSD.
 */
#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 8, TILE_ROWS_MAX = 16, ROW_BYTES_MAX = 64, LANES = ROW_BYTES_MAX / 4 };

/* Unused parts are zero: rows after the last, and bytes after a row. */
struct tile {
    uint32_t rows, row_bytes;
    uint8_t row[TILE_ROWS_MAX][ROW_BYTES_MAX];
};

/* The part of a processor that a thread sees. */
static _Thread_local struct tile tiles[TILES]; /* all without rows: not configured */

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "amx_emulated: %s\n", what);
        abort();
    }
}

/* --- configuration --- */

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static void emulated_loadconfig(const void *from)
{
    static const uint8_t none[14];
    struct tile_config config;
    memcpy(&config, from, sizeof config);
    require(config.palette == 1 && config.start_row == 0, "a palette other than 1, or a row to go on from");
    require(memcmp(config.reserved, none, sizeof none) == 0, "reserved bytes that are not zero");
    memset(tiles, 0, sizeof tiles);
    for (unsigned t = 0; t < 16; t++) {
        require(t < TILES || (config.rows[t] == 0 && config.row_bytes[t] == 0), "more tiles than there are");
        require(config.rows[t] <= TILE_ROWS_MAX && config.row_bytes[t] <= ROW_BYTES_MAX, "a tile that is too large");
        require((config.rows[t] == 0) == (config.row_bytes[t] == 0), "a tile with rows or columns alone");
        if (t < TILES) { tiles[t] = (struct tile){.rows = config.rows[t], .row_bytes = config.row_bytes[t]}; }
    }
}

static void emulated_release(void)
{
    memset(tiles, 0, sizeof tiles);
}

static struct tile *tile_at(unsigned t)
{
    require(t < TILES && tiles[t].rows > 0, "a tile that is not configured");
    return &tiles[t];
}

/* --- memory --- */

static void emulated_zero(unsigned t)
{
    memset(tile_at(t)->row, 0, sizeof tiles[t].row);
}

static void emulated_load(unsigned t, const void *from, size_t stride)
{
    emulated_zero(t);
    for (uint32_t i = 0; i < tiles[t].rows; i++) {
        memcpy(tiles[t].row[i], (const uint8_t *)from + i * stride, tiles[t].row_bytes);
    }
}

static void emulated_store(unsigned t, void *to, size_t stride)
{
    const struct tile *tile = tile_at(t);
    for (uint32_t i = 0; i < tile->rows; i++) { memcpy((uint8_t *)to + i * stride, tile->row[i], tile->row_bytes); }
}

/* --- products --- */

/* Ends the process unless the shapes of three tiles fit a product. */
static void require_shapes(unsigned sum, unsigned left, unsigned right)
{
    const struct tile *c = tile_at(sum), *a = tile_at(left), *b = tile_at(right);
    require(sum != left && sum != right && left != right, "a tile that is two operands");
    require(c->row_bytes % 4 == 0 && a->row_bytes % 4 == 0 && b->row_bytes % 4 == 0, "columns that are not whole");
    require(c->rows == a->rows && c->row_bytes == b->row_bytes && a->row_bytes / 4 == b->rows,
            "operands whose shapes do not fit together");
}

/* Subnormal numbers count as zero and become zero. */
static float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

/* The lower or the upper of two bf16 numbers. */
static float half_of(uint32_t pair, bool upper)
{
    uint32_t bits = upper ? pair & 0xffff0000 : pair << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return flushed(x);
}

/* The first numbers of the pairs have a sum of their own, and the second ones; both then go into the tile's. */
static void emulated_dpbf16ps(unsigned sum, unsigned left, unsigned right)
{
    require_shapes(sum, left, right);
    float b[TILE_ROWS_MAX][2][LANES], c[LANES];
    uint32_t a[LANES], row[LANES];
    for (uint32_t k = 0; k < TILE_ROWS_MAX; k++) {
        memcpy(row, tiles[right].row[k], sizeof row);
        for (uint32_t n = 0; n < LANES; n++) {
            b[k][0][n] = half_of(row[n], false);
            b[k][1][n] = half_of(row[n], true);
        }
    }
    for (uint32_t m = 0; m < tiles[sum].rows; m++) {
        float even[LANES] = {0}, odd[LANES] = {0};
        memcpy(a, tiles[left].row[m], sizeof a);
        memcpy(c, tiles[sum].row[m], sizeof c);
        for (uint32_t k = 0; k < tiles[right].rows; k++) {
            float first = half_of(a[k], false), second = half_of(a[k], true);
            for (uint32_t n = 0; n < LANES; n++) {
                even[n] = flushed(fmaf(first, b[k][0][n], even[n]));
                odd[n] = flushed(fmaf(second, b[k][1][n], odd[n]));
            }
        }
        for (uint32_t n = 0; n < LANES; n++) { c[n] = flushed(flushed(c[n]) + flushed(even[n] + odd[n])); }
        memcpy(tiles[sum].row[m], c, tiles[sum].row_bytes);
    }
}

/* Sums wrap around. */
static void emulated_dpbssd(unsigned sum, unsigned left, unsigned right)
{
    require_shapes(sum, left, right);
    uint32_t b[ROW_BYTES_MAX][LANES], c[LANES]; /* negative numbers as 2^32 less their size */
    for (uint32_t k = 0; k < ROW_BYTES_MAX; k++) {
        for (uint32_t n = 0; n < LANES; n++) { b[k][n] = (uint32_t)(int8_t)tiles[right].row[k / 4][4 * n + k % 4]; }
    }
    for (uint32_t m = 0; m < tiles[sum].rows; m++) {
        memcpy(c, tiles[sum].row[m], sizeof c);
        for (uint32_t k = 0; k < tiles[left].row_bytes; k++) {
            uint32_t a = (uint32_t)(int8_t)tiles[left].row[m][k];
            for (uint32_t n = 0; n < LANES; n++) { c[n] += a * b[k][n]; }
        }
        memcpy(tiles[sum].row[m], c, tiles[sum].row_bytes);
    }
}

/* --- the code under test, on these tiles --- */

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_loadconfig emulated_loadconfig
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd emulated_load
#define _tile_stream_loadd emulated_load
#define _tile_stored emulated_store
#define _tile_dpbf16ps emulated_dpbf16ps
#define _tile_dpbssd emulated_dpbssd
#define bf16_amx bf16_amx_emulated
#define int8_amx int8_amx_emulated
#define kernels_amx kernels_amx_emulated
#define split_f32_amx split_f32_amx_emulated
#include "engine/cpu/isa/amx.c"
