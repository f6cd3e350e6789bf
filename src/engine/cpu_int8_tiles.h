/* int8 products on AMX tiles (cpu_tiles.h). Included by cpu_int8_body.h for cpu_int8_amx.c alone.
 *
 * A block of 32 rows by 32 outputs is summed in four tiles; one step takes 64 inputs, the panel's tiles from the
 * second-level cache and the rows' from the first-level one. Sums leave the tiles when the next block's first operands
 * are on their way, so that the tiles need not wait for the store, and what follows the product is done yet one block
 * later, when the sums have surely arrived: three blocks are underway at a time. The weight is cut into chunks of
 * panels that stay in the second-level cache while all rows pass.
 * Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBSSD. */
#ifndef ENGINE_CPU_INT8_TILES_H
#define ENGINE_CPU_INT8_TILES_H

#include "engine/cpu_int8.h"
#include "engine/cpu_tiles.h"

enum {
    INT8_TILE = AMX_ROWS * INT8_STEP,
    CHUNK_BYTES = 640 << 10, /* of the weight at once, in the second-level cache */
    DEEP_STEPS = 12,         /* 32 rows of so many steps stay in the first-level cache */
    UNDERWAY = 3,
};

/* A block: where it stands in the product, and its sums if they are not to be kept. */
struct int8_block {
    uint32_t rows; /* 0: none */
    uint32_t row, output;
    int32_t *to;   /* where its sums go */
    size_t stride; /* of these, in bytes */
    int32_t sums[INT8_BLOCK][INT8_PANEL] __attribute__((aligned(64)));
};

/* A product on its way: blocks[now] is being summed, the one before is in the tiles, the one before that is ended. */
struct int8_flow {
    const struct int8_job *job;
    unsigned now;
    struct int8_block blocks[UNDERWAY];
};

/* What is multiplied for one block. */
struct int8_depth {
    const int8_t *from, *packed;
    uint32_t steps;
    bool adds; /* to what stands in the sums */
};

/* The block that was begun so many before the one that is being summed. */
INLINE struct int8_block *int8_before(struct int8_flow *flow, unsigned blocks)
{
    return &flow->blocks[(flow->now + UNDERWAY - blocks) % UNDERWAY];
}

/* Puts the sums in tiles 0 and 1 of the block before away, and begins those of this one. */
INLINE void int8_turn_upper(const struct int8_block *last, const struct int8_block *block, bool adds)
{
    if (last->rows > 0) {
        _tile_stored(0, last->to, last->stride);
        _tile_stored(1, last->to + AMX_ROWS, last->stride);
    }
    if (adds) {
        _tile_loadd(0, block->to, block->stride);
        _tile_loadd(1, block->to + AMX_ROWS, block->stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
    }
}

/* Where the sums of its lower half begin. */
INLINE int32_t *int8_lower(const struct int8_block *block)
{
    return block->to + AMX_ROWS * block->stride / sizeof *block->to;
}

/* Likewise those of the lower halves, in tiles 2 and 3: a block of few rows has none. */
INLINE void int8_turn_lower(const struct int8_block *last, const struct int8_block *block, bool adds)
{
    if (last->rows > AMX_ROWS) {
        _tile_stored(2, int8_lower(last), last->stride);
        _tile_stored(3, int8_lower(last) + AMX_ROWS, last->stride);
    }
    if (adds && block->rows > AMX_ROWS) {
        _tile_loadd(2, int8_lower(block), block->stride);
        _tile_loadd(3, int8_lower(block) + AMX_ROWS, block->stride);
    } else {
        _tile_zero(2);
        _tile_zero(3);
    }
}

/* Ends a block's rows first..last - 1: what follows the product is done to their sums. */
INLINE void int8_end_block(const struct int8_flow *flow, const struct int8_block *block, uint32_t first, uint32_t last,
                           enum int8_end end, enum activation activation)
{
    int8_end_rows(flow->job, block->sums[first], block->row + first, last - first, block->output, end, activation);
}

/* Sums blocks[now]; between the steps, the rows of the block that is two before are ended. */
INLINE void int8_sum_block(struct int8_flow *flow, const struct int8_depth *depth, bool two, enum int8_end end,
                           enum activation activation)
{
    const struct int8_block *block = int8_before(flow, 0), *last = int8_before(flow, 1), *old = int8_before(flow, 2);
    uint32_t ended = 0, share = (old->rows + depth->steps - 1) / depth->steps;
    size_t stride = (size_t)flow->job->weight->steps * INT8_STEP;
    const int8_t *from = depth->from, *packed = depth->packed;
    for (uint32_t step = 0; step < depth->steps; step++, packed += 2 * INT8_TILE, from += INT8_STEP) {
        _tile_loadd(6, packed, INT8_STEP);
        _tile_loadd(7, packed + INT8_TILE, INT8_STEP);
        _tile_loadd(4, from, stride);
        if (two)
            _tile_loadd(5, from + AMX_ROWS * stride, stride);
        if (step == 0)
            int8_turn_upper(last, block, depth->adds);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        if (step == 0)
            int8_turn_lower(last, block, depth->adds);
        if (two) {
            _tile_dpbssd(2, 5, 6);
            _tile_dpbssd(3, 5, 7);
        }
        uint32_t due = ended + share < old->rows ? ended + share : old->rows;
        if (end != INT8_SUMS && due > ended)
            int8_end_block(flow, old, ended, due, end, activation);
        ended = due;
    }
    flow->now = (flow->now + 1) % UNDERWAY;
}

/* A block of rows and a panel, from one step of the inputs to another. */
INLINE void int8_add_block(struct int8_flow *flow, uint32_t row, uint32_t panel, uint32_t first, uint32_t last,
                           enum int8_end end, enum activation activation)
{
    const struct int8_job *job = flow->job;
    const struct int8_weight *weight = job->weight;
    size_t row_bytes = (size_t)weight->steps * INT8_STEP, columns = (size_t)weight->panels * INT8_PANEL;
    struct int8_block *block = int8_before(flow, 0);
    struct int8_depth depth = {
        .from = job->from.value + row * row_bytes + (size_t)first * INT8_STEP,
        .packed = weight->packed + panel * row_bytes * INT8_PANEL + (size_t)first * 2 * INT8_TILE,
        .steps = last - first,
        .adds = first > 0,
    };
    block->rows = job->rows - row < INT8_BLOCK ? job->rows - row : INT8_BLOCK;
    block->row = row;
    block->output = panel * INT8_PANEL;
    block->to = end == INT8_SUMS ? job->sums + row * columns + block->output : block->sums[0];
    block->stride = (end == INT8_SUMS ? columns : INT8_PANEL) * sizeof *block->to;
    if (block->rows > AMX_ROWS)
        int8_sum_block(flow, &depth, true, end, activation);
    else
        int8_sum_block(flow, &depth, false, end, activation);
}

/* Puts away and ends what is still underway. */
INLINE void int8_drain(struct int8_flow *flow, enum int8_end end, enum activation activation)
{
    const struct int8_block *last = int8_before(flow, 1), *old = int8_before(flow, 2);
    struct int8_block none = {.rows = 0};
    int8_turn_upper(last, &none, false);
    int8_turn_lower(last, &none, false);
    _tile_release();
    if (end == INT8_SUMS)
        return;
    if (old->rows > 0)
        int8_end_block(flow, old, 0, old->rows, end, activation);
    if (last->rows > 0)
        int8_end_block(flow, last, 0, last->rows, end, activation);
}

/* Only sums that are kept can be taken up again, so only then are the inputs cut. */
INLINE void int8_product_as(const struct int8_job *job, enum int8_end end, enum activation activation)
{
    const struct int8_weight *weight = job->weight;
    struct int8_flow flow;
    uint32_t chunk = CHUNK_BYTES / (weight->steps * INT8_STEP * INT8_PANEL) + 1;
    uint32_t cuts = end == INT8_SUMS ? (weight->steps + DEEP_STEPS - 1) / DEEP_STEPS : 1;
    flow.job = job;
    flow.now = 0;
    for (unsigned i = 0; i < UNDERWAY; i++)
        flow.blocks[i].rows = 0;
    amx_configure();
    for (uint32_t first = job->first_panel; first < job->last_panel; first += chunk) {
        uint32_t last = job->last_panel - first < chunk ? job->last_panel : first + chunk;
        for (uint32_t row = 0; row < job->rows; row += INT8_BLOCK)
            for (uint32_t cut = 0; cut < cuts; cut++)
                for (uint32_t panel = first; panel < last; panel++)
                    int8_add_block(&flow, row, panel, weight->steps * cut / cuts, weight->steps * (cut + 1) / cuts, end,
                                   activation);
    }
    int8_drain(&flow, end, activation);
}

#endif
