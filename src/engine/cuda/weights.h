/* A model's weights in one block of device memory, in the precision's type.
 *
 * Three things are done once here instead of in every pass:
 *   - queries, keys and values are one matrix;
 *   - attention's scale, 1/sqrt(model_score_width), is folded into the query's weights and bias, or its norm's gain;
 *   - the value's bias moves behind attention. Attention weights sum to 1, so it reaches the context unchanged, and the
 *   output product turns it into a constant: bias' = bias + W value_bias. The key's bias is dropped, because it adds
 *   the same number to all scores of a query, which softmax ignores; but not if keys are turned by their positions. A
 *   part that was moved or dropped is 0 in the bias of the one matrix.
 *
 * A layer or norm without a bias has one of zeros here, word embeddings are scaled already, and 1 is added to gains
 * that the files store less 1. In a gated model the up product's rows follow those of the intermediate one.
 *
 * The last layer of a CLS-pooled model computes queries for first tokens only, so its queries are a matrix of their
 * own. */
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
    struct cuda_linear linear[CUDA_LINEARS]; /* LINEAR_QKV of a first-tokens layer: only the queries ... */
    struct cuda_linear keys_values;          /* ... and these a matrix of their own; else the rows after the queries */
    float *query_gain, *key_gain;            /* [head_dim], of norms of each head; or NULL */
    float *added_gain[CUDA_NORMS];           /* [hidden], of norms of the products before they are added; or NULL */
    struct cuda_norm norm[CUDA_NORMS];
};

struct cuda_weights {
    const struct model *model;
    enum kernel_type type;
    void *memory; /* the one block */
    size_t bytes;
    void *word;           /* [vocabulary, hidden] type */
    void *position;       /* [model_position_rows, hidden] type: positions and token type, summed */
    float *relative_bias; /* [heads, 2 * max_tokens - 1], or NULL: none */
    float *rotary[2];     /* [max_tokens, head_dim] each, of model_read_rotary; NULL: none */
    struct cuda_norm embedding_norm;
    struct cuda_layer *layers;
};

/* True if a layer computes only the first token of each row. */
bool cuda_first_tokens_only(const struct model *model, uint32_t layer);

/* Bytes of device memory that the weights need. */
size_t cuda_weights_bytes(const struct model *model, enum kernel_type type);

/* Converts f32 values times `scale` to a type, rounding to nearest, ties to even, as the device does; too large a value
 * becomes infinity. Shapes: values, to [count]. Thread: any. */
void cuda_narrow(enum kernel_type type, const float *values, size_t count, float scale, void *to);

/* Copies a model's weights to the current device through a few MiB of pinned memory; releases the source as it goes if
 * model->read_once. Owns: the caller ends it with cuda_weights_close; `model` outlives it. Errors: STATUS_UNSUPPORTED
 * (sizes that do not fit together), STATUS_NO_MEMORY, STATUS_DEVICE_LOST. */
MUST_CHECK enum status cuda_weights_open(const struct cuda_api *api, const struct model *model, enum kernel_type type,
                                         struct cuda_weights *out, struct err *err);

/* Frees the device memory and zeroes the struct. */
void cuda_weights_close(const struct cuda_api *api, struct cuda_weights *weights);

#endif
