/* Matrix products on AMX tiles (cpu_tiles.h). Included by cpu_kernels_amx.c alone.
 *
 * The packed weight is cut into panels of 32 outputs, each read from memory once per call; all rows pass a panel while
 * it is in the first-level cache, 32 rows by 32 outputs at a time in four tiles of sums. What follows a product (bias,
 * activation, rounding) is done for one block while the tiles work on the next: the vector units are idle then. */
#ifndef ENGINE_CPU_TILES_PRODUCT_H
#define ENGINE_CPU_TILES_PRODUCT_H

#include "engine/cpu_kernels.h"
#include "engine/cpu_tiles.h"
#include "engine/vec_math.h"

enum { BLOCK = 2 * AMX_ROWS }; /* rows and outputs of a block */

/* A finished block of sums that waits for its end. */
struct waiting_block {
    uint32_t rows;     /* 0: none */
    const float *bias; /* [BLOCK] */
    uint16_t *to;
    float sums[BLOCK][BLOCK] __attribute__((aligned(64)));
};

static void tiles_pack(uint32_t outputs, uint32_t inputs, const float *weight, uint16_t *packed)
{
    for (uint32_t panel = 0; panel < outputs; panel += BLOCK)
        for (uint32_t input = 0; input < inputs; input += AMX_PAIRED)
            for (uint32_t half = 0; half < BLOCK; half += AMX_ROWS)
                for (uint32_t pair = 0; pair < AMX_PAIRED; pair += 2)
                    for (uint32_t column = 0; column < AMX_ROWS; column++, packed += 2) {
                        const float *from = weight + (size_t)(panel + half + column) * inputs + input + pair;
                        __m256bh two = _mm512_cvtneps_pbh(_mm512_castps128_ps512(_mm_set_ps(0, 0, from[1], from[0])));
                        __builtin_memcpy(packed, &two, 2 * sizeof *packed);
                    }
}

/* Ends rows first..last of a waiting block. */
INLINE void end_rows(const struct product_job *job, const struct waiting_block *block, uint32_t first, uint32_t last,
                     bool activates, enum activation activation)
{
    for (uint32_t row = first; row < last; row++) {
        for (uint32_t i = 0; i < BLOCK; i += VEC) {
            vec x = vec_add(vec_load(block->sums[row] + i), vec_load(block->bias + i));
            if (activates)
                x = activation_of(activation, true, x);
            vec_store_bf16(block->to + (size_t)row * job->outputs + i, x);
        }
    }
}

/* The four tiles of sums of one block; between the steps, the waiting block's rows are ended. */
INLINE void block_sums(const struct product_job *job, const uint16_t *from, const uint16_t *panel,
                       const struct waiting_block *waiting, bool two, bool activates, enum activation activation)
{
    size_t stride = job->inputs * sizeof *from;
    const uint16_t *below = from + (size_t)AMX_ROWS * job->inputs;
    uint32_t steps = job->inputs / AMX_PAIRED, ended = 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t step = 0; step < steps; step++, panel += 2 * AMX_TILE) {
        _tile_loadd(6, panel, 64);
        _tile_loadd(7, panel + AMX_TILE, 64);
        _tile_loadd(4, from + (size_t)step * AMX_PAIRED, stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (two) {
            _tile_loadd(5, below + (size_t)step * AMX_PAIRED, stride);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        uint32_t due = waiting->rows * (step + 1) / steps;
        end_rows(job, waiting, ended, due, activates, activation);
        ended = due;
    }
}

static inline void store_sums(float *to, size_t stride, bool two)
{
    _tile_stored(0, to, stride * sizeof *to);
    _tile_stored(1, to + AMX_ROWS, stride * sizeof *to);
    if (two) {
        _tile_stored(2, to + AMX_ROWS * stride, stride * sizeof *to);
        _tile_stored(3, to + AMX_ROWS * stride + AMX_ROWS, stride * sizeof *to);
    }
}

INLINE void product_as(const struct product_job *job, enum product_end end, enum activation activation)
{
    struct waiting_block blocks[2];
    bool activates = end == END_BIAS_ACTIVATION;
    unsigned next = 0;
    blocks[1].rows = 0;
    for (uint32_t output = 0; output < job->outputs; output += BLOCK) {
        const uint16_t *panel = job->packed + (size_t)output * job->inputs;
        for (uint32_t row = 0; row < job->rows; row += BLOCK) {
            const uint16_t *from = job->from + (size_t)row * job->inputs;
            size_t at = (size_t)row * job->outputs + output;
            bool two = job->rows - row > AMX_ROWS;
            if (two)
                block_sums(job, from, panel, &blocks[1 - next], true, activates, activation);
            else
                block_sums(job, from, panel, &blocks[1 - next], false, activates, activation);
            if (end == END_NOTHING) {
                store_sums(job->to.f32 + at, job->outputs, two);
                continue;
            }
            store_sums(blocks[next].sums[0], BLOCK, two);
            blocks[next].rows = two ? BLOCK : AMX_ROWS;
            blocks[next].bias = job->bias + output;
            blocks[next].to = job->to.bf16 + at;
            next = 1 - next;
        }
    }
    end_rows(job, &blocks[1 - next], 0, blocks[1 - next].rows, activates, activation);
}

static void tiles_product(const struct product_job *job)
{
    amx_configure();
    if (job->end == END_NOTHING)
        product_as(job, END_NOTHING, ACTIVATION_RELU);
    else if (job->end == END_BIAS)
        product_as(job, END_BIAS, ACTIVATION_RELU);
    else if (job->activation == ACTIVATION_GELU_ERF)
        product_as(job, END_BIAS_ACTIVATION, ACTIVATION_GELU_ERF);
    else if (job->activation == ACTIVATION_GELU_TANH)
        product_as(job, END_BIAS_ACTIVATION, ACTIVATION_GELU_TANH);
    else
        product_as(job, END_BIAS_ACTIVATION, ACTIVATION_RELU);
    _tile_release();
}

#endif
