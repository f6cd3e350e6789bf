/* A pass as the kernels read it: counts, places of rows, ids, positions and attention's tiles in one block, so that one
 * copy brings a batch to the device.
 *
 * Where things lie depends on the bucket alone (tokens, rows), not on the pass: a graph that was captured for a bucket
 * finds every later pass of it in the same places. Tiles come last, since there are far fewer than there might be. */
#ifndef ENGINE_CUDA_RAGGED_H
#define ENGINE_CUDA_RAGGED_H

#include "engine/backend.h"
#include "kernels/kernels.h"

/* Units: bytes from the block's start. */
struct cuda_ragged_layout {
    size_t start, length, ids, position, tiles;
    size_t bytes; /* of the largest block */
};

struct cuda_ragged_layout cuda_ragged_layout(uint32_t tokens, uint32_t rows);

/* Writes a pass of at most so many tokens and rows; ids and positions in gaps become 0, what lies there is not read.
 * Returns the bytes from the start on that have to be copied. Shapes: block [layout->bytes], aligned to 16. */
size_t cuda_ragged_fill(const struct cuda_ragged_layout *layout, const struct pass *pass, void *block);

/* The same block in device memory, as the kernels take it. */
struct kernel_ragged cuda_ragged_view(const struct cuda_ragged_layout *layout, const void *block);

#endif
