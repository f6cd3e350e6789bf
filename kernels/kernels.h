/* Everything between the matrix products of a forward pass on a CUDA device: the header through which C code sees the
 * kernels. Each .cu file holds kernels with their launchers below.
 *
 * A launcher checks sizes, chooses grid and block for the given *bound*, and enqueues one kernel through the queue's
 * `launch` (attention, where there may be spans, two); it neither waits nor allocates. The data that varies between
 * batches is in device memory (struct kernel_ragged), and kernels exit early beyond its counts, so a launch captured in
 * a graph for a bound serves every smaller batch.
 *
 * Activations have the precision's type; sums, statistics and exponentials are always f32. Pointers to matrices are
 * aligned to 16 bytes and widths are multiples of 8 elements; launchers refuse others.
 *
 * Errors, of every launcher: cudaErrorInvalidValue (an unsupported size; nothing was enqueued), else the result of the
 * queue's `launch`. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "src/model/pooling.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cudaLaunchKernel's signature. */
typedef cudaError_t kernel_launch_fn(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                     cudaStream_t cuda_stream);

/* The queue of a launcher. */
struct kernel_queue {
    kernel_launch_fn *launch;
    cudaStream_t cuda_stream;
    uint32_t multiprocessors; /* of the device; size persistent grids */
    uint32_t capability;      /* 10 * major + minor, e.g. 90 */
};

/* The type of matrix elements. */
enum kernel_type { KERNEL_F32, KERNEL_F16, KERNEL_BF16 };

static inline size_t kernel_type_bytes(enum kernel_type type)
{
    return type == KERNEL_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Indices into kernel_ragged.counts. */
enum kernel_count {
    KERNEL_COUNT_ROWS,
    KERNEL_COUNT_TOKENS, /* from the first row's start to the last row's end, gaps included */
    KERNEL_COUNT_TILES,
    KERNEL_COUNT_SPANS, /* of these, the first ones, which are spans */
    KERNEL_COUNTS,
};

/* Attention's work. A strip is the unit of one warp: up to KERNEL_STRIP_QUERIES queries of one row, with everything
 * that the warp must know about it. A tile is the unit of a block of four warps. A row above KERNEL_SHORT_ROW tokens
 * gets tiles of its own, whose warps share its keys and values; strips of shorter rows share tiles with other rows, so
 * that they fill blocks too. */
enum { KERNEL_STRIP_QUERIES = 16, KERNEL_TILE_STRIPS = 4, KERNEL_SHORT_ROW = 32 };
struct kernel_strip {
    uint32_t row;
    uint32_t first;  /* first query, within the row; at or beyond length: no work */
    uint32_t start;  /* the row's first token */
    uint32_t length; /* of the row; 0: no strip */
};
struct kernel_tile {
    struct kernel_strip strips[KERNEL_TILE_STRIPS];
};

/* Rows above `above` tokens are cut into spans instead, for Hopper's kernel: a span is the work of a block of several
 * warpgroups, up to `queries` queries of one row, the first of which its first strip names. */
struct kernel_span {
    uint32_t queries, above; /* queries: 0 for no spans */
};

/* The spans that kernel_attention wants; none with one query for each row. biased: with a bias. */
struct kernel_span kernel_attention_span(uint32_t capability, enum kernel_type type, uint32_t head_dim,
                                         uint32_t biased);

/* The largest number of tiles that `rows` rows with `tokens` tokens in all, without gaps, can need. */
uint32_t kernel_tiles_bound(uint32_t tokens, uint32_t rows);

/* Cuts rows into spans and tiles, spans first, each longest rows first, in time proportional to rows + tiles; returns
 * the number of both together, and writes that of spans to `spans`. Shapes: start, length [rows], read, in any order;
 * tiles [kernel_tiles_bound], of which at most the returned number are written. */
uint32_t kernel_spans_fill(const uint32_t *start, const uint32_t *length, uint32_t rows, struct kernel_span span,
                           struct kernel_tile *tiles, uint32_t *spans);

/* A batch of rows of tokens in device memory. No row reads gaps between rows; ids in gaps may be anything. */
struct kernel_ragged {
    const uint32_t *counts;          /* [KERNEL_COUNTS] */
    const int32_t *ids;              /* [tokens] */
    const uint32_t *position;        /* [tokens], the row of a token's position; 0 in gaps */
    const uint32_t *start;           /* [rows], a row's first token */
    const uint32_t *length;          /* [rows], at least 1 */
    const struct kernel_tile *tiles; /* [tiles], aligned to 16 bytes, as kernel_spans_fill makes them */
};

/* The widest row that the kernels normalise, and the widest head that they attend to; launchers refuse wider ones. */
enum { KERNEL_HIDDEN_MAX = 4096, KERNEL_HEAD_DIM_MAX = 256 };

/* sum = word[id] + position[index], to = LN(sum), of every token. An id or position out of range counts as 0, so a
 * model with rotary positions, which adds the same to all tokens, needs only one row of positions. */
struct kernel_embed_norm_args {
    enum kernel_type type;
    uint32_t bound; /* tokens that the launch is for */
    uint32_t hidden;
    uint32_t vocabulary;
    uint32_t positions;
    float epsilon;
    uint32_t rms; /* 0 or 1: the norm treats the mean as 0 */
    struct kernel_ragged ragged;
    const void *word;     /* [vocabulary, hidden] type */
    const void *position; /* [positions, hidden] type: position and token type 0, summed */
    const float *gain;    /* [hidden] */
    const float *shift;   /* [hidden] */
    void *sum;            /* [bound, hidden] type, written; or NULL */
    void *to;             /* [bound, hidden] type, written */
};
cudaError_t kernel_embed_norm(const struct kernel_queue *queue, const struct kernel_embed_norm_args *args);

/* to = LN(x [+ residual]) with x = from [+ bias], of the first *count rows; with added_gain, x is normalised first by
 * an LN of its own, which has that gain and no shift. `to` may be `from` or `residual`, `sum` may be `residual`. */
struct kernel_norm_args {
    enum kernel_type type;
    uint32_t bound; /* rows that the launch is for */
    uint32_t hidden;
    float epsilon;
    uint32_t rms;            /* as above */
    const uint32_t *count;   /* one of kernel_ragged.counts */
    const void *from;        /* [bound, hidden] type */
    const void *bias;        /* [hidden] type, or NULL */
    const void *residual;    /* [bound, hidden] type, or NULL */
    const float *added_gain; /* [hidden], or NULL */
    const float *gain;       /* [hidden] */
    const float *shift;      /* [hidden] */
    void *sum;               /* [bound, hidden] type, written: the input of the LN; or NULL */
    void *to;                /* [bound, hidden] type, written */
};
cudaError_t kernel_norm(const struct kernel_queue *queue, const struct kernel_norm_args *args);

enum kernel_activation { KERNEL_GELU_ERF, KERNEL_GELU_TANH, KERNEL_RELU, KERNEL_SILU, KERNEL_IDENTITY };

/* x = activation(x [+ bias]) in place, of the first *count rows. */
struct kernel_activate_args {
    enum kernel_type type;
    enum kernel_activation activation;
    uint32_t bound; /* rows that the launch is for */
    uint32_t width;
    const uint32_t *count; /* in device memory */
    const void *bias;      /* [width] type, or NULL */
    void *x;               /* [bound, width] type, read and written */
};
cudaError_t kernel_activate(const struct kernel_queue *queue, const struct kernel_activate_args *args);

/* to = activation(a + its bias) * (b + its bias), of the first *count rows; a and b are the halves of a row of `from`.
 */
struct kernel_gate_args {
    enum kernel_type type;
    enum kernel_activation activation;
    uint32_t bound; /* rows that the launch is for */
    uint32_t width; /* of a half */
    const uint32_t *count;
    const void *from; /* [bound, 2 * width] type */
    const void *bias; /* [2 * width] type */
    void *to;         /* [bound, width] type, written; not `from` */
};
cudaError_t kernel_gate(const struct kernel_queue *queue, const struct kernel_gate_args *args);

/* Turns heads in place by the positions of their tokens: in each head the numbers i and i + head_dim / 2 are turned as
 * a complex number. A position out of range counts as 0. With gains, each head x becomes gain * x / sqrt(mean of x^2 +
 * epsilon) before it is turned; head_dim must then be a power of 2. */
struct kernel_rotate_args {
    enum kernel_type type;
    uint32_t bound;    /* tokens that the launch is for */
    uint32_t heads;    /* side by side from x on */
    uint32_t queries;  /* the first `queries` heads have query_gain, the others key_gain */
    uint32_t head_dim; /* a multiple of 16 */
    uint32_t stride;   /* columns from a token to the next; a multiple of 8 */
    uint32_t positions;
    struct kernel_ragged ragged;
    const float *table;                 /* [positions, head_dim]: head_dim / 2 cosines, then as many sines */
    const float *query_gain, *key_gain; /* [head_dim], or both NULL */
    float epsilon;
    void *x; /* [bound, stride] type, read and written */
};
cudaError_t kernel_rotate(const struct kernel_queue *queue, const struct kernel_rotate_args *args);

/* Softmax(scale * (Q K^T [+ bias])) V within each row and head. Q, K and V are stored side by side; head h starts at
 * column h * head_dim of Q. K and V have key_heads heads, each for heads / key_heads of Q's. With `queries` each row
 * has a single query, its row of that matrix, and `qkv` holds only K and V. A query sees the keys of `before` tokens
 * before its own and of `behind` tokens after it; the work on it grows with these, not with its row. The bias depends
 * on the head and on the key's position less the query's, from -reach to reach; it is allowed only if queries see all
 * keys. */
struct kernel_attention_args {
    enum kernel_type type;
    uint32_t bound;            /* tiles that the launch is for; with queries: rows */
    uint32_t heads, key_heads; /* heads: a multiple of key_heads */
    uint32_t head_dim;         /* hidden = heads * head_dim */
    float scale;               /* 1 if folded into the query weights */
    uint32_t reach;            /* of the bias: rows have at most reach + 1 tokens */
    const float *bias;         /* [heads, 2 * reach + 1], or NULL */
    uint32_t before, behind;   /* UINT32_MAX: all */
    uint32_t longest;          /* no row has more tokens; 0: not known */
    struct kernel_ragged ragged;
    const void *queries; /* [rows, hidden] type, or NULL */
    const void *qkv;     /* [tokens, (heads + 2 * key_heads) * head_dim] type; with queries: without Q */
    void *context;       /* [tokens, hidden] type; with queries: [rows, hidden]; written; gaps are not written */
};
cudaError_t kernel_attention(const struct kernel_queue *queue, const struct kernel_attention_args *args);

/* to[r] = from[start[r]], of every row: the first token of each. */
struct kernel_gather_args {
    enum kernel_type type;
    uint32_t bound; /* rows that the launch is for */
    uint32_t hidden;
    struct kernel_ragged ragged;
    const void *from; /* [tokens, hidden] type */
    void *to;         /* [bound, hidden] type, written */
};
cudaError_t kernel_gather(const struct kernel_queue *queue, const struct kernel_gather_args *args);

/* The row's vector: pooled, then scaled to length 1 if `normalize` (a zero vector stays zero). finite[r] is 1 if all
 * numbers written for row r are finite, else 0. */
struct kernel_pool_args {
    enum kernel_type type;
    enum pooling pooling; /* set */
    uint32_t gathered;    /* 1: x has one token per row, which is the vector (kernel_gather, attention with queries) */
    uint32_t normalize;   /* 0 or 1 */
    uint32_t bound;       /* rows that the launch is for */
    uint32_t hidden;
    struct kernel_ragged ragged;
    const void *x;    /* [tokens, hidden] type, or [rows, hidden] */
    float *output;    /* [bound, hidden], written */
    uint32_t *finite; /* [bound], written */
};
cudaError_t kernel_pool(const struct kernel_queue *queue, const struct kernel_pool_args *args);

#ifdef __cplusplus
}
#endif

#endif
