/* A model's weights as the CPU backend keeps them: packed once, read-only, shared by all workspaces. */
#ifndef ENGINE_CPU_CPU_WEIGHTS_H
#define ENGINE_CPU_CPU_WEIGHTS_H

#include "engine/backend.h"
#include "engine/cpu/gemm.h"

enum { CPU_NORMS = NORM_OUTPUT + 1 };

struct cpu_linear {
    enum gemm_kind kind;
    struct gemm_weight weight;
    float *bias; /* with that of queries and keys is that of values */
};

struct cpu_layer {
    struct cpu_linear linear[ENGINE_PRODUCTS]; /* except in int8 queries, keys and values are one product, the first,
                                                  and that of values has no outputs */
    struct norm_weights norm[CPU_NORMS];       /* by enum norm_site */
    struct norm_weights added_norm[CPU_NORMS]; /* of the product before it is added; no gain: none */
    struct norm_weights query_norm, key_norm;  /* no gain: none */
};

struct cpu_weights {
    struct backend backend; /* first: a struct backend of this backend is one of these */
    const struct instruction_set *set;
    enum gemm_kind kind; /* of the products that are not in int8: bf16 if the processor multiplies it fast; in an
                            int8 model else int16, or f32 if there are no products in int16 */
    bool qkv_half;       /* queries, keys and values are in bf16: attention is on tiles or in int16 */
    enum dtype word_dtype;
    char *word;           /* [vocabulary, hidden], of that type */
    float *position;      /* [model_position_rows, hidden]: position plus token type */
    float *rotary[2];     /* [max_tokens, head_dim] each, of model_read_rotary; NULL: none */
    float *relative_bias; /* [heads, 2 * max_tokens - 1], or NULL: none */
    float word_scale;
    struct norm_weights embedding_norm;
    struct cpu_layer *layers;  /* [layer_count] */
    struct cpu_linear lm_head; /* of a model that generates; no outputs: none */
    /* In a trial of int8 each product of a layer in `kind` and in int8, of which one is in linear[]; else NULL. */
    struct gemm_weight (*both)[ENGINE_PRODUCTS][2];
    struct gemm_weight both_lm_head[2]; /* the same */
    char *packed;                       /* the memory that holds the packed weights */
    size_t packed_used;
    size_t bytes;
};

/* The embedding of a token, of word_dtype. */
static inline const char *cpu_weights_word(const struct cpu_weights *weights, uint32_t id)
{
    return weights->word + (size_t)id * weights->backend.model->hidden * dtype_bytes(weights->word_dtype);
}

/* The kind of lm_head without int8: its outputs need not be whole tiles, so on a processor with tiles it is computed by
 * pairs instead. */
static inline enum gemm_kind cpu_weights_head_kind(const struct cpu_weights *weights)
{
    return weights->kind == GEMM_BF16 ? GEMM_BF16_DOT : weights->kind;
}

/* True if the operands of products of weights->kind are in bf16. */
static inline bool cpu_weights_are_half(const struct cpu_weights *weights)
{
    return weights->kind == GEMM_BF16 || weights->kind == GEMM_BF16_DOT;
}

/* True if the activated intermediate product is in bf16; then products in int16 read it, too. */
static inline bool cpu_weights_inner_is_half(const struct cpu_weights *weights)
{
    return cpu_weights_are_half(weights) || weights->kind == GEMM_INT16;
}

#endif
