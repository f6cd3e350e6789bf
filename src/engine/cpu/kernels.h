/* The CPU backend's vector code for everything between two matrix products, with one pass over memory each.
 *
 * One body (isa/kernels.inc) is compiled for several instruction sets (the files of isa/), and isa.c chooses at run
 * time. A row's arithmetic never depends on the rows around it, so a text's bits do not depend on the other texts of
 * its batch; they may depend on the machine. */
#ifndef ENGINE_CPU_KERNELS_H
#define ENGINE_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/model.h"

/* Keys in a block, a multiple of every vector's width; DECODER_BLOCK. */
enum { KEY_BLOCK = 16 };

/* The most queries that attend to blocks together. */
enum { ATTEND_QUERIES = 12 };

/* The outputs of a gated product alternate: GATE_WIDTH to be activated, then as many to multiply them by. */
enum { GATE_WIDTH = 16 };

/* The destination of activations: f32, bf16, or both. NULL is not written. */
struct activations {
    float *f32;
    uint16_t *bf16;
};

struct norm_weights {
    float *gain; /* [width] */
    float *bias; /* [width] */
    float eps;
    bool rms; /* as if the mean were 0 */
};

/* One sequence's attention. */
struct attention_job {
    uint32_t length, heads, head_dim;
    uint32_t key_heads;             /* each for heads / key_heads heads of queries */
    uint32_t first_head, last_head; /* the heads to compute */
    float scale;
    const float *qkv;      /* [length, (heads + 2 * key_heads) * head_dim]: queries, keys, values, without their bias */
    const float *bias;     /* [(heads + 2 * key_heads) * head_dim] */
    const uint16_t *qkv16; /* replaces qkv and bias for gemm_bf16.attention and attention16: the same in bf16 with bias;
                              31 more rows are read. attention16 takes only jobs without norms, rotary and windows, and
                              with as many key_heads as heads */
    const struct norm_weights *query_norm, *key_norm; /* RMS norms of each head, without bias; NULL: none. Only with: */
    const float *rotary; /* [length, head_dim] of model_read_rotary, by which queries and keys are turned; NULL: none */
    uint32_t before, behind;    /* tokens before and after it that a token attends to; both at most `length` */
    const float *relative_bias; /* [heads, 2 * bias_reach + 1], added to scaled scores; NULL: none */
    uint32_t bias_reach; /* at least length - 1; the index of the bias of a query's own key, which those of later keys
                            follow */
    struct activations context; /* [length, heads * head_dim]: exactly one of the two is written */
    float *scratch;             /* [attention_scratch(length, head_dim)], 64-byte aligned */
};

/* The queries, keys or values of a token's heads: bias is added, they are normalised, turned and scaled. */
struct head_rows {
    uint32_t heads, head_dim;
    const float *from;               /* [heads, head_dim] */
    const uint16_t *from16;          /* replaces `from` and bias: in bf16 with bias */
    const float *bias;               /* [heads, head_dim] */
    const struct norm_weights *norm; /* NULL: none */
    const float *rotary;             /* [head_dim] of model_read_rotary; NULL: not turned */
    float scale;
    float *to; /* [heads, head_dim] */
};

/* The attention of consecutive tokens of a sequence to keys and values in blocks, by the heads of queries that share a
 * head of keys. In a block of this head there are KEY_BLOCK keys, transposed: [head_dim, KEY_BLOCK], then at `values`
 * as many values: [KEY_BLOCK, head_dim, filled up to a multiple of KEY_BLOCK]. A query's arithmetic depends on its
 * position and its keys and values alone. */
struct block_attention {
    uint32_t tokens, position; /* the position of the first */
    uint32_t window;           /* a token attends to itself and as many before it */
    uint32_t heads, head_dim;
    const float *query; /* [tokens, token_stride], of which heads * head_dim, turned and scaled */
    size_t token_stride;
    const void *pool; /* this head's keys in block 0 */
    bool half;        /* the pool is in bf16, not in f32 */
    size_t stride;    /* numbers from a block to the next */
    size_t values;
    const uint32_t *blocks;
    float *scratch;             /* [attend_scratch(position + tokens, head_dim)] */
    struct activations context; /* as `query`: exactly one of the two is written */
};

/* The length of a row of values in a block. */
static inline uint32_t values_width(uint32_t head_dim)
{
    return (head_dim + KEY_BLOCK - 1) / KEY_BLOCK * KEY_BLOCK;
}

static inline size_t attend_scratch(uint32_t positions, uint32_t head_dim)
{
    return ATTEND_QUERIES * ((size_t)positions + 2 * KEY_BLOCK + head_dim);
}

/* The relative bias of a query and the first key. */
static inline const float *attention_bias(const struct attention_job *job, uint32_t head, uint32_t query)
{
    return job->relative_bias + head * (2 * (size_t)job->bias_reach + 1) + job->bias_reach - query;
}

struct gemm_job;

struct kernels {
    /* Adds two embedding rows and normalises: sum = word * scale + position, x = norm(sum). Shapes: word [width] of
     * that type; position [width]; sum [width], written, may be x.f32; x [width], written. */
    void (*embed)(uint32_t width, const void *word, enum dtype dtype, float scale, const float *position,
                  const struct norm_weights *norm, float *sum, struct activations x);

    /* sum = sum + product + bias, and x = norm(sum). Shapes: product [rows, width]; bias [width]; sum [rows, width],
     * read and written, may be x.f32; x.f32 [rows, width], written; x.bf16 [rows, width] or NULL, written. */
    void (*add_norm)(uint32_t rows, uint32_t width, const float *product, const float *bias,
                     const struct norm_weights *norm, float *sum, struct activations x);

    /* x = norm(x). Shapes: x [rows, width]. */
    void (*norm)(uint32_t rows, uint32_t width, const struct norm_weights *norm, float *x);

    /* to = activation(from + bias), for a block of columns of `to`. Shapes: from [rows, width]; bias [width]; `to` one
     * of the two, its rows `stride` apart. */
    void (*activate)(uint32_t rows, uint32_t width, enum activation activation, const float *from, const float *bias,
                     struct activations to, size_t stride);

    /* to = activation(a + its bias) * (b + its bias), where `from` and `bias` hold them in turn, GATE_WIDTH of each.
     * Shapes: from [rows, 2 * width]; bias [2 * width]; `to` one of the two, its rows `stride` apart. */
    void (*gate)(uint32_t rows, uint32_t width, enum activation activation, const float *from, const float *bias,
                 struct activations to, size_t stride);

    /* context = softmax(queries keys^T * scale [+ relative_bias]) values, per head, in f32. */
    void (*attention)(const struct attention_job *job);

    /* Prepares a token's queries, keys or values; a turned query or key has the bits that `attention` gives it. */
    void (*take_heads)(const struct head_rows *rows);
    void (*attend_blocks)(const struct block_attention *job);

    /* The floats of scratch for a sequence of up to `length` tokens. */
    size_t (*attention_scratch)(uint32_t length, uint32_t head_dim);

    /* Pools `length` rows into one vector. An element that is not finite in a row is not finite in the vector. Shapes:
     * x [length, width]; to [width], written. */
    void (*pool)(enum pooling pooling, uint32_t length, uint32_t width, const float *x, float *to);

    /* Products of GEMM_F32, GEMM_BF16_WIDE and, or NULL, GEMM_BF16_DOT (gemm.h). */
    void (*gemm_f32)(const struct gemm_job *job);
    void (*gemm_bf16_wide)(const struct gemm_job *job);
    void (*gemm_bf16_dot)(const struct gemm_job *job);
};

/* Rounds to the nearest bf16 number, ties to even. */
static inline uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
