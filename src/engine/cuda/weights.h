/* A model's weights in device memory, in one block and in the type that a precision computes with.
 *
 * Three things are done once here instead of in every pass:
 *   - queries, keys and values are one matrix;
 *   - attention's scale 1/sqrt(head_dim) is multiplied into the query's weights and bias;
 *   - the value's bias moves behind attention: its weights sum up to 1, so that context = ... + value bias, which the
 *     next product turns into a constant: bias' = bias + W value_bias. The key's bias is dropped: it adds the same
 *     number to all scores of a query, which a softmax does not see. Both are 0 in the bias of the one matrix.
 *
 * The last layer of a CLS-pooled model gives first tokens alone, and needs no other queries: there the one matrix is
 * two. */
#ifndef ENGINE_CUDA_WEIGHTS_H
#define ENGINE_CUDA_WEIGHTS_H

#include "engine/backend.h"
#include "engine/cuda/api.h"
#include "kernels/kernels.h"

enum { CUDA_LINEARS = 4, CUDA_NORMS = 2 }; /* enum linear_site, enum norm_site */

/* All in device memory. */
struct cuda_linear {
    void *weight; /* [outputs, inputs] type */
    void *bias;   /* [outputs] type */
};

struct cuda_norm {
    float *gain, *shift; /* [hidden] */
};

struct cuda_layer {
    struct cuda_linear linear[CUDA_LINEARS]; /* LINEAR_QKV: of a layer for first tokens only, the queries alone ... */
    struct cuda_linear keys_values;          /* ... and this a matrix of its own; else the part of it behind them */
    struct cuda_norm norm[CUDA_NORMS];
};

struct cuda_weights {
    const struct model *model;
    enum kernel_type type;
    void *memory; /* behind all that follows */
    size_t bytes;
    void *word;     /* [vocabulary, hidden] type */
    void *position; /* [max_tokens, hidden] type: positions and token type 0, summed */
    struct cuda_norm embedding_norm;
    struct cuda_layer *layers;
};

/* Whether a layer gives nothing but the first token of each row. */
bool cuda_first_tokens_only(const struct model *model, uint32_t layer);

/* What they will take in device memory. */
size_t cuda_weights_bytes(const struct model *model, enum kernel_type type);

/* Rounds f32 values times `scale` to a type, to nearest, ties to even, as the device does; what is too large is
 * infinity. Shapes: values, to [count]. Thread: any. */
void cuda_narrow(enum kernel_type type, const float *values, size_t count, float scale, void *to);

/* Copies a model's weights to the device that is current, through a few MiB of pinned memory; gives them back as it
 * goes if model->read_once.
 * Owns: the caller ends it with cuda_weights_close; `model` outlives it. Errors: STATUS_UNSUPPORTED (sizes that do not
 * belong together), STATUS_NO_MEMORY, STATUS_DEVICE_LOST. */
MUST_CHECK enum status cuda_weights_open(const struct cuda_api *api, const struct model *model, enum kernel_type type,
                                         struct cuda_weights *out, struct err *err);

/* Frees the device's memory and leaves no weights. */
void cuda_weights_close(const struct cuda_api *api, struct cuda_weights *weights);

#endif
