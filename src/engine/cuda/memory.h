/* A workspace's resources on the device besides the weights: memory for one pass, three slots for batches in flight,
 * and three CUDA streams, so that copies in, computing and copies out overlap.
 *
 *   in       the ragged block from pinned memory to the slot
 *   compute  that block to its fixed place, where graphs expect it; the forward pass; vectors to the slot
 *   out      vectors to pinned memory
 *
 * A slot is reused only after its batch has been waited for; within a pass the CUDA streams wait for each other's
 * events. Thread: one at a time, with the device current. Errors, of all: STATUS_DEVICE_LOST, STATUS_NO_MEMORY,
 * STATUS_INTERNAL (see cuda_check). */
#ifndef ENGINE_CUDA_MEMORY_H
#define ENGINE_CUDA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/backend.h"
#include "engine/cuda/api.h"
#include "kernels/kernels.h"
#include "model/model.h"

/* A pass in the form that the kernels read, in one block, so that one copy brings a batch to the device: counts, row
 * starts, ids, positions and attention's tiles.
 *
 * Offsets depend on the bucket (tokens, rows) alone, so a captured graph finds every later pass of its bucket in the
 * same places. Tiles come last, because usually far fewer exist than the bound. */

/* Units: bytes from the block's start. */
struct cuda_ragged_layout {
    size_t start, length, ids, position, tiles;
    size_t bytes;            /* of the largest block */
    struct kernel_span span; /* what attention wants; none at first */
};

/* The layout of a bucket: at most `tokens` tokens, gaps included, and at most `rows` rows. */
struct cuda_ragged_layout cuda_ragged_layout(uint32_t tokens, uint32_t rows);

/* Writes a pass of at most the layout's tokens and rows. Ids and positions in gaps become 0; nothing reads them.
 * Returns the number of bytes to copy. Shapes: block [layout->bytes], aligned to 16. */
size_t cuda_ragged_fill(const struct cuda_ragged_layout *layout, const struct pass *pass, void *block);

/* Pointers into the same block in device memory. */
struct kernel_ragged cuda_ragged_view(const struct cuda_ragged_layout *layout, const void *block);

/* The device memory that a workspace takes and the size of its passes: arithmetic only, no device.
 *
 *   total = weights + activations(tokens, rows) + scratch + slots * (ragged(tokens, rows) + output(rows)) + graphs
 *
 * Passes run one after the other, so activations count once; buffers for copies count once per slot. The plan halves
 * the requested tokens until the total fits; it cannot go below one text of the model's full length. */

enum {
    CUDA_ALIGNMENT = 256,           /* of every buffer, as cudaMalloc aligns */
    CUDA_DEFAULT_TOKENS = 65536,    /* in a pass, by default */
    CUDA_DEFAULT_ROWS = 4096,       /* in a pass, by default */
    CUDA_GRAPHS = 64,               /* limit for one workspace */
    CUDA_GRAPH_BYTES = 64 * 1024,   /* estimate of a graph's device memory ... */
    CUDA_GRAPH_LAYER_BYTES = 16384, /* ... and of its nodes for one layer */
};

/* The offsets of the buffers in the one block of device memory. Units: bytes from its start. */
struct cuda_offsets {
    size_t x;    /* [tokens, hidden], the residual stream */
    size_t y;    /* [tokens, query width], attention's output; with pre_norm also [tokens, hidden], the normalised x; or
                    the numbers to add to x */
    size_t wide; /* [tokens, queries, keys and values], then [tokens, intermediate], of gated models twice that; or for
                    first tokens only [tokens, keys and values] followed by [rows, queries], then [rows, ...] */
    size_t gated;  /* [tokens, intermediate], of gated models */
    size_t first;  /* [rows, hidden], x of each row's first token; for CLS pooling */
    size_t ragged; /* the current batch (struct cuda_ragged_layout) */
    size_t slot_ragged[BACKEND_SLOTS_MAX], slot_output[BACKEND_SLOTS_MAX];
    size_t bytes;
};

struct cuda_plan_request {
    const struct model *model;
    uint32_t element_bytes;            /* of weights and activations */
    unsigned slots;                    /* 1 to BACKEND_SLOTS_MAX */
    uint32_t graphs;                   /* limit; 0: make none */
    uint32_t batch_tokens, batch_rows; /* 0: the defaults above */
    size_t weight_bytes;
    size_t workspace_bytes; /* of the matrix products */
    size_t available_bytes; /* limit of the total */
};

struct cuda_plan {
    uint32_t tokens; /* of a pass, a bucket size; at least the model's longest text */
    uint32_t rows;   /* of a pass; at most tokens */
    uint32_t hidden; /* of a pooled vector */
    struct cuda_offsets offsets;
    size_t ragged_bytes; /* of the largest block of a batch */
    size_t pinned_bytes; /* of host memory, for all slots: a block and the vectors */
    size_t graph_bytes;
    size_t total_bytes; /* of device memory */
    unsigned halvings;  /* of the requested tokens */
};

/* Plans for the available memory. Errors: STATUS_NO_MEMORY (not even the smallest pass fits; the message has the
 * sums). */
MUST_CHECK enum status cuda_plan_make(const struct cuda_plan_request *request, struct cuda_plan *out, struct err *err);

/* Halves a plan that turned out too large. Errors: STATUS_NO_MEMORY (it is the smallest). */
MUST_CHECK enum status cuda_plan_halve(const struct cuda_plan_request *request, struct cuda_plan *plan,
                                       struct err *err);

/* Rounds a pass up to a bucket, so that few sizes occur: a multiple of 8; above 256, 16 steps from each power of two
 * to the next, so that less than 1 in 16 is padding. */
uint32_t cuda_bucket_tokens(uint32_t tokens);

/* Buckets of rows, where each row costs little: powers of two, from 8 to `most`. */
uint32_t cuda_bucket_rows(uint32_t rows, uint32_t most);

/* --- on the device --- */

enum { CUDA_SLOTS = 3 };

struct cuda_slot {
    const struct pass *pass;
    void *ragged_host, *ragged;  /* ragged_host and output_host are pinned memory, the others the device's */
    float *output_host, *output; /* [rows, hidden], the pass's vectors, followed by a flag for each row: finite */
    cudaEvent_t arrived, computed, delivered;
};

struct cuda_memory {
    const struct cuda_api *api;
    struct cuda_plan plan;
    cudaStream_t in, compute, out;
    char *device, *pinned;
    struct cuda_slot slots[CUDA_SLOTS];
    unsigned first, waiting; /* slots copied out and not yet waited for, oldest first */
    bool finite;             /* all rows of the pass that was waited for last are */
};

/* Allocates for a plan, halving it while memory does not suffice. Owns: the caller ends it with cuda_memory_close. */
MUST_CHECK enum status cuda_memory_open(const struct cuda_api *api, const struct cuda_plan_request *request,
                                        const struct cuda_plan *plan, struct cuda_memory *out, struct err *err);

/* Closes it after waiting for running work, unless the device is lost. A zeroed struct may be closed. */
void cuda_memory_close(struct cuda_memory *memory);

/* Waits until all three CUDA streams are idle, so that any buffer may be written. */
MUST_CHECK enum status cuda_memory_drain(struct cuda_memory *memory, struct err *err);

/* The next free slot; there must be one. */
struct cuda_slot *cuda_memory_slot(struct cuda_memory *memory);

/* The flags of the rows of a slot's pass in `output`, the slot's on the device or on the host. Shapes: [rows]. */
uint32_t *cuda_memory_flags(const struct cuda_memory *memory, const struct cuda_slot *slot, float *output);

/* Copies a pass to the device; work enqueued on `compute` afterwards finds it at plan.offsets.ragged. */
MUST_CHECK enum status cuda_memory_copy_in(struct cuda_memory *memory, struct cuda_slot *slot,
                                           const struct cuda_ragged_layout *layout, const struct pass *pass,
                                           struct err *err);

/* Copies a slot's vectors and flags out once `compute` has done the work enqueued so far. The slot then counts as
 * waiting. */
MUST_CHECK enum status cuda_memory_copy_out(struct cuda_memory *memory, struct cuda_slot *slot, struct err *err);

/* Waits for the oldest waiting slot, writes its pass's output, and sets memory->finite. Frees the slot, whatever the
 * status. */
MUST_CHECK enum status cuda_memory_wait(struct cuda_memory *memory, struct err *err);

/* Frees that slot without waiting, after the device was lost. */
void cuda_memory_skip(struct cuda_memory *memory);

#endif
