/* Matrix products of the CPU backend, each with the step that follows it: to = end(from [rows, inputs] x weight
 * [outputs, inputs]^T).
 *
 * isa.c holds the one table: a row for each instruction set, a column for each kind of product. The code of a row is
 * compiled in isa/ and chosen at run time. A row's arithmetic never depends on the rows beside it, so a text's bits
 * do not depend on the other texts of its batch; they may depend on the machine.
 *
 * f32: on any machine; on one with tiles, where split_f32 does not fit.
 *
 * bf16: operands are rounded to bf16 and summed in f32, on tile registers (AMX) or by AVX-512's products of pairs. If
 * the processor has neither, or is slower with pairs, only the weights are rounded: they take half the memory of f32
 * and are widened on the way into f32 products.
 *
 * split_f32: f32 products computed with integers, also on tile registers, which multiply 8-bit integers. It is a
 * splitting in the manner of Ozaki, Ogita, Oishi and Rump, "Error-free transformations of matrix multiplication by
 * using fast routines of matrix multiplication and its applications", Numerical Algorithms 59 (2012). A row of an
 * operand is 32-bit integers times a power of two of its own; each integer is split into four digits in base 256. A
 * float has 24 significant bits, so it is exact unless it is smaller than 2^-7 of the largest in its row, and then its
 * error is at most 2^-31 of that one. Digits are multiplied and summed exactly in 32 bits: products with the same place
 * value in one sum, for the four highest of the seven place values; the error from the other three is below 2^-30 of
 * the largest product. Only the total of the four sums is rounded to f32, whereas an f32 product rounds after each
 * addition. So results are nearer to the true ones than those of f32 products, and their bits do not depend on the
 * order of summation. The ten products of 8-bit numbers take the tiles no longer than half of an f32 product takes the
 * vector units, and a split weight takes the same four bytes.
 *
 * int8: integers from -127 to 127 times a scale. A weight has one scale for each output; an activation has one for each
 * row, found from that row alone, and an offset, because its range is hardly ever symmetric after GELU. An offset adds
 * itself times the sum of an output's weights, which is computed when they are packed. The few numbers of a row that
 * are largest by far would set its scale and leave few steps to all others, and make most of the error of real models.
 * So the scale is that of the rest, and the largest ones have a second byte, the multiples of INT8_HIGH, which is
 * multiplied apart. Sums are exact in 32 bits, so every instruction set gives the same result. All read one packed
 * layout, that of the tile registers.
 *
 * int16: the same with integers of 16 bits, without offsets. A row, or an output's weights, are scaled so that their
 * norm is below 2^15.5: then no sum of products overflows 32 bits, by the Cauchy-Schwarz inequality. A number's
 * rounding error is 6e-6 sqrt(inputs) of the root mean square of its row, whatever outliers it has: with 1,536 inputs a
 * sixth of bf16's. Each instruction set sums a norm in an order of its own, so a row's scale, and with it its last
 * bits, may differ between them. It takes half the time of f32 where there is no fast bf16, without VNNI two thirds. */
#ifndef ENGINE_CPU_GEMM_H
#define ENGINE_CPU_GEMM_H

#include <math.h>

#include "engine/cpu/kernels.h"

enum gemm_kind {
    GEMM_F32,
    GEMM_SPLIT_F32,
    GEMM_BF16,      /* on tile registers */
    GEMM_BF16_DOT,  /* by products of pairs */
    GEMM_BF16_WIDE, /* operands are f32, weights bf16 */
    GEMM_INT8,
    GEMM_INT16, /* not on tiles */
};

enum {
    GEMM_MULTIPLE = 32,    /* tiles need outputs and inputs in multiples of it; outputs of a panel of f32 and bf16 */
    GEMM_ROWS_BEHIND = 31, /* rows past the last that a product may read, and write in `to` */
    GEMM_AHEAD = 16384,    /* bytes of a weight that a product of few rows consumes in one memory latency */

    SPLIT_DIGITS = 4,
    SPLIT_ROWS = 16,            /* of a strip, and outputs of a panel */
    SPLIT_STEP = 64,            /* inputs of one step; the last one is filled with zeros */
    SPLIT_INPUTS_MAX = 1 << 15, /* sums of more could overflow 32 bits */

    INT8_PANEL = 32,       /* outputs that are stored together in a packed weight */
    INT8_STEP = 64,        /* inputs of one step through a panel; a row of an input is whole steps long */
    INT8_BLOCK = 32,       /* the most rows that are computed together; as many are read and written past the last */
    ATTENTION16_ROWS = 12, /* the most queries that are computed together */
    INT8_LARGEST = 127,
    INT8_RANGE = 253,      /* steps between a row's ends: one less than would fit, because its middle is rounded */
    INT8_FAR = 4,          /* numbers of a row with a second byte */
    INT8_HIGH = 128,       /* the worth of its steps, */
    INT8_FAR_MOST = 16000, /* so that a number may be this many steps from zero */
};

/* The second byte of one of a row's largest numbers: INT8_HIGH * high is added to its value. */
struct int8_far {
    uint16_t input;
    int16_t high; /* 0: none */
};

/* Rows as integers: value * scale + offset. A non-finite row gets a NaN scale; its values are unspecified.
 * int8: rows are whole steps long. split_f32: `value` holds digits, the highest first, `scale` is that of the highest
 * one, and there are no offsets; the inputs of a step are stored in fours: 0, 16, 32, 48, then 1, 17, 33, 49 and so on.
 * Layout: [strips][steps][SPLIT_DIGITS][16 rows][16 fours][4]; a weight: [panels][steps][SPLIT_DIGITS][16 fours][16
 * outputs][4]. */
struct scaled_rows {
    int8_t *value;        /* aligned to 64 bytes */
    float *scale;         /* [rows] */
    float *offset;        /* int8: [rows] */
    struct int8_far *far; /* int8: [rows, INT8_FAR] */
};

/* A packed weight.
 * int8 and int16: zeros follow the last output and input; an input of int16 takes the place of two of int8. Layout:
 * [panels][steps][2 halves of a panel][16 fours of inputs][16 outputs][4 inputs]. */
struct gemm_weight {
    uint32_t outputs, inputs;
    uint32_t panels, steps;    /* int8 */
    uint16_t *bf16;            /* bf16 on tiles: in their order */
    void *plain;               /* other bf16 and f32, zeros after the last output and input:
                                * [panels of GEMM_MULTIPLE outputs][inputs or pairs][GEMM_MULTIPLE][1 or 2] */
    struct scaled_rows scaled; /* int8, int16, split_f32: a row is an output, of value and scale alone */
    float *total;              /* int8: [panels * INT8_PANEL], the sum of an output's rounded weights */
};

/* The step that follows a product. */
enum gemm_end {
    GEMM_PLAIN,      /* nothing: to.f32 */
    GEMM_BIAS,       /* bias: to.bf16 */
    GEMM_ACTIVATION, /* bias and activation: to.bf16 or to.f32 */
    GEMM_GATE,       /* the same as kernels.gate, not in split_f32: to [rows, outputs / 2] */
};

/* A product. All but split_f32 read up to GEMM_ROWS_BEHIND rows past the last, and write them in `to`.
 * bf16 on tiles: a tiled matrix is stored in the order of the tiles, not row by row: strips of 32 rows, in a strip
 * blocks of 32 columns, all of them whole. */
struct gemm_job {
    uint32_t rows;
    const struct gemm_weight *weight;
    uint32_t first_output, last_output; /* the outputs to compute: multiples of GEMM_MULTIPLE (split_f32: of SPLIT_ROWS)
                                           or, at the end, all of the weight's */
    const float *from_f32;              /* f32, bf16 widened: [rows, inputs] */
    const uint16_t *from_bf16;          /* other bf16: the same */
    struct scaled_rows from;            /* int8, int16, split_f32 */
    bool from_tiled, to_tiled;          /* bf16 on tiles */
    enum gemm_end end;
    enum activation activation;
    const float *bias;     /* [outputs] */
    struct activations to; /* [rows, outputs + beside] */
    uint32_t beside;       /* outputs of other products in a row of `to`; not in split_f32 */
};

struct gemm_split_f32 {
    /* Splits the rows from first_row to before last_row. Shapes: from [rows, inputs]; to the same. */
    void (*split)(uint32_t first_row, uint32_t last_row, uint32_t inputs, const float *from, struct scaled_rows to);
    /* Shapes: weight [outputs, inputs]; to the same, written. */
    void (*pack)(uint32_t outputs, uint32_t inputs, const float *weight, struct scaled_rows to);
    void (*run)(const struct gemm_job *job);
};

struct gemm_bf16 {
    /* Shapes: weight [outputs, inputs] f32; packed [outputs * inputs] bf16, written. */
    void (*pack)(uint32_t outputs, uint32_t inputs, const float *weight, uint16_t *packed);
    void (*run)(const struct gemm_job *job);
    /* As kernels.attention, on qkv16; the head dimension is a multiple of GEMM_MULTIPLE. */
    void (*attention)(const struct attention_job *job);
};

struct gemm_int8 {
    /* Quantises rows: the nearest integers (ties to the even one) in steps of 1 / INT8_RANGE of the row's range, with
     * zero and without its INT8_FAR largest numbers, about its middle. A row of zeros has scale and offset 0. Shapes:
     * from [rows, width], one of f32 and bf16; to: rows of whole steps. */
    void (*quantise)(uint32_t rows, uint32_t width, struct activations from, struct scaled_rows to);
    void (*run)(const struct gemm_job *job);
    uint8_t flip; /* the bytes of a packed weight are xored with it */

    /* For GEMM_INT16, or NULL: the nearest integers to from * int16_most / the largest magnitude in the row. Shapes:
     * from [rows, width], one of f32 and bf16; to: rows of whole steps of 16-bit integers, value and scale alone. */
    void (*quantise16)(uint32_t rows, uint32_t width, struct activations from, struct scaled_rows to);
    void (*run16)(const struct gemm_job *job);
    /* As kernels.attention on qkv16, in 16-bit integers, or NULL. The head dimension is even; `scratch`:
     * attention16_scratch(length, head_dim) floats. */
    void (*attention16)(const struct attention_job *job);
};

/* A row of the table. */
struct instruction_set {
    const char *name;
    bool (*runs_here)(void);
    const struct kernels *kernels;
    /* Products other than those in f32 and bf16 that `kernels` has; NULL: none. */
    const struct gemm_split_f32 *split_f32;
    const struct gemm_bf16 *bf16; /* on tiles */
    const struct gemm_int8 *int8; /* never NULL */
};

/* Computes a product whose weight was packed for that kind. */
void gemm_run(const struct instruction_set *set, enum gemm_kind kind, const struct gemm_job *job);

/* The memory that the packed weight takes. */
size_t gemm_weight_bytes(enum gemm_kind kind, uint32_t outputs, uint32_t inputs);

/* The packed weight that is in `memory`. */
struct gemm_weight gemm_place(enum gemm_kind kind, uint32_t outputs, uint32_t inputs, void *memory);

/* Packs a weight into `memory` of gemm_weight_bytes, aligned to 64 bytes, which must outlive `out`. In int8 an output
 * with a non-finite weight gets a NaN scale. If inputs are mostly of one sign, the rounding errors of an output would
 * add up: `one_sided` makes them cancel. Shapes: weight [outputs, inputs]. */
void gemm_pack(const struct instruction_set *set, enum gemm_kind kind, uint32_t outputs, uint32_t inputs,
               const float *weight, bool one_sided, void *memory, struct gemm_weight *out);

/* Packs `count` outputs from `first` on, a multiple of GEMM_MULTIPLE, of a weight that gemm_place has placed: for one
 * that is too large to be in f32 as a whole. Not for GEMM_BF16 and GEMM_SPLIT_F32. Shapes: from [count, inputs]. */
void gemm_pack_outputs(const struct instruction_set *set, enum gemm_kind kind, uint32_t first, uint32_t count,
                       const float *from, bool one_sided, struct gemm_weight *weight);

/* The largest magnitude of integers with which no sum of `inputs` products overflows 32 bits. */
static inline float int16_largest(uint32_t inputs)
{
    float largest = sqrtf(2147483520.0f / (float)inputs);
    return largest < 32767 ? floorf(largest) : 32767;
}

/* The integer that the largest number of a row, or of an output's weights, becomes in GEMM_INT16. Their norm becomes
 * 46,300 less the largest amount that rounding may add to it; 46,300 is 0.1 % below the root of 2^31, to allow for the
 * rounding of `norm` itself. If squares may leave the range of f32, the largest number alone decides. */
static inline float int16_most(uint32_t inputs, float largest, float norm)
{
    if (!(largest > 1e-15f && largest < 1e15f)) { return int16_largest(inputs); }
    float most = (46300.0f - 0.5f * sqrtf((float)inputs)) * largest / norm;
    return most < 32767 ? floorf(most) : 32767; /* whole, so that the largest number is exact */
}

/* The number of keys or head dimensions rounded up to whole panels and steps of attention16. */
static inline uint32_t attention16_padded(uint32_t n)
{
    return (n + INT8_PANEL - 1) / INT8_PANEL * INT8_PANEL;
}

static inline size_t attention16_scratch(uint32_t length, uint32_t head_dim)
{
    size_t keys = attention16_padded(length), dims = attention16_padded(head_dim);
    return keys * dims + ATTENTION16_ROWS * (keys + dims) * 3 / 2;
}

/* The second-level cache in bytes, as the system reports it; 512 KiB if it does not. */
size_t gemm_cache(void);

/* The number of panels of a weight that are used for all rows before the next ones: as many as fill half of the
 * second-level cache, at least one. */
uint32_t gemm_panels(size_t panel_bytes);

/* The number of rows to compute together next, of the `left` ones: at most `most`, in groups as equal as multiples of
 * `unit` allow. */
static inline uint32_t gemm_rows(uint32_t left, uint32_t most, uint32_t unit)
{
    uint32_t groups = (left + most - 1) / most, rows = (left + groups - 1) / groups;
    rows = (rows + unit - 1) / unit * unit;
    return rows < left ? rows : left;
}

/* The bytes of `rows` rows as digits, without their scales. */
static inline size_t split_f32_bytes(size_t rows, size_t inputs)
{
    size_t strips = (rows + SPLIT_ROWS - 1) / SPLIT_ROWS, steps = (inputs + SPLIT_STEP - 1) / SPLIT_STEP;
    return strips * SPLIT_ROWS * steps * SPLIT_STEP * SPLIT_DIGITS;
}

#endif
