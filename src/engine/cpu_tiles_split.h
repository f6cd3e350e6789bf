/* Numbers in f32 split into their three parts (cpu_tiles.h), for products on AMX tiles: activations as they arise, the
 * weight while it is used. Included by cpu_kernels_amx.c alone.
 *
 * The weight is kept whole, in the order of the tiles: its parts would be half as much again to read, and reading the
 * weight is what a short text waits for. It is split a step ahead of the tiles; splitting a step takes the vector units
 * about as long as the tiles take for 16 rows. */
#ifndef ENGINE_CPU_TILES_SPLIT_H
#define ENGINE_CPU_TILES_SPLIT_H

#include "engine/cpu_tiles.h"
#include "engine/vec_math.h"

enum { BLOCK = 2 * AMX_ROWS }; /* rows and outputs of a block */

/* Inputs stand in pairs 16 apart, as amx_store_parts has them in turn. */
static void tiles_pack_f32(uint32_t outputs, uint32_t inputs, const float *weight, void *packed)
{
    float *to = packed;
    for (uint32_t panel = 0; panel < outputs; panel += BLOCK)
        for (uint32_t input = 0; input < inputs; input += AMX_PAIRED)
            for (uint32_t half = 0; half < BLOCK; half += AMX_ROWS)
                for (uint32_t pair = 0; pair < AMX_ROWS; pair++)
                    for (uint32_t column = 0; column < AMX_PAIRED; column++, to++) {
                        size_t output = panel + half + column % AMX_ROWS;
                        *to = weight[output * inputs + input + pair + column / AMX_ROWS * AMX_ROWS];
                    }
}

INLINE void split_line(const float *from, uint16_t *to, size_t plane)
{
    __m512 x[2] = {vec_load(from), vec_load(from + VEC)};
    amx_store_parts(x, to, plane);
}

/* As split_line, but what is below a part is cut off, which takes a quarter less: all parts have the sign of the number
 * then, and the products of parts that are left out are up to 2^-22 of the whole. */
INLINE void split_weight(const float *from, uint16_t *to, size_t plane)
{
    __m512 x[2] = {vec_load(from), vec_load(from + VEC)};
    for (unsigned part = 0; part < AMX_PARTS; part++, to += plane) {
        __m512i bits[2] = {_mm512_castps_si512(x[0]), _mm512_castps_si512(x[1])};
        _mm512_storeu_si512(to, amx_in_turn(bits));
        for (unsigned i = 0; i < 2; i++)
            x[i] = _mm512_sub_ps(x[i], amx_upper(bits[i]));
    }
}

static void tiles_split(uint32_t rows, uint32_t columns, size_t stride, const float *from, uint16_t *to, size_t plane)
{
    for (uint32_t row = 0; row < rows; row++, from += stride, to += stride)
        for (uint32_t column = 0; column < columns; column += AMX_PAIRED)
            split_line(from + column, to + column, plane);
}

/* Where the splitting of a part of the weight stands: step by step, panel by panel. */
struct splitting {
    const float *from;
    uint16_t *to;          /* each step's parts, of a part both tiles together */
    uint16_t *now;         /* those that the tiles are at */
    uint16_t *again, *end; /* where both go when they come to the end: a lone strip needs no more than a few steps */
    uint32_t left;         /* steps still to be split */
    uint32_t step, panel_left; /* of a panel: its steps, and those left */
    size_t jump;               /* floats from the end of a panel's steps to the next panel's */
};

enum {
    STEPS_AHEAD = 1,        /* of the tiles */
    FLOATS_ASKED = 4 << 10, /* so far ahead the weight is asked for: the processor itself does not look beyond a page */
    STEPS_KEPT = 2,         /* for a lone strip */
    STEP_LINES = 2 * AMX_ROWS,
    STEP_PARTS = AMX_PARTS * 2 * AMX_TILE,
    STEP_PRODUCTS = 6,
};

/* The step's parts behind those. */
INLINE uint16_t *behind(const struct splitting *splitting, uint16_t *parts)
{
    return parts + STEP_PARTS == splitting->end ? splitting->again : parts + STEP_PARTS;
}

/* The share of a step that is split behind one of the products of another. */
INLINE void split_some(struct splitting *splitting, const uint32_t number)
{
    if (splitting->left == 0)
        return;
    const uint32_t first = number * STEP_LINES / STEP_PRODUCTS, last = (number + 1) * STEP_LINES / STEP_PRODUCTS;
    for (uint32_t line = first; line < last; line++) {
        const float *from = splitting->from + (size_t)line * AMX_PAIRED;
        __builtin_prefetch(from + FLOATS_ASKED, 0, 2);
        __builtin_prefetch(from + FLOATS_ASKED + VEC, 0, 2);
        split_weight(from, splitting->to + (size_t)line * AMX_PAIRED, 2 * AMX_TILE);
    }
    if (last < STEP_LINES)
        return;
    splitting->from += STEP_LINES * AMX_PAIRED;
    splitting->to = behind(splitting, splitting->to);
    splitting->left--;
    if (--splitting->panel_left == 0) {
        splitting->from += splitting->jump;
        splitting->panel_left = splitting->step;
    }
}

#endif
