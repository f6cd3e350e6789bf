/* Matrix products in int8 for the CPU backend, and what stands around them: whole numbers from -127 to 127 times a
 * scale. A weight has one scale for each output; an activation has one for each row, found from that row alone, and may
 * have an offset too, so that its range need not lie even about zero: what GELU gives hardly ever does. An offset adds
 * itself times the sum of an output's weights, which is known when they are packed.
 *
 * Sums are exact in 32 bits, so that every instruction set gives the same, in any order of summation, and a row's
 * numbers cannot depend on the rows beside it. One body (cpu_int8_body.h) is compiled for several instruction sets; all
 * read one packed layout, which is that of the tile registers. oneDNN's int8 products are not used: without VNNI they
 * may saturate on the way, and what has to follow a product can be done here while it is in a register. */
#ifndef ENGINE_CPU_INT8_H
#define ENGINE_CPU_INT8_H

#include "engine/cpu/kernels.h"

enum {
    INT8_PANEL = 32, /* outputs that stand together in a packed weight */
    INT8_STEP = 64,  /* inputs of one step through a panel; a row of an input is whole steps long */
    INT8_BLOCK = 32, /* rows that are computed together at most; so many more are read and written behind the last */
    INT8_LARGEST = 127,
    INT8_RANGE = 253, /* steps between a row's ends: one less than would fit, for where its middle is rounded */
};

/* A weight: what stands behind its last output and input is zero.
 * Layout: [panels][steps][2 halves of a panel][16 fours of inputs][16 outputs][4 inputs]. */
struct int8_weight {
    uint32_t outputs, inputs, panels, steps;
    int8_t *packed;
    float *scale; /* [panels * INT8_PANEL] */
    float *total; /* the same: of an output's weights, as they are when rounded */
};

/* Rows of an input, steps * INT8_STEP apart: value * scale + offset. A row that is not finite has a scale that is not,
 * and any numbers. */
struct int8_rows {
    int8_t *value;
    float *scale;  /* [rows] */
    float *offset; /* [rows], or NULL */
};

/* What follows a product. */
enum int8_end {
    INT8_SUMS,       /* nothing: sums [rows, panels * INT8_PANEL] */
    INT8_SCALED,     /* scales: to.f32 [rows, outputs] */
    INT8_BIAS,       /* scales and bias: to.bf16 */
    INT8_ACTIVATION, /* scales, bias and activation: to.bf16 */
};

struct int8_job {
    uint32_t rows;
    const struct int8_weight *weight;
    uint32_t first_panel, last_panel; /* of the weight: the outputs that are computed */
    struct int8_rows from;            /* has no offsets unless sums are all that is wanted */
    enum int8_end end;
    enum activation activation;
    const float *bias; /* [outputs] */
    int32_t *sums;
    struct activations to;
};

/* x = norm(x + product + bias), where the product is still sums; and x once more in int8. */
struct int8_norm_job {
    uint32_t rows, outputs;
    const float *product;             /* [rows, outputs], or NULL: */
    const struct int8_weight *weight; /* of the product */
    const int32_t *sums;
    const float *from_scale, *from_offset; /* [rows]: of the product's input */
    const float *bias;                     /* [outputs] */
    const struct norm_weights *norm;
    float *x;            /* [rows, outputs], read and written */
    struct int8_rows to; /* written */
};

struct int8_kernels {
    const char *name;
    bool (*runs_here)(void);

    /* The nearest whole numbers (ties to the even one): without offsets of from * 127 / the largest magnitude in the
     * row; with them in steps of 1 / INT8_RANGE of the row's range, to which zero always belongs, about its middle. A
     * row of zeros has scale and offset 0. Shapes: from [rows, width], one of the two; to: rows of `stride`. */
    void (*quantise)(uint32_t rows, uint32_t width, struct activations from, struct int8_rows to, size_t stride);
    void (*product)(const struct int8_job *job);
    void (*add_norm)(const struct int8_norm_job *job);

    /* A product in f32 of INT8_BLOCK rows by a weight as the model has it, for what is needed only once. Shapes: from
     * [inputs, INT8_BLOCK]; weight [outputs, inputs]; to [INT8_BLOCK, outputs], rows `stride` apart, written. */
    void (*plain_product)(uint32_t outputs, uint32_t inputs, const float *from, const float *weight, float *to,
                          size_t stride);
};

extern const struct int8_kernels int8_generic;
extern const struct int8_kernels int8_avx2;
extern const struct int8_kernels int8_vnni;
extern const struct int8_kernels int8_amx;

/* The best first; NULL ends it. Which of them work here, runs_here says. */
extern const struct int8_kernels *const int8_all[];

/* The best for this machine, bounded by what oneDNN may use (DNNL_MAX_CPU_ISA). */
const struct int8_kernels *int8_pick(void);

/* Quantises and packs a weight into `memory` of int8_weight_bytes, aligned to 64 bytes, which must outlive `out`; one
 * that is not finite gives its output a scale that is not. Where inputs are mostly of one sign, they would add the
 * roundings of an output up: with `one_sided`, these cancel. Shapes: weight [outputs, inputs]. */
void int8_weight_pack(uint32_t outputs, uint32_t inputs, const float *weight, bool one_sided, void *memory,
                      struct int8_weight *out);
size_t int8_weight_bytes(uint32_t outputs, uint32_t inputs);

#endif
