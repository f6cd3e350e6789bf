/* How much device memory a stream takes, and how large its passes may be: numbers only, no device.
 *
 *     total = weights + activations(tokens, rows) + workspaces + slots * (ragged(tokens, rows) + output(rows)) + graphs
 *
 * Activations are those of one pass, since passes run one after the other on the device; what is copied in and out is
 * there once for each slot. The plan takes the tokens that were asked for and halves them until the total fits into
 * what may be reserved; below one text of the model's full length nothing can run. */
#ifndef ENGINE_CUDA_PLAN_H
#define ENGINE_CUDA_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/backend.h"
#include "model/model.h"

enum {
    CUDA_ALIGNMENT = 256,           /* of every buffer, as of device memory itself */
    CUDA_DEFAULT_TOKENS = 16384,    /* in a pass, when nobody says */
    CUDA_DEFAULT_ROWS = 1024,       /* the same in rows */
    CUDA_GRAPHS = 64,               /* kept at most, by one stream */
    CUDA_GRAPH_BYTES = 64 * 1024,   /* device memory that a graph takes: an estimate, part for the graph ... */
    CUDA_GRAPH_LAYER_BYTES = 16384, /* ... and part for the nodes of a layer */
};

/* Where a stream's buffers lie in its one block of device memory. Units: bytes from its start. */
struct cuda_places {
    size_t x;      /* [tokens, hidden], the residual stream */
    size_t y;      /* [tokens, hidden], what attention gives */
    size_t wide;   /* [tokens, 3 hidden], then [tokens, intermediate]; or for first tokens only [tokens, 2 hidden]
                    * and behind it [rows, hidden], the queries, then [rows, intermediate] */
    size_t first;  /* [rows, hidden], x of each row's first token; for CLS pooling */
    size_t ragged; /* the batch that is computed now (cuda_ragged.h) */
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
    struct cuda_places places;
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

#endif
