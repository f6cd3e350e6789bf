/* Products of digits (cpu_digits.h) on AMX tiles. Included by cpu_kernels_amx.c alone.
 *
 * A block of 16 rows by 16 outputs is summed in four tiles, one for each place value: the products of digit i of the
 * rows and digit j of the weight go into sum i + j. That leaves four tiles for operands, enough to load each of the
 * eight digits once for ten products. What follows is done for one block while the next one is summed, a few rows
 * behind every step: the vector units are idle then.
 *
 * A strip of rows stays in the first-level cache while the weight streams by, panel by panel, and of a large weight
 * only a chunk is used at a time, so that it stays in the second-level cache while all rows pass. The first strip asks
 * for the weight ahead of itself: with one strip alone, nothing else is waited for.
 * Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBSSD. */
#ifndef ENGINE_CPU_DIGITS_PRODUCT_H
#define ENGINE_CPU_DIGITS_PRODUCT_H

#include "engine/cpu_digits_split.h"
#include "engine/cpu_tiles.h"

enum {
    PLACES = DIGITS, /* place values that are summed */
    BLOCK_SUMS = DIGITS_ROWS * DIGITS_ROWS,
    WEIGHT_CHUNK = 3 << 18, /* bytes of the weight at once, in the second-level cache */
    ASKED_AHEAD = 4 << 10,  /* bytes: the processor itself does not look beyond a page */
    STEP_LINES = STEP_BYTES / 64,
    STEP_PRODUCTS = 10,
};

/* What follows a product, known at compile time: each has its own code. */
struct digits_kind {
    enum product_end end;
    enum activation activation;
};

/* A block that has been summed and waits for its end. */
struct digit_block {
    uint32_t rows, ended;
    const float *row_scale;           /* [rows] */
    const float *output_scale, *bias; /* [16] */
    float *to;                        /* [rows, 16], `stride` apart */
    size_t stride;
    int32_t sums[PLACES][BLOCK_SUMS] __attribute__((aligned(64)));
};

/* A product on its way: blocks[now] is being summed, the other one is ended. */
struct digit_run {
    const struct digits_job *job;
    size_t strip; /* bytes of a strip or a panel */
    uint32_t steps, rows_a_step;
    unsigned now;
    struct digit_block blocks[2];
};

/* --- what follows --------------------------------------------------------------------------------------------------
 */

INLINE void end_digits_row(const struct digit_block *block, uint32_t row, const struct digits_kind kind)
{
    const vec place = vec_set(1.0f / 256);
    vec x = vec_set(0.0f);
    for (unsigned i = PLACES; i-- > 0;)
        x = vec_fma(x, place, _mm512_cvtepi32_ps(_mm512_load_si512(block->sums[i] + (size_t)row * DIGITS_ROWS)));
    x = vec_mul(x, vec_mul(vec_load(block->output_scale), vec_set(block->row_scale[row])));
    if (kind.end != END_NOTHING)
        x = vec_add(x, vec_load(block->bias));
    if (kind.end == END_BIAS_ACTIVATION)
        x = activation_of(kind.activation, false, x);
    vec_store(block->to + row * block->stride, x);
}

INLINE void end_digits(struct digit_block *block, uint32_t most, const struct digits_kind kind)
{
    for (; most > 0 && block->ended < block->rows; most--)
        end_digits_row(block, block->ended++, kind);
}

/* --- sums ----------------------------------------------------------------------------------------------------------
 */

/* What is asked for behind one of a step's products. */
INLINE void ask(const int8_t *weight, const unsigned product, bool asks)
{
    const unsigned last = (product + 1) * STEP_LINES / STEP_PRODUCTS;
    for (unsigned line = product * STEP_LINES / STEP_PRODUCTS; asks && line < last; line++)
        __builtin_prefetch(weight + ASKED_AHEAD + 64 * line, 0, 2);
}

/* One step: sums in tiles 0 to 3, digits of the rows in 4, 5 and 6, one of the weight in 7, which need not stay in the
 * first-level cache. */
INLINE void sum_step(const int8_t *from, const int8_t *weight, bool asks)
{
    _tile_stream_loadd(7, weight, 64);
    _tile_loadd(6, from + 3 * DIGIT_TILE, 64);
    _tile_dpbssd(3, 6, 7);
    ask(weight, 0, asks);
    _tile_loadd(6, from + 2 * DIGIT_TILE, 64);
    _tile_dpbssd(2, 6, 7);
    ask(weight, 1, asks);
    _tile_loadd(5, from + DIGIT_TILE, 64);
    _tile_dpbssd(1, 5, 7);
    ask(weight, 2, asks);
    _tile_loadd(4, from, 64);
    _tile_dpbssd(0, 4, 7);
    ask(weight, 3, asks);
    _tile_stream_loadd(7, weight + DIGIT_TILE, 64);
    _tile_dpbssd(3, 6, 7);
    ask(weight, 4, asks);
    _tile_dpbssd(2, 5, 7);
    ask(weight, 5, asks);
    _tile_dpbssd(1, 4, 7);
    ask(weight, 6, asks);
    _tile_stream_loadd(7, weight + 2 * DIGIT_TILE, 64);
    _tile_dpbssd(3, 5, 7);
    ask(weight, 7, asks);
    _tile_dpbssd(2, 4, 7);
    ask(weight, 8, asks);
    _tile_stream_loadd(7, weight + 3 * DIGIT_TILE, 64);
    _tile_dpbssd(3, 4, 7);
    ask(weight, 9, asks);
}

/* Sums a block while the one before it is ended. */
INLINE void sum_digits(struct digit_run *run, uint32_t row, uint32_t output, bool asks, const struct digits_kind kind)
{
    const struct digits_job *job = run->job;
    struct digit_block *block = &run->blocks[run->now], *before = &run->blocks[1 - run->now];
    const int8_t *from = job->from.value + row / DIGITS_ROWS * run->strip;
    const int8_t *weight = job->weight.value + output / DIGITS_ROWS * run->strip;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t step = 0; step < run->steps; step++, from += STEP_BYTES, weight += STEP_BYTES) {
        sum_step(from, weight, asks);
        end_digits(before, run->rows_a_step, kind);
    }
    _tile_stored(0, block->sums[0], 64);
    _tile_stored(1, block->sums[1], 64);
    _tile_stored(2, block->sums[2], 64);
    _tile_stored(3, block->sums[3], 64);
    block->rows = job->rows - row < DIGITS_ROWS ? job->rows - row : DIGITS_ROWS;
    block->ended = 0;
    block->row_scale = job->from.scale + row;
    block->output_scale = job->weight.scale + output;
    block->bias = job->bias + output;
    block->to = job->to + (size_t)row * job->outputs + output;
    block->stride = job->outputs;
    run->now = 1 - run->now;
}

/* --- the product ---------------------------------------------------------------------------------------------------
 */

/* All rows with a chunk of the weight. */
INLINE void sum_chunk(struct digit_run *run, uint32_t first, uint32_t last, const struct digits_kind kind)
{
    for (uint32_t output = first; output < last; output += DIGITS_ROWS)
        sum_digits(run, 0, output, true, kind);
    for (uint32_t row = DIGITS_ROWS; row < run->job->rows; row += DIGITS_ROWS)
        for (uint32_t output = first; output < last; output += DIGITS_ROWS)
            sum_digits(run, row, output, false, kind);
}

INLINE void digits_as(const struct digits_job *job, const struct digits_kind kind)
{
    struct digit_run run = {.job = job, .strip = digits_bytes(DIGITS_ROWS, job->inputs)};
    run.steps = (uint32_t)(run.strip / STEP_BYTES);
    run.rows_a_step = (DIGITS_ROWS + run.steps - 1) / run.steps;
    uint32_t panels = (uint32_t)(WEIGHT_CHUNK / run.strip), chunk = (panels == 0 ? 1 : panels) * DIGITS_ROWS;
    for (uint32_t output = job->first_output; output < job->last_output; output += chunk)
        sum_chunk(&run, output, job->last_output - output < chunk ? job->last_output : output + chunk, kind);
    end_digits(&run.blocks[1 - run.now], DIGITS_ROWS, kind);
}

static void digits_product(const struct digits_job *job)
{
    amx_configure();
    if (job->end == END_NOTHING)
        digits_as(job, (struct digits_kind){END_NOTHING, ACTIVATION_RELU});
    else if (job->end == END_BIAS)
        digits_as(job, (struct digits_kind){END_BIAS, ACTIVATION_RELU});
    else if (job->activation == ACTIVATION_GELU_ERF)
        digits_as(job, (struct digits_kind){END_BIAS_ACTIVATION, ACTIVATION_GELU_ERF});
    else if (job->activation == ACTIVATION_GELU_TANH)
        digits_as(job, (struct digits_kind){END_BIAS_ACTIVATION, ACTIVATION_GELU_TANH});
    else
        digits_as(job, (struct digits_kind){END_BIAS_ACTIVATION, ACTIVATION_RELU});
    _tile_release();
}

#endif
