/* Runs for every batch, on the thread that feeds the device: four bytes read and eight written for a token. */
#include "engine/cuda_ragged.h"

#include <string.h>

static size_t aligned(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

struct cuda_ragged_layout cuda_ragged_layout(uint32_t tokens, uint32_t rows)
{
    struct cuda_ragged_layout layout;
    layout.start = aligned(KERNEL_COUNTS * sizeof(uint32_t));
    layout.length = layout.start + aligned(rows * sizeof(uint32_t));
    layout.ids = layout.length + aligned(rows * sizeof(uint32_t));
    layout.position = layout.ids + aligned(tokens * sizeof(int32_t));
    layout.tiles = layout.position + aligned(tokens * sizeof(uint32_t));
    layout.bytes = layout.tiles + kernel_tiles_bound(tokens, rows) * sizeof(struct kernel_tile);
    return layout;
}

static void fill_tokens(const struct pass *pass, const uint32_t *start, int32_t *ids, uint32_t *position)
{
    uint32_t end = 0; /* of what is written */
    for (uint32_t row = 0; row < pass->rows; row++) {
        uint32_t at = start[row], length = pass->length[row];
        if (at > end) {
            memset(ids + end, 0, (at - end) * sizeof *ids);
            memset(position + end, 0, (at - end) * sizeof *position);
        }
        memcpy(ids + at, pass->ids + at, length * sizeof *ids);
        for (uint32_t t = 0; t < length; t++)
            position[at + t] = t;
        end = at + length;
    }
    if (pass->extent > end) {
        memset(ids + end, 0, (pass->extent - end) * sizeof *ids);
        memset(position + end, 0, (pass->extent - end) * sizeof *position);
    }
}

size_t cuda_ragged_fill(const struct cuda_ragged_layout *layout, const struct pass *pass, void *block)
{
    char *base = block;
    uint32_t *counts = block, *start = (uint32_t *)(void *)(base + layout->start);
    struct kernel_tile *tiles = (struct kernel_tile *)(void *)(base + layout->tiles);
    for (uint32_t row = 0; row < pass->rows; row++)
        start[row] = pass->start[row] - pass->origin;
    memcpy(base + layout->length, pass->length, pass->rows * sizeof(uint32_t));
    fill_tokens(pass, start, (int32_t *)(void *)(base + layout->ids), (uint32_t *)(void *)(base + layout->position));
    counts[KERNEL_COUNT_ROWS] = pass->rows;
    counts[KERNEL_COUNT_TOKENS] = pass->extent;
    counts[KERNEL_COUNT_TILES] = kernel_tiles_fill(start, pass->length, pass->rows, tiles);
    return layout->tiles + counts[KERNEL_COUNT_TILES] * sizeof *tiles;
}

struct kernel_ragged cuda_ragged_view(const struct cuda_ragged_layout *layout, const void *block)
{
    const char *base = block;
    return (struct kernel_ragged){
        .counts = block,
        .ids = (const int32_t *)(const void *)(base + layout->ids),
        .position = (const uint32_t *)(const void *)(base + layout->position),
        .start = (const uint32_t *)(const void *)(base + layout->start),
        .length = (const uint32_t *)(const void *)(base + layout->length),
        .tiles = (const struct kernel_tile *)(const void *)(base + layout->tiles),
    };
}
