/* The CPU backend's own vector code: all that happens between two matrix products, one pass over memory each.
 *
 * One body (cpu_kernels_body.h) is compiled several times for different instruction sets; kernels_pick chooses at run
 * time. No function's arithmetic for a row depends on the rows around it, so that a text's bits never depend on its
 * batch mates; they may depend on the machine. */
#ifndef ENGINE_CPU_KERNELS_H
#define ENGINE_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

struct digits_kernels; /* engine/cpu_digits.h */

/* Where activations go: as f32, as bf16, or both; what is NULL is not written. */
struct activations {
    float *f32;
    uint16_t *bf16;
};

struct norm_weights {
    float *gain; /* [width] */
    float *bias; /* [width] */
    float eps;
};

/* One sequence's attention. */
struct attention_job {
    uint32_t length, heads, head_dim;
    uint32_t first_head, last_head; /* those computed */
    float scale;
    const float *qkv;      /* [length, 3 * heads * head_dim]: queries, keys, values, without their bias */
    const float *bias;     /* [3 * heads * head_dim] */
    const uint16_t *qkv16; /* instead of both, for attention16: the same in bf16, with bias; 31 more rows are read */
    struct activations context; /* [length, heads * head_dim]: exactly one of the two is written */
    float *scratch;             /* [attention_scratch(length, head_dim)], 64-byte aligned */
};

/* What follows a product on tiles. */
enum product_end { END_NOTHING, END_BIAS, END_BIAS_ACTIVATION };

/* A product with what follows it: to [rows, outputs] = end(from [rows, inputs] x weight^T). Outputs and inputs are
 * multiples of TILES_MULTIPLE. Up to 31 rows behind the last are read, and written in `to`.
 * What is tiled stands in the order of the tiles, not row by row: strips of 32 rows, in a strip blocks of 32 columns.
 */
struct product_job {
    uint32_t rows, outputs, inputs;
    uint32_t first_output, last_output; /* those computed */
    const uint16_t *from;
    bool from_tiled, to_tiled;
    const uint16_t *packed; /* by pack */
    enum product_end end;
    enum activation activation;
    const float *bias;
    struct activations to; /* f32 for END_NOTHING, else bf16 */
};

enum { TILES_MULTIPLE = 32 };

/* Matrix products of bf16 numbers with f32 sums on the processor's tile registers, where it has them: what follows a
 * product runs in their shadow, and a row's sums never depend on the rows beside it. */
struct cpu_tiles {
    /* Shapes: weight [outputs, inputs] f32; packed [outputs * inputs] bf16, written. */
    void (*pack)(uint32_t outputs, uint32_t inputs, const float *weight, uint16_t *packed);
    void (*product)(const struct product_job *job);
    /* As cpu_kernels.attention, on qkv16; the head dimension is a multiple of TILES_MULTIPLE. */
    void (*attention)(const struct attention_job *job);
};

/* Outputs that few_rows computes at once. */
enum { FEW_STRIP = 64 };

/* FEW_STRIP outputs of an f32 product: to = from x strip, or to + that. */
struct few_job {
    uint32_t rows, inputs;
    const float *from; /* [rows, inputs], rows from_stride apart */
    size_t from_stride;
    const float *strip; /* [inputs, FEW_STRIP], inputs strip_stride apart */
    size_t strip_stride;
    const float *ahead; /* the strip that will be needed next, inputs ahead_stride apart; NULL: not known */
    size_t ahead_stride;
    float *to; /* [rows, FEW_STRIP], rows to_stride apart */
    size_t to_stride;
    bool adds;
};

struct cpu_kernels {
    const char *name;
    const struct cpu_tiles *tiles;       /* NULL where the processor has none, */
    const struct digits_kernels *digits; /* likewise: products in f32 */

    /* The product, fast where it is for few rows; NULL where there is none. */
    void (*few_rows)(const struct few_job *job);

    /* Adds two embedding rows and normalises: x = norm(word + place). Shapes: word [width] f32, or bf16 when `word16`
     * is given instead; place [width]; x [width], written. */
    void (*embed)(uint32_t width, const float *word, const uint16_t *word16, const float *place,
                  const struct norm_weights *norm, struct activations x);

    /* x = norm(x + product + bias). Shapes: product [rows, width]; bias [width]; x.f32 [rows, width], read and written;
     * x.bf16 [rows, width] or NULL, written. */
    void (*add_norm)(uint32_t rows, uint32_t width, const float *product, const float *bias,
                     const struct norm_weights *norm, struct activations x);

    /* to = activation(from + bias), for a block of columns of `to`. Shapes: from [rows, width]; bias [width]; `to` one
     * of the two, its rows `stride` apart. */
    void (*activate)(uint32_t rows, uint32_t width, enum activation activation, const float *from, const float *bias,
                     struct activations to, size_t stride);

    /* context = softmax(queries keys^T * scale) values, per head, in f32. */
    void (*attention)(const struct attention_job *job);

    /* The floats of scratch for a sequence of up to `length` tokens. */
    size_t (*attention_scratch)(uint32_t length, uint32_t head_dim);

    /* The mean of `length` rows. Shapes: x [length, width]; to [dim], dim <= width, written. */
    void (*mean)(uint32_t length, uint32_t width, uint32_t dim, const float *x, float *to);
};

extern const struct cpu_kernels kernels_generic;
extern const struct cpu_kernels kernels_avx2;
extern const struct cpu_kernels kernels_avx512;
extern const struct cpu_kernels kernels_amx; /* AVX-512 with bf16 and AMX tiles */

/* The best kernels for this machine, bounded by what oneDNN may use (so DNNL_MAX_CPU_ISA bounds both). */
const struct cpu_kernels *kernels_pick(void);

#endif
