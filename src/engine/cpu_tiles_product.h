/* Matrix products on AMX tiles (cpu_tiles.h). Included by cpu_kernels_amx.c alone.
 *
 * A block of 32 rows by 32 outputs is summed in four tiles. A strip of 32 rows stays in the first-level cache while the
 * weight streams by in the order in which it is packed: panels of 32 outputs. Of a large weight only a chunk is used at
 * a time, so that it stays in the second-level cache while all rows pass.
 *
 * What follows a product is done for what is finished while the tiles work on the next block, a little after every
 * step: the vector units are idle then. Bias, activation and rounding follow block by block, a normalisation strip by
 * strip; for that the sums of a strip stand in a buffer that the second-level cache holds. */
#ifndef ENGINE_CPU_TILES_PRODUCT_H
#define ENGINE_CPU_TILES_PRODUCT_H

#include "engine/cpu_kernels.h"
#include "engine/cpu_tiles.h"
#include "engine/vec_math.h"

enum {
    BLOCK = 2 * AMX_ROWS,  /* rows and outputs of a block */
    CHUNK_BYTES = 3 << 19, /* of the weight at once: this much of a second-level cache of 2 MB */
    ROWS_AT_ONCE = 4,      /* that are ended after a step: a divisor of AMX_ROWS */
    CHUNK_INPUTS = 384,    /* a strip by these is 24 KB, which stay in the first-level cache */
};

static inline uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

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

/* --- what follows --------------------------------------------------------------------------------------------------
 */

/* Finished sums that wait for their end. */
struct waiting {
    uint32_t rows, ended;
    const float *sums; /* [rows, BLOCK], or [rows, outputs] before a normalisation */
    const float *bias; /* [BLOCK], or the normalisation's */
    uint16_t *to;      /* [rows, BLOCK], `stride` apart */
    size_t stride;
};

INLINE void end_row(const struct waiting *waiting, uint32_t row, bool activates, enum activation activation)
{
    vec x[2];
    for (uint32_t i = 0; i < 2; i++) {
        x[i] = vec_add(vec_load(waiting->sums + (size_t)row * BLOCK + i * VEC), vec_load(waiting->bias + i * VEC));
        if (activates)
            x[i] = activation_of(activation, true, x[i]);
    }
    _mm512_storeu_si512(waiting->to + row * waiting->stride, amx_rounded(x));
}

/* Ends some rows, always the same number, so that the branches are easy to foresee. */
INLINE void end_some(struct waiting *waiting, enum product_end end, enum activation activation)
{
    if (end == END_NOTHING || waiting->ended == waiting->rows)
        return;
    for (uint32_t i = 0; i < ROWS_AT_ONCE; i++)
        end_row(waiting, waiting->ended + i, end == END_BIAS_ACTIVATION, activation);
    waiting->ended += ROWS_AT_ONCE;
}

INLINE void end_all(struct waiting *waiting, enum product_end end, enum activation activation)
{
    while (end != END_NOTHING && waiting->ended < waiting->rows)
        end_some(waiting, end, activation);
}

/* --- sums ----------------------------------------------------------------------------------------------------------
 */

/* A block's place in the product: BLOCK rows by BLOCK outputs by some inputs. */
struct block_place {
    const uint16_t *from;  /* the first tile of the upper 16 rows */
    size_t row_bytes;      /* between rows of a tile */
    size_t below, step;    /* elements from a tile to the one below it and to the next one */
    const uint16_t *panel; /* packed */
    uint32_t inputs;       /* to be summed */
    float *sums;           /* where the sums go, and where those of the inputs before stand */
    size_t stride;         /* of sums */
    bool adds;             /* to what stands in sums */
};

INLINE void load_sums(const struct block_place *place, bool two)
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
    if (two) {
        _tile_loadd(2, place->sums + AMX_ROWS * place->stride, bytes);
        _tile_loadd(3, place->sums + AMX_ROWS * place->stride + AMX_ROWS, bytes);
    }
}

INLINE void store_sums(const struct block_place *place, bool two)
{
    size_t bytes = place->stride * sizeof(float);
    _tile_stored(0, place->sums, bytes);
    _tile_stored(1, place->sums + AMX_ROWS, bytes);
    if (two) {
        _tile_stored(2, place->sums + AMX_ROWS * place->stride, bytes);
        _tile_stored(3, place->sums + AMX_ROWS * place->stride + AMX_ROWS, bytes);
    }
}

/* Sums one block of 32 rows, or of 16; after every step some of the waiting rows are ended. */
INLINE void sum_block(const struct block_place *place, struct waiting *waiting, bool two, enum product_end end,
                      enum activation activation)
{
    const uint16_t *from = place->from, *panel = place->panel;
    size_t row_bytes = place->row_bytes, below = place->below;
    load_sums(place, two);
    for (uint32_t input = 0; input < place->inputs; input += AMX_PAIRED) {
        _tile_stream_loadd(6, panel, 64);
        _tile_stream_loadd(7, panel + AMX_TILE, 64);
        _tile_loadd(4, from, row_bytes);
        if (two)
            _tile_loadd(5, from + below, row_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (two) {
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        panel += 2 * AMX_TILE;
        from += place->step;
        end_some(waiting, end, activation);
    }
    store_sums(place, two);
}

/* --- the product ---------------------------------------------------------------------------------------------------
 */

/* A part of the product: a strip or all rows, some outputs, some inputs. */
struct part {
    uint32_t first_row, last_row, first_output, last_output, first_input, last_input;
};

/* What a running product keeps between its blocks. */
struct run {
    const struct product_job *job;
    struct waiting waiting;
    float *finished[2]; /* buffers that sums go to in turn while the others wait */
    unsigned now;
};

INLINE void place_input(const struct product_job *job, uint32_t row, uint32_t input, struct block_place *place)
{
    size_t inputs = job->inputs, strip = row * inputs;
    if (job->from_tiled) {
        *place = (struct block_place){job->from + strip + (size_t)input * BLOCK, AMX_PAIRED * sizeof(uint16_t),
                                      AMX_TILE, 2 * AMX_TILE};
        return;
    }
    *place = (struct block_place){job->from + strip + input, inputs * sizeof(uint16_t), AMX_ROWS * inputs, AMX_PAIRED};
}

/* A block is finished: from now on it waits. */
INLINE void await_block(struct run *run, uint32_t row, uint32_t output, uint32_t rows)
{
    const struct product_job *job = run->job;
    size_t strip = (size_t)row * job->outputs;
    run->waiting = (struct waiting){.rows = rows, .sums = run->finished[run->now], .bias = job->bias + output};
    run->waiting.to = job->to.bf16 + strip + (job->to_tiled ? (size_t)output * BLOCK : output);
    run->waiting.stride = job->to_tiled ? BLOCK : job->outputs;
    run->now = 1 - run->now;
}

INLINE void sum_part(struct run *run, struct part part, enum product_end end, enum activation activation)
{
    const struct product_job *job = run->job;
    struct block_place place;
    for (uint32_t row = part.first_row; row < part.last_row; row += BLOCK) {
        bool two = job->rows - row > AMX_ROWS;
        place_input(job, row, part.first_input, &place);
        place.inputs = part.last_input - part.first_input;
        place.adds = part.first_input > 0;
        for (uint32_t output = part.first_output; output < part.last_output; output += BLOCK) {
            place.panel = job->packed + (size_t)output * job->inputs + (size_t)part.first_input * BLOCK;
            place.stride = end == END_NOTHING ? job->outputs : BLOCK;
            place.sums = run->finished[run->now];
            if (end == END_NOTHING)
                place.sums = job->to.f32 + (size_t)row * job->outputs + output;
            if (two)
                sum_block(&place, &run->waiting, true, end, activation);
            else
                sum_block(&place, &run->waiting, false, end, activation);
            if (end == END_NOTHING)
                continue;
            end_all(&run->waiting, end, activation);
            await_block(run, row, output, two ? BLOCK : AMX_ROWS);
        }
    }
}

/* Chunk by chunk of the weight, each with all rows. */
INLINE void product_as(struct run *run, enum product_end end, enum activation activation)
{
    const struct product_job *job = run->job;
    /* Only sums that go straight to memory can be taken up again, so only then are the inputs cut. */
    uint32_t inputs = end == END_NOTHING ? CHUNK_INPUTS : job->inputs;
    uint32_t outputs = CHUNK_BYTES / (inputs * sizeof(uint16_t)) / BLOCK * BLOCK;
    outputs = outputs < BLOCK ? BLOCK : outputs;
    for (uint32_t output = job->first_output; output < job->last_output; output += outputs)
        for (uint32_t input = 0; input < job->inputs; input += inputs)
            sum_part(run,
                     (struct part){0, job->rows, output, least(output + outputs, job->last_output), input,
                                   least(input + inputs, job->inputs)},
                     end, activation);
    end_all(&run->waiting, end, activation);
}

static void tiles_product(const struct product_job *job)
{
    float blocks[2][BLOCK * BLOCK] __attribute__((aligned(64)));
    struct run run = {.job = job, .finished = {blocks[0], blocks[1]}};
    amx_configure();
    if (job->end == END_NOTHING) {
        product_as(&run, END_NOTHING, ACTIVATION_RELU);
    } else if (job->end == END_BIAS) {
        product_as(&run, END_BIAS, ACTIVATION_RELU);
    } else if (job->activation == ACTIVATION_GELU_ERF) {
        product_as(&run, END_BIAS_ACTIVATION, ACTIVATION_GELU_ERF);
    } else if (job->activation == ACTIVATION_GELU_TANH) {
        product_as(&run, END_BIAS_ACTIVATION, ACTIVATION_GELU_TANH);
    } else {
        product_as(&run, END_BIAS_ACTIVATION, ACTIVATION_RELU);
    }
    _tile_release();
}

#endif
