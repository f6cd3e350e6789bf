/* Matrix products on AMX tiles (cpu_tiles.h). Included by cpu_kernels_amx.c alone.
 *
 * The weight is cut into chunks that stay in the second-level cache while all rows pass; within a chunk, a block of 32
 * rows stays in the first-level cache while the weight streams by in the order in which it is packed: panels of 32
 * outputs. A block of 32 rows by 32 outputs is summed in four tiles. What follows a product (bias, activation,
 * rounding) is done for one block while the tiles work on the next: the vector units are idle then. */
#ifndef ENGINE_CPU_TILES_PRODUCT_H
#define ENGINE_CPU_TILES_PRODUCT_H

#include "engine/cpu_kernels.h"
#include "engine/cpu_tiles.h"
#include "engine/vec_math.h"

enum {
    BLOCK = 2 * AMX_ROWS, /* rows and outputs of a block */
    CHUNK_OUTPUTS = 256,  /* of the weight at once: with 384 inputs 0.2 MB, which stay in the second-level cache */
    CHUNK_INPUTS = 384,   /* a block of rows by these is 24 KB, which stay in the first-level cache */
};

static inline uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

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

/* A block's place in the product: BLOCK rows by BLOCK outputs by some inputs. */
struct block_place {
    const uint16_t *from;  /* [16 or 32 rows, inputs] */
    const uint16_t *panel; /* packed */
    uint32_t inputs;       /* to be summed */
    float *sums;           /* where the sums go, and where those of the inputs before stand */
    size_t stride;         /* of sums */
    bool two;              /* 32 rows, not 16 */
    bool adds;             /* to what stands in sums */
};

INLINE void load_sums(const struct block_place *place)
{
    if (!place->adds) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    size_t bytes = place->stride * sizeof(float);
    _tile_loadd(0, place->sums, bytes);
    _tile_loadd(1, place->sums + AMX_ROWS, bytes);
    if (place->two) {
        _tile_loadd(2, place->sums + AMX_ROWS * place->stride, bytes);
        _tile_loadd(3, place->sums + AMX_ROWS * place->stride + AMX_ROWS, bytes);
    }
}

INLINE void store_sums(const struct block_place *place)
{
    size_t bytes = place->stride * sizeof(float);
    _tile_stored(0, place->sums, bytes);
    _tile_stored(1, place->sums + AMX_ROWS, bytes);
    if (place->two) {
        _tile_stored(2, place->sums + AMX_ROWS * place->stride, bytes);
        _tile_stored(3, place->sums + AMX_ROWS * place->stride + AMX_ROWS, bytes);
    }
}

/* Sums one block; between the steps, the waiting block's rows are ended. */
INLINE void sum_block(const struct product_job *job, const struct block_place *place,
                      const struct waiting_block *waiting, bool two, bool activates, enum activation activation)
{
    size_t bytes = job->inputs * sizeof(uint16_t);
    const uint16_t *from = place->from, *below = from + (size_t)AMX_ROWS * job->inputs, *panel = place->panel;
    uint32_t steps = place->inputs / AMX_PAIRED, ended = 0;
    load_sums(place);
    for (uint32_t step = 0; step < steps; step++, panel += 2 * AMX_TILE) {
        _tile_stream_loadd(6, panel, 64);
        _tile_stream_loadd(7, panel + AMX_TILE, 64);
        _tile_loadd(4, from + (size_t)step * AMX_PAIRED, bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (two) {
            _tile_loadd(5, below + (size_t)step * AMX_PAIRED, bytes);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        uint32_t due = waiting->rows * (step + 1) / steps;
        end_rows(job, waiting, ended, due, activates, activation);
        ended = due;
    }
    store_sums(place);
}

/* Only sums that go straight to memory can be taken up again, so only then are the inputs cut. */
static uint32_t inputs_at_once(const struct product_job *job)
{
    return job->end == END_NOTHING && job->inputs > CHUNK_INPUTS ? CHUNK_INPUTS : job->inputs;
}

/* All rows of one chunk of the weight. */
INLINE void sum_chunk(const struct product_job *job, uint32_t first_output, uint32_t first_input,
                      struct waiting_block blocks[2], unsigned *next, enum product_end end, enum activation activation)
{
    uint32_t last_output = least(first_output + CHUNK_OUTPUTS, job->outputs);
    struct block_place place = {.inputs = least(inputs_at_once(job), job->inputs - first_input),
                                .adds = end == END_NOTHING && first_input > 0};
    for (uint32_t row = 0; row < job->rows; row += BLOCK) {
        place.from = job->from + (size_t)row * job->inputs + first_input;
        place.two = job->rows - row > AMX_ROWS;
        for (uint32_t output = first_output; output < last_output; output += BLOCK) {
            struct waiting_block *done = &blocks[*next], *waiting = &blocks[1 - *next];
            size_t at = (size_t)row * job->outputs + output;
            place.panel = job->packed + (size_t)output * job->inputs + (size_t)first_input * BLOCK;
            place.sums = end == END_NOTHING ? job->to.f32 + at : done->sums[0];
            place.stride = end == END_NOTHING ? job->outputs : BLOCK;
            if (place.two)
                sum_block(job, &place, waiting, true, end == END_BIAS_ACTIVATION, activation);
            else
                sum_block(job, &place, waiting, false, end == END_BIAS_ACTIVATION, activation);
            if (end == END_NOTHING)
                continue;
            done->rows = place.two ? BLOCK : AMX_ROWS;
            done->bias = job->bias + output;
            done->to = job->to.bf16 + at;
            *next = 1 - *next;
        }
    }
}

INLINE void product_as(const struct product_job *job, enum product_end end, enum activation activation)
{
    struct waiting_block blocks[2];
    unsigned next = 0;
    blocks[0].rows = blocks[1].rows = 0;
    for (uint32_t output = 0; output < job->outputs; output += CHUNK_OUTPUTS)
        for (uint32_t input = 0; input < job->inputs; input += inputs_at_once(job))
            sum_chunk(job, output, input, blocks, &next, end, activation);
    end_rows(job, &blocks[1 - next], 0, blocks[1 - next].rows, end == END_BIAS_ACTIVATION, activation);
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
