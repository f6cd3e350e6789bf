/* A model's weights as the CPU backend keeps them: packed once, read-only, shared by all workspaces. */
#ifndef ENGINE_CPU_CPU_WEIGHTS_H
#define ENGINE_CPU_CPU_WEIGHTS_H

#include "engine/backend.h"
#include "engine/cpu/gemm.h"

enum { CPU_SHAPES = LINEAR_OUTPUT + 1, CPU_NORMS = NORM_OUTPUT + 1 };

struct cpu_linear {
    enum gemm_kind kind;
    struct gemm_weight weight;
    float *bias;
};

struct cpu_layer {
    struct cpu_linear linear[CPU_SHAPES];      /* by enum linear_site */
    struct norm_weights norm[CPU_NORMS];       /* by enum norm_site */
    struct norm_weights added_norm[CPU_NORMS]; /* of the product before it is added; no gain: none */
    struct norm_weights query_norm, key_norm;  /* no gain: none */
};

struct cpu_weights {
    struct backend backend; /* first: a struct backend of this backend is one of these */
    const struct instruction_set *set;
    enum gemm_kind kind;       /* of the products outside int8 layers */
    bool int8;                 /* the precision is int8 */
    bool qkv_half;             /* queries, keys and values are in bf16: attention is on tiles or in int16 */
    uint32_t first_int8_layer; /* this layer and all later ones are in int8; layer_count: none */
    struct engine_int8 choice; /* in int8; its products belong to the weights */
    enum dtype word_dtype;
    char *word;           /* [vocabulary, hidden], of that type */
    float *position;      /* [model_position_rows, hidden]: position plus token type */
    float *rotary[2];     /* [max_tokens, head_dim] each, of model_read_rotary; NULL: none */
    float *relative_bias; /* [heads, 2 * max_tokens - 1], or NULL: none */
    float word_scale;
    struct norm_weights embedding_norm;
    struct cpu_layer *layers; /* [layer_count] */
    char *packed;             /* the memory that holds the packed weights */
    size_t packed_used;
    size_t bytes;
};

/* The embedding of a token, of word_dtype. */
static inline const char *cpu_weights_word(const struct cpu_weights *weights, uint32_t id)
{
    return weights->word + (size_t)id * weights->backend.model->hidden * dtype_bytes(weights->word_dtype);
}

/* True if the operands of products outside int8 layers are in bf16. */
static inline bool cpu_weights_are_half(const struct cpu_weights *weights)
{
    return weights->kind == GEMM_BF16 || weights->kind == GEMM_BF16_DOT;
}

/* True if a layer is in int8. In an int8 model the other layers, and the attention's output product of every layer, are
 * in bf16 if the processor multiplies it fast, else in int16, or in f32 if there are no products in int16. */
static inline bool cpu_weights_is_int8(const struct cpu_weights *weights, uint32_t layer)
{
    return layer >= weights->first_int8_layer;
}

/* True if int8_layers.h computes a layer: those in int8 and in int16. */
static inline bool cpu_weights_are_integers(const struct cpu_weights *weights, uint32_t layer)
{
    return cpu_weights_is_int8(weights, layer) || weights->kind == GEMM_INT16;
}

#endif
