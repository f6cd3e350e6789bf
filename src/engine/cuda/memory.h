/* What one encoder has on the device beside the weights: memory for one pass, three slots for batches on their way in
 * and out, and three CUDA streams, so that copies in, the computing, and copies out run side by side.
 *
 *     in       ragged block from pinned memory
 *     compute  that block to its one place (where graphs look for it); the forward pass; vectors into the slot
 *     out      vectors to pinned memory
 *
 * A slot's buffers are written again only after its batch was waited for; within a pass the streams wait for each other
 * by events. Thread: one at a time, with the device current. Errors, of all: STATUS_DEVICE_LOST, STATUS_NO_MEMORY,
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

/* A pass as the kernels read it: counts, places of rows, ids, positions and attention's tiles in one block, so that one
 * copy brings a batch to the device.
 *
 * Where things lie depends on the bucket alone (tokens, rows), not on the pass: a graph that was captured for a bucket
 * finds every later pass of it in the same offsets. Tiles come last, since there are far fewer than there might be. */

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

/* How much device memory a stream takes, and how large its passes may be: numbers only, no device.
 *
 *     total = weights + activations(tokens, rows) + workspaces + slots * (ragged(tokens, rows) + output(rows)) + graphs
 *
 * Activations are those of one pass, since passes run one after the other on the device; what is copied in and out is
 * there once for each slot. The plan takes the tokens that were asked for and halves them until the total fits into
 * what may be reserved; below one text of the model's full length nothing can run. */

enum {
    CUDA_ALIGNMENT = 256,           /* of every buffer, as of device memory itself */
    CUDA_DEFAULT_TOKENS = 16384,    /* in a pass, when nobody says */
    CUDA_DEFAULT_ROWS = 1024,       /* the same in rows */
    CUDA_GRAPHS = 64,               /* kept at most, by one stream */
    CUDA_GRAPH_BYTES = 64 * 1024,   /* device memory that a graph takes: an estimate, part for the graph ... */
    CUDA_GRAPH_LAYER_BYTES = 16384, /* ... and part for the nodes of a layer */
};

/* Where a stream's buffers lie in its one block of device memory. Units: bytes from its start. */
struct cuda_offsets {
    size_t x;      /* [tokens, hidden], the residual stream */
    size_t y;      /* [tokens, hidden], what attention gives */
    size_t wide;   /* [tokens, 3 hidden], then [tokens, intermediate]; or for first tokens only [tokens, 2 hidden]
                    * and behind it [rows, hidden], the queries, then [rows, intermediate] */
    size_t first;  /* [rows, hidden], x of each row's first token; for CLS pooling */
    size_t ragged; /* the batch that is computed now (struct cuda_ragged_layout) */
    size_t slot_ragged[BACKEND_SLOTS_MAX], slot_output[BACKEND_SLOTS_MAX], slot_finite[BACKEND_SLOTS_MAX];
    size_t bytes;
};

struct cuda_plan_request {
    const struct model *model;
    uint32_t element_bytes;            /* of weights and activations */
    unsigned slots;                    /* 1 to BACKEND_SLOTS_MAX */
    uint32_t graphs;                   /* that are kept; 0: none are made */
    uint32_t batch_tokens, batch_rows; /* 0: the defaults above */
    size_t weight_bytes;
    size_t workspace_bytes; /* of the matrix products */
    size_t available_bytes; /* that all of it may take */
};

struct cuda_plan {
    uint32_t tokens; /* of a pass, a bucket; at least the model's longest text */
    uint32_t rows;   /* of a pass; at most tokens */
    uint32_t dim;    /* of a vector */
    struct cuda_offsets offsets;
    size_t ragged_bytes; /* of the largest block of a batch */
    size_t pinned_bytes; /* of host memory, for all slots: a block and the vectors */
    size_t graph_bytes;
    size_t total_bytes; /* of device memory */
    unsigned halvings;  /* how often what was asked for had to be halved */
};

/* The tokens of a pass, were there memory enough. */
uint32_t cuda_plan_tokens(const struct cuda_plan_request *request);

/* Plans for what is available. Errors: STATUS_NO_MEMORY (not even the smallest pass fits; the message has the sums). */
MUST_CHECK enum status cuda_plan_make(const struct cuda_plan_request *request, struct cuda_plan *out, struct err *err);

/* Halves a plan that turned out to be too large after all. Errors: STATUS_NO_MEMORY (it is the smallest already). */
MUST_CHECK enum status cuda_plan_halve(const struct cuda_plan_request *request, struct cuda_plan *plan,
                                       struct err *err);

/* The size that a pass of so many tokens is computed with, so that few sizes occur: a multiple of 8, above 256 one of
 * 16 steps from each power of two to the next, so that less than 1 in 16 is padding. */
uint32_t cuda_bucket_tokens(uint32_t tokens);

/* The same for rows where each costs little: powers of two, at least 8 and at most `most`. */
uint32_t cuda_bucket_rows(uint32_t rows, uint32_t most);

/* --- on the device --- */

enum { CUDA_SLOTS = 3 };

struct cuda_slot {
    const struct pass *pass;
    void *ragged_host, *ragged; /* ragged_host and output_host are pinned memory, the others the device's */
    float *output_host, *output;
    uint32_t *finite;
    cudaEvent_t arrived, computed, delivered;
};

struct cuda_memory {
    const struct cuda_api *api;
    struct cuda_plan plan;
    cudaStream_t in, compute, out;
    char *device, *pinned;
    struct cuda_slot slots[CUDA_SLOTS];
    unsigned first, waiting; /* slots that are delivered and not waited for, oldest first */
};

/* Makes all of it for a plan; while memory does not suffice, for half the plan.
 * Owns: the caller ends it with cuda_memory_close. */
MUST_CHECK enum status cuda_memory_open(const struct cuda_api *api, const struct cuda_plan_request *request,
                                        const struct cuda_plan *plan, struct cuda_memory *out, struct err *err);

/* Waits for what still runs, unless the device is lost. A stream that is all zero may be closed. */
void cuda_memory_close(struct cuda_memory *memory);

/* Waits until nothing is on its way, so that any buffer may be written again. */
MUST_CHECK enum status cuda_memory_drain(struct cuda_memory *memory, struct err *err);

/* The slot of the next pass; there must be a free one. */
struct cuda_slot *cuda_memory_slot(struct cuda_memory *memory);

/* Brings a pass to the device: what is enqueued on `compute` from here on finds it in plan.offsets.ragged. */
MUST_CHECK enum status cuda_memory_copy_in(struct cuda_memory *memory, struct cuda_slot *slot,
                                           const struct cuda_ragged_layout *layout, const struct pass *pass,
                                           struct err *err);

/* Sends a slot's vectors back once `compute` has done what was enqueued so far; the slot now waits. */
MUST_CHECK enum status cuda_memory_copy_out(struct cuda_memory *memory, struct cuda_slot *slot, struct err *err);

/* Waits for the oldest slot and writes its pass's output. The slot is free then, whatever the status. */
MUST_CHECK enum status cuda_memory_wait(struct cuda_memory *memory, struct err *err);

/* Frees that slot without waiting, when the device is lost. */
void cuda_memory_skip(struct cuda_memory *memory);

#endif
