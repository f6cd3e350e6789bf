/* Matrix products on AMX tiles (cpu_tiles.h). Included by cpu_kernels_amx.c alone.
 *
 * A block of 32 rows by 32 outputs is summed in four tiles. A strip of 32 rows stays in the first-level cache while the
 * weight streams by in the order in which it is packed: panels of 32 outputs. Of a large weight only a chunk is used at
 * a time, so that it stays in the second-level cache while all rows pass.
 *
 * What follows a product is done for what is finished while the tiles work on the next block, a little after every
 * step: the vector units are idle then. Bias, activation and rounding follow block by block, a normalisation strip by
 * strip; for that the sums of a strip stand in a buffer that the second-level cache holds.
 *
 * In f32 the weight is split into its parts (cpu_tiles_split.h) for the first strip, in the shadow of the tiles too;
 * the other strips find the parts of a chunk in a buffer in the second-level cache. */
#ifndef ENGINE_CPU_TILES_PRODUCT_H
#define ENGINE_CPU_TILES_PRODUCT_H

#include "engine/cpu_kernels.h"
#include "engine/cpu_tiles.h"
#include "engine/cpu_tiles_split.h"
#include "engine/vec_math.h"

enum {
    CHUNK_BYTES = 3 << 19, /* of the weight at once: this much of a second-level cache of 2 MB */
    CHUNK_BYTES_F32 = 3 << 18,
    ROWS_AT_ONCE = 4,   /* that are ended after a step: a divisor of AMX_ROWS */
    CHUNK_INPUTS = 384, /* a strip by these is 24 KB, which stay in the first-level cache */
};

static inline uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* What a product is, known at compile time: every kind has its own code. */
struct kind {
    uint32_t parts; /* of a number: 1 in bf16, AMX_PARTS in f32 */
    enum product_end end;
    enum activation activation;
    bool splits; /* the weight, on its way */
};

static void tiles_pack(uint32_t outputs, uint32_t inputs, const float *weight, void *packed)
{
    uint16_t *to = packed;
    for (uint32_t panel = 0; panel < outputs; panel += BLOCK)
        for (uint32_t input = 0; input < inputs; input += AMX_PAIRED)
            for (uint32_t half = 0; half < BLOCK; half += AMX_ROWS)
                for (uint32_t pair = 0; pair < AMX_PAIRED; pair += 2)
                    for (uint32_t column = 0; column < AMX_ROWS; column++, to += 2) {
                        const float *from = weight + (size_t)(panel + half + column) * inputs + input + pair;
                        __m256bh two = _mm512_cvtneps_pbh(_mm512_castps128_ps512(_mm_set_ps(0, 0, from[1], from[0])));
                        __builtin_memcpy(to, &two, 2 * sizeof *to);
                    }
}

/* --- what follows --------------------------------------------------------------------------------------------------
 */

/* Finished sums that wait for their end. */
struct waiting {
    uint32_t rows, ended;
    const float *sums;    /* [rows, BLOCK], or [rows, outputs] before a normalisation */
    const float *bias;    /* [BLOCK], or the normalisation's */
    uint16_t *to;         /* [rows, BLOCK], `stride` apart */
    size_t stride, plane; /* plane: from part to part */
};

INLINE void end_row(const struct waiting *waiting, uint32_t row, const struct kind kind)
{
    vec x[2];
    uint16_t *to = waiting->to + row * waiting->stride;
    for (uint32_t i = 0; i < 2; i++) {
        x[i] = vec_add(vec_load(waiting->sums + (size_t)row * BLOCK + i * VEC), vec_load(waiting->bias + i * VEC));
        if (kind.end == END_BIAS_ACTIVATION)
            x[i] = activation_of(kind.activation, kind.parts == 1, x[i]);
    }
    if (kind.parts == 1)
        _mm512_storeu_si512(to, amx_rounded(x));
    else
        amx_store_parts(x, to, waiting->plane);
}

/* Ends some rows, always the same number, so that the branches are easy to foresee. */
INLINE void end_some(struct waiting *waiting, const struct kind kind)
{
    if (kind.end == END_NOTHING || waiting->ended == waiting->rows)
        return;
    uint32_t some = kind.parts == 1 ? ROWS_AT_ONCE : 1;
    for (uint32_t i = 0; i < some; i++)
        end_row(waiting, waiting->ended + i, kind);
    waiting->ended += some;
}

INLINE void end_all(struct waiting *waiting, const struct kind kind)
{
    while (kind.end != END_NOTHING && waiting->ended < waiting->rows)
        end_some(waiting, kind);
}

/* --- sums ----------------------------------------------------------------------------------------------------------
 */

/* A block's place in the product: BLOCK rows by BLOCK outputs by some inputs. */
struct block_place {
    const uint16_t *from;  /* the first tile of the upper 16 rows */
    size_t row_bytes;      /* between rows of a tile */
    size_t below, step;    /* elements from a tile to the one below it and to the next one */
    size_t plane;          /* and to that of the next part */
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

INLINE void load_left(const struct block_place *place, const uint16_t *from, bool two)
{
    _tile_loadd(4, from, place->row_bytes);
    if (two)
        _tile_loadd(5, from + place->below, place->row_bytes);
}

/* What is read once for a strip need not stay in the first-level cache. */
INLINE void load_right(const uint16_t *panel)
{
    _tile_stream_loadd(6, panel, 64);
    _tile_stream_loadd(7, panel + AMX_TILE, 64);
}

INLINE void load_part(const uint16_t *panel)
{
    _tile_loadd(6, panel, 64);
    _tile_loadd(7, panel + AMX_TILE, 64);
}

INLINE void multiply(bool two)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (two) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

/* What the vector units do behind a product of tiles. */
INLINE void meanwhile(struct waiting *waiting, struct splitting *splitting, const uint32_t number,
                      const struct kind kind)
{
    end_some(waiting, kind);
    if (kind.splits)
        split_some(splitting, number);
}

/* One step in f32: the six products of parts, in an order in which each has an operand of the one before. */
INLINE void sum_parts(const struct block_place *place, const uint16_t *from, const uint16_t *panel,
                      struct waiting *waiting, struct splitting *splitting, bool two, const struct kind kind)
{
    size_t plane = place->plane, part = 2 * (size_t)AMX_TILE;
    load_left(place, from + plane, two);
    load_part(panel);
    multiply(two);
    meanwhile(waiting, splitting, 0, kind);
    load_left(place, from + 2 * plane, two);
    multiply(two);
    meanwhile(waiting, splitting, 1, kind);
    load_left(place, from, two);
    multiply(two);
    meanwhile(waiting, splitting, 2, kind);
    load_part(panel + 2 * part);
    multiply(two);
    meanwhile(waiting, splitting, 3, kind);
    load_part(panel + part);
    multiply(two);
    meanwhile(waiting, splitting, 4, kind);
    load_left(place, from + plane, two);
    multiply(two);
    meanwhile(waiting, splitting, 5, kind);
}

/* Sums one block of 32 rows, or of 16; after every product of tiles the vector units do a little. */
INLINE void sum_block(const struct block_place *place, struct waiting *waiting, struct splitting *splitting, bool two,
                      const struct kind kind)
{
    const uint16_t *from = place->from, *panel = place->panel;
    load_sums(place, two);
    for (uint32_t input = 0; input < place->inputs; input += AMX_PAIRED) {
        if (kind.parts == 1) {
            load_right(panel);
            load_left(place, from, two);
            multiply(two);
            meanwhile(waiting, splitting, 0, kind);
        } else {
            sum_parts(place, from, kind.splits ? splitting->now : panel, waiting, splitting, two, kind);
        }
        if (kind.splits)
            splitting->now = behind(splitting, splitting->now);
        panel += kind.parts * 2 * (size_t)AMX_TILE;
        from += place->step;
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
    struct splitting splitting;
    float *finished[2]; /* buffers that sums go to in turn while the others wait */
    unsigned now;
};

INLINE void place_input(const struct product_job *job, uint32_t row, uint32_t input, struct block_place *place)
{
    size_t inputs = job->inputs, strip = row * inputs;
    if (job->from_tiled)
        *place = (struct block_place){.from = job->from + strip + (size_t)input * BLOCK,
                                      .row_bytes = AMX_PAIRED * sizeof(uint16_t),
                                      .below = AMX_TILE,
                                      .step = 2 * AMX_TILE};
    else
        *place = (struct block_place){.from = job->from + strip + input,
                                      .row_bytes = inputs * sizeof(uint16_t),
                                      .below = AMX_ROWS * inputs,
                                      .step = AMX_PAIRED};
    place->plane = job->from_plane;
}

/* A block is finished: from now on it waits. */
INLINE void await_block(struct run *run, uint32_t row, uint32_t output, uint32_t rows)
{
    const struct product_job *job = run->job;
    size_t strip = (size_t)row * job->outputs;
    run->waiting = (struct waiting){.rows = rows, .sums = run->finished[run->now], .bias = job->bias + output};
    run->waiting.to = job->to.bf16 + strip + (job->to_tiled ? (size_t)output * BLOCK : output);
    run->waiting.stride = job->to_tiled ? BLOCK : job->outputs;
    run->waiting.plane = job->to_plane;
    run->now = 1 - run->now;
}

INLINE void sum_part(struct run *run, struct part part, const struct kind kind)
{
    const struct product_job *job = run->job;
    struct block_place place;
    for (uint32_t row = part.first_row; row < part.last_row; row += BLOCK) {
        bool two = job->rows - row > AMX_ROWS;
        place_input(job, row, part.first_input, &place);
        place.inputs = part.last_input - part.first_input;
        place.adds = part.first_input > 0;
        for (uint32_t output = part.first_output; output < part.last_output; output += BLOCK) {
            if (kind.parts == 1)
                place.panel =
                    (const uint16_t *)job->packed + (size_t)output * job->inputs + (size_t)part.first_input * BLOCK;
            else
                place.panel = job->room + (size_t)AMX_PARTS * (output - part.first_output) * place.inputs;
            place.stride = kind.end == END_NOTHING ? job->outputs : BLOCK;
            place.sums = run->finished[run->now];
            if (kind.end == END_NOTHING)
                place.sums = job->to.f32 + (size_t)row * job->outputs + output;
            if (two)
                sum_block(&place, &run->waiting, &run->splitting, true, kind);
            else
                sum_block(&place, &run->waiting, &run->splitting, false, kind);
            if (kind.end == END_NOTHING)
                continue;
            end_all(&run->waiting, kind);
            await_block(run, row, output, two ? BLOCK : AMX_ROWS);
        }
    }
}

/* The first strip with a chunk of the weight, which is split on the way. */
INLINE void sum_first_strip(struct run *run, struct part part, struct kind kind)
{
    const struct product_job *job = run->job;
    uint32_t steps = (part.last_input - part.first_input) / AMX_PAIRED;
    size_t panels = (part.last_output - part.first_output) / BLOCK;
    run->splitting = (struct splitting){
        .from = (const float *)job->packed + (size_t)part.first_output * job->inputs + (size_t)part.first_input * BLOCK,
        .to = job->room,
        .now = job->room,
        .again = job->room,
        .end = job->rows > BLOCK ? NULL : job->room + STEPS_KEPT * STEP_PARTS,
        .left = (uint32_t)panels * steps,
        .step = steps,
        .panel_left = steps,
        .jump = (size_t)(job->inputs - steps * AMX_PAIRED) * BLOCK,
    };
    for (uint32_t number = 0; number < STEPS_AHEAD * STEP_PRODUCTS; number++)
        split_some(&run->splitting, number % STEP_PRODUCTS);
    part.last_row = least(BLOCK, part.last_row);
    kind.splits = true;
    sum_part(run, part, kind);
}

/* All rows with a chunk of the weight. */
INLINE void sum_rows(struct run *run, struct part part, const struct kind kind)
{
    if (kind.parts > 1) {
        sum_first_strip(run, part, kind);
        part.first_row = BLOCK;
    }
    sum_part(run, part, kind);
}

/* Chunk by chunk of the weight. */
INLINE void product_as(const struct product_job *job, const struct kind kind)
{
    float blocks[2][BLOCK * BLOCK] __attribute__((aligned(64)));
    struct run run = {.job = job, .finished = {blocks[0], blocks[1]}};
    /* Only sums that go straight to memory can be taken up again, so only then are the inputs cut. */
    uint32_t inputs = kind.end == END_NOTHING ? least(CHUNK_INPUTS, job->inputs) : job->inputs;
    size_t bytes = kind.parts == 1 ? CHUNK_BYTES : CHUNK_BYTES_F32;
    uint32_t outputs = (uint32_t)(bytes / (kind.parts * inputs * sizeof(uint16_t)) / BLOCK * BLOCK);
    outputs = outputs < BLOCK ? BLOCK : outputs;
    for (uint32_t output = job->first_output; output < job->last_output; output += outputs)
        for (uint32_t input = 0; input < job->inputs; input += inputs)
            sum_rows(&run,
                     (struct part){0, job->rows, output, least(output + outputs, job->last_output), input,
                                   least(input + inputs, job->inputs)},
                     kind);
    end_all(&run.waiting, kind);
}

INLINE void product(const struct product_job *job, uint32_t parts)
{
    amx_configure();
    if (job->end == END_NOTHING)
        product_as(job, (struct kind){parts, END_NOTHING, ACTIVATION_RELU, false});
    else if (job->end == END_BIAS)
        product_as(job, (struct kind){parts, END_BIAS, ACTIVATION_RELU, false});
    else if (job->activation == ACTIVATION_GELU_ERF)
        product_as(job, (struct kind){parts, END_BIAS_ACTIVATION, ACTIVATION_GELU_ERF, false});
    else if (job->activation == ACTIVATION_GELU_TANH)
        product_as(job, (struct kind){parts, END_BIAS_ACTIVATION, ACTIVATION_GELU_TANH, false});
    else
        product_as(job, (struct kind){parts, END_BIAS_ACTIVATION, ACTIVATION_RELU, false});
    _tile_release();
}

/* The panel of the whole depth is the least that a product without END_NOTHING takes at once. */
static size_t tiles_room(uint32_t inputs)
{
    size_t panel = (size_t)inputs * BLOCK * AMX_PARTS * sizeof(uint16_t);
    return panel > CHUNK_BYTES_F32 ? panel : CHUNK_BYTES_F32;
}

static void tiles_product(const struct product_job *job)
{
    product(job, 1);
}

static void tiles_product_f32(const struct product_job *job)
{
    product(job, AMX_PARTS);
}

#endif
