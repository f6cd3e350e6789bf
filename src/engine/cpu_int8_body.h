/* The int8 kernels, written once over the words of a vec_*.h header and a few more, and compiled by each cpu_int8_*.c.
 * It is included once per file, after those words, INT8_NAME and INT8_LABEL. A file that has tile registers to multiply
 * on says INT8_TILES; the others bring int8_dots. */
#include <math.h>
#include <string.h>

#include "engine/cpu_int8.h"
#include "engine/vec_math.h"

INLINE vec int8_load(const float *from, uint32_t left)
{
    return left >= VEC ? vec_load(from) : vec_load_part(from, left);
}

INLINE vec int8_load_half(const uint16_t *from, uint32_t left)
{
    uint16_t half[VEC] = {0};
    if (left >= VEC)
        return vec_load_bf16(from);
    memcpy(half, from, left * sizeof half[0]);
    return vec_load_bf16(half);
}

INLINE void int8_store(float *to, vec a, uint32_t left)
{
    if (left >= VEC)
        vec_store(to, a);
    else
        vec_store_part(to, a, left);
}

INLINE void int8_store_half(uint16_t *to, vec a, uint32_t left)
{
    uint16_t half[VEC];
    if (left >= VEC) {
        vec_store_bf16(to, a);
        return;
    }
    vec_store_bf16(half, a);
    memcpy(to, half, left * sizeof half[0]);
}

/* How a row becomes whole numbers: the nearest ones of x * inverse, less `middle`. */
struct int8_fit {
    float inverse, middle;
};

INLINE void int8_store_whole(int8_t *to, vec a, struct int8_fit fit, uint32_t left)
{
    int8_t whole[VEC];
    if (left >= VEC) {
        vec_store_s8(to, a, vec_set(fit.inverse), vec_set(fit.middle));
        return;
    }
    vec_store_s8(whole, a, vec_set(fit.inverse), vec_set(fit.middle));
    memcpy(to, whole, left);
}

INLINE float int8_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The scale of a row whose largest magnitude is known. Of a row below 1e-30 nothing is left, as 127 / largest has to
 * stay finite. */
INLINE struct int8_fit int8_fit_even(float largest, float *scale)
{
    *scale = isfinite(largest) ? 0 : NAN;
    if (!isfinite(largest) || largest < 1e-30f)
        return (struct int8_fit){0, 0};
    *scale = largest / INT8_LARGEST;
    return (struct int8_fit){INT8_LARGEST / largest, 0};
}

/* The same with an offset. With the ends 253 steps apart and the middle rounded, no number leaves -127 to 127. Each
 * product is a statement, lest a compiler fuse it with a sum on some instruction sets and not on others. */
INLINE struct int8_fit int8_fit_uneven(float high, float low, float *scale, float *offset)
{
    float above = high * (1.0f / INT8_RANGE), below = low * (1.0f / INT8_RANGE), step = above - below;
    *offset = 0;
    *scale = isfinite(step) ? 0 : NAN;
    if (!isfinite(step) || step < 1e-32f)
        return (struct int8_fit){0, 0};
    float inverse = 1 / step, middle = rintf((high + low) * (0.5f * inverse));
    *scale = step;
    *offset = middle * step;
    return (struct int8_fit){inverse, middle};
}

/* The scale and, where it is to have one, the offset of a row whose range is known. */
INLINE struct int8_fit int8_fit_row(struct vec_range range, struct int8_rows to, uint32_t row)
{
    uint32_t high = (uint32_t)vec_high(range), low = vec_low(range), sign = 0x80000000;
    low = low < sign ? sign : low;
    if (to.offset != NULL)
        return int8_fit_uneven(int8_float(high), int8_float(low), to.scale + row, to.offset + row);
    return int8_fit_even(int8_float(high > low - sign ? high : low - sign), to.scale + row);
}

static void int8_quantise_plain(uint32_t width, const float *from, struct int8_rows to, uint32_t row, size_t stride)
{
    struct vec_range range = vec_range_none();
    int8_t *value = to.value + row * stride;
    for (uint32_t i = 0; i < width; i += VEC)
        range = vec_widen(range, int8_load(from + i, width - i));
    struct int8_fit fit = int8_fit_row(range, to, row);
    for (uint32_t i = 0; i < width; i += VEC)
        int8_store_whole(value + i, int8_load(from + i, width - i), fit, width - i);
}

/* Two vectors at a time, as long as there are whole ones. */
static void int8_quantise_half(uint32_t width, const uint16_t *from, struct int8_rows to, uint32_t row, size_t stride)
{
    struct vec_range range = vec_range_none();
    uint32_t pairs = width / (2 * VEC) * (2 * VEC);
    int8_t *value = to.value + row * stride;
    for (uint32_t i = 0; i < pairs; i += 2 * VEC)
        range = vec_widen_bf16(range, from + i);
    range = vec_range_of_bf16(range);
    for (uint32_t i = pairs; i < width; i += VEC)
        range = vec_widen(range, int8_load_half(from + i, width - i));
    struct int8_fit fit = int8_fit_row(range, to, row);
    for (uint32_t i = 0; i < pairs; i += 2 * VEC)
        vec_store_s8_bf16(value + i, from + i, vec_set(fit.inverse), vec_set(fit.middle));
    for (uint32_t i = pairs; i < width; i += VEC)
        int8_store_whole(value + i, int8_load_half(from + i, width - i), fit, width - i);
}

static void int8_quantise(uint32_t rows, uint32_t width, struct activations from, struct int8_rows to, size_t stride)
{
    for (uint32_t row = 0; row < rows; row++) {
        if (from.f32 != NULL)
            int8_quantise_plain(width, from.f32 + (size_t)row * width, to, row, stride);
        else
            int8_quantise_half(width, from.bf16 + (size_t)row * width, to, row, stride);
    }
}

/* --- what follows a product ---------------------------------------------------------------------------------------
 */

/* GELU by erf, for a result that is rounded to 8 bits: the odd polynomial is a minimax fit of erf(x / sqrt 2) / 2 on
 * |x| <= 3.4 with 1/2 at its end, so that beyond it x or 0 is left. Within 1.2e-3 of GELU everywhere. */
INLINE vec int8_gelu_erf(vec x)
{
    vec c = vec_clamp(x, 3.4f);
    vec u = vec_mul(c, c);
    vec p = vec_fma(vec_set(1.0471213e-5f), u, vec_set(-4.1271381e-4f));
    p = vec_fma(p, u, vec_set(6.6890644e-3f));
    p = vec_fma(p, u, vec_set(-5.9729133e-2f));
    p = vec_fma(p, u, vec_set(0.39421170f));
    return vec_mul(x, vec_fma(c, p, vec_set(0.5f)));
}

INLINE vec int8_activation(enum activation activation, vec x)
{
    return activation == ACTIVATION_GELU_ERF ? int8_gelu_erf(x) : activation_of(activation, true, x);
}

/* Some rows of a whole panel's sums on their way out; `from_scale` and `sums` are those of the first row. */
INLINE void int8_end_panel(const struct int8_job *job, const int32_t *sums, uint32_t row, uint32_t rows,
                           uint32_t output, enum int8_end end, enum activation activation)
{
    enum { VECS = INT8_PANEL / VEC };
    vec scale[VECS], bias[VECS];
    size_t stride = job->weight->outputs, at = row * stride + output;
    const float *from_scale = job->from.scale + row;
    float *plain = job->to.f32;
    uint16_t *half = job->to.bf16;
    for (uint32_t i = 0; i < VECS; i++) {
        scale[i] = vec_load(job->weight->scale + output + i * VEC);
        bias[i] = end == INT8_SCALED ? vec_set(0.0f) : vec_load(job->bias + output + i * VEC);
    }
    for (uint32_t r = 0; r < rows; r++, at += stride, sums += INT8_PANEL) {
        vec x[VECS], row_scale = vec_set(from_scale[r]);
        for (uint32_t i = 0; i < VECS; i++) {
            x[i] = vec_mul(vec_from_s32(sums + i * VEC), scale[i]);
            x[i] = end == INT8_SCALED ? vec_mul(x[i], row_scale) : vec_fma(x[i], row_scale, bias[i]);
            if (end == INT8_ACTIVATION)
                x[i] = int8_activation(activation, x[i]);
        }
        for (uint32_t i = 0; i < VECS; i += 2) {
            if (end == INT8_SCALED) {
                vec_store(plain + at + i * VEC, x[i]);
                vec_store(plain + at + (i + 1) * VEC, x[i + 1]);
            } else {
                vec_store_two_bf16(half + at + i * VEC, x[i], x[i + 1]);
            }
        }
    }
}

/* The same for the last panel of a weight that has fewer outputs. */
static void int8_end_part(const struct int8_job *job, const int32_t *sums, uint32_t row, uint32_t rows, uint32_t output,
                          enum int8_end end, enum activation activation)
{
    float x[INT8_PANEL];
    uint32_t columns = job->weight->outputs - output;
    for (uint32_t r = row; r < row + rows; r++, sums += INT8_PANEL) {
        size_t at = (size_t)r * job->weight->outputs + output;
        for (uint32_t i = 0; i < columns; i++)
            x[i] = end == INT8_SCALED ? 0.0f : job->bias[output + i];
        for (uint32_t i = 0; i < columns; i += VEC) {
            vec y = vec_mul(vec_from_s32(sums + i), vec_load(job->weight->scale + output + i));
            y = vec_fma(y, vec_set(job->from.scale[r]), int8_load(x + i, columns - i));
            if (end == INT8_ACTIVATION)
                y = int8_activation(activation, y);
            if (end == INT8_SCALED)
                int8_store(job->to.f32 + at + i, y, columns - i);
            else
                int8_store_half(job->to.bf16 + at + i, y, columns - i);
        }
    }
}

INLINE void int8_end_rows(const struct int8_job *job, const int32_t *sums, uint32_t row, uint32_t rows, uint32_t output,
                          enum int8_end end, enum activation activation)
{
    if (job->weight->outputs - output >= INT8_PANEL)
        int8_end_panel(job, sums, row, rows, output, end, activation);
    else
        int8_end_part(job, sums, row, rows, output, end, activation);
}

/* --- normalising --------------------------------------------------------------------------------------------------
 * Some rows go through in step, so that none waits for its own sums. What is done to a row does not depend on how many
 * there are. */

enum { NORM_ROWS = 4 };

/* What a product in int8 gives some outputs: the vectors of a job's weight at one place. */
struct int8_outputs {
    vec scale, total;
};

INLINE vec int8_product_of(const struct int8_norm_job *job, struct int8_outputs at, uint32_t row, uint32_t i, vec to)
{
    const int32_t *sums = job->sums + (size_t)row * job->weight->panels * INT8_PANEL;
    vec y = vec_fma(vec_set(job->from_offset[row]), at.total, to);
    return vec_fma(vec_mul(vec_from_s32(sums + i), at.scale), vec_set(job->from_scale[row]), y);
}

/* x + bias + product; the sums of the rows are put into `mean` as means. */
INLINE void int8_add_rows(const struct int8_norm_job *job, uint32_t row, uint32_t rows, bool whole, bool plain,
                          float *mean)
{
    uint32_t width = job->outputs;
    float *x = job->x + (size_t)row * width;
    struct int8_outputs at = {vec_set(0.0f), vec_set(0.0f)};
    vec all[NORM_ROWS];
    for (uint32_t r = 0; r < rows; r++)
        all[r] = vec_set(0.0f);
    for (uint32_t i = 0; i < width; i += VEC) {
        uint32_t left = whole ? VEC : width - i;
        vec bias = int8_load(job->bias + i, left);
        if (!plain)
            at =
                (struct int8_outputs){int8_load(job->weight->scale + i, left), int8_load(job->weight->total + i, left)};
        for (uint32_t r = 0; r < rows; r++) {
            vec y = vec_add(int8_load(x + (size_t)r * width + i, left), bias);
            if (plain)
                y = vec_add(int8_load(job->product + (size_t)(row + r) * width + i, left), y);
            else
                y = int8_product_of(job, at, row + r, i, y);
            all[r] = vec_add(all[r], y);
            int8_store(x + (size_t)r * width + i, y, left);
        }
    }
    for (uint32_t r = 0; r < rows; r++)
        mean[r] = vec_sum(all[r]) / (float)width;
}

/* 1 / the deviation of each row. */
INLINE void int8_deviations(const struct int8_norm_job *job, uint32_t row, uint32_t rows, const float *mean,
                            float *inverse)
{
    uint32_t width = job->outputs, i = 0;
    const float *x = job->x + (size_t)row * width;
    vec total[NORM_ROWS];
    for (uint32_t r = 0; r < rows; r++)
        total[r] = vec_set(0.0f);
    for (; i + VEC <= width; i += VEC) {
        for (uint32_t r = 0; r < rows; r++) {
            vec d = vec_sub(vec_load(x + (size_t)r * width + i), vec_set(mean[r]));
            total[r] = vec_fma(d, d, total[r]);
        }
    }
    for (uint32_t r = 0; r < rows; r++) {
        float square = vec_sum(total[r]);
        for (uint32_t k = i; k < width; k++)
            square += (x[r * width + k] - mean[r]) * (x[r * width + k] - mean[r]);
        inverse[r] = 1.0f / sqrtf(square / (float)width + job->norm->eps);
    }
}

INLINE void int8_norm_rows(const struct int8_norm_job *job, uint32_t row, uint32_t rows, bool whole)
{
    uint32_t width = job->outputs;
    size_t stride = (size_t)(width + INT8_STEP - 1) / INT8_STEP * INT8_STEP;
    float mean[NORM_ROWS], inverse[NORM_ROWS], *x = job->x + (size_t)row * width;
    const float *gains = job->norm->gain, *biases = job->norm->bias;
    int8_t *to = job->to.value + row * stride;
    struct vec_range range[NORM_ROWS];
    struct int8_fit fit[NORM_ROWS];
    if (job->product != NULL)
        int8_add_rows(job, row, rows, whole, true, mean);
    else
        int8_add_rows(job, row, rows, whole, false, mean);
    int8_deviations(job, row, rows, mean, inverse);
    for (uint32_t r = 0; r < rows; r++)
        range[r] = vec_range_none();
    for (uint32_t i = 0; i < width; i += VEC) {
        uint32_t left = whole ? VEC : width - i;
        vec gain = int8_load(gains + i, left), bias = int8_load(biases + i, left);
        for (uint32_t r = 0; r < rows; r++) {
            vec y = vec_sub(int8_load(x + (size_t)r * width + i, left), vec_set(mean[r]));
            y = vec_fma(vec_mul(y, vec_set(inverse[r])), gain, bias);
            range[r] = vec_widen(range[r], y);
            int8_store(x + (size_t)r * width + i, y, left);
        }
    }
    for (uint32_t r = 0; r < rows; r++)
        fit[r] = int8_fit_row(range[r], job->to, row + r);
    for (uint32_t i = 0; i < width; i += VEC)
        for (uint32_t r = 0; r < rows; r++)
            int8_store_whole(to + r * stride + i, int8_load(x + (size_t)r * width + i, whole ? VEC : width - i), fit[r],
                             whole ? VEC : width - i);
}

static void int8_add_norm(const struct int8_norm_job *job)
{
    bool whole = job->outputs % VEC == 0;
    uint32_t row = 0;
    for (; whole && row + NORM_ROWS <= job->rows; row += NORM_ROWS)
        int8_norm_rows(job, row, NORM_ROWS, true);
    for (; row < job->rows; row++)
        int8_norm_rows(job, row, 1, false);
}

/* --- products -----------------------------------------------------------------------------------------------------
 */

#ifdef INT8_TILES
#include "engine/cpu_int8_tiles.h"
#else
/* One panel stays in the cache while all rows pass it, DOT_ROWS at a time. */
INLINE void int8_product_as(const struct int8_job *job, enum int8_end end, enum activation activation)
{
    const struct int8_weight *weight = job->weight;
    size_t from_stride = (size_t)weight->steps * INT8_STEP, sums_stride = (size_t)weight->panels * INT8_PANEL;
    for (uint32_t panel = job->first_panel; panel < job->last_panel; panel++) {
        const int8_t *packed = weight->packed + panel * from_stride * INT8_PANEL;
        for (uint32_t row = 0; row < job->rows; row += DOT_ROWS) {
            int32_t sums[DOT_ROWS][INT8_PANEL] __attribute__((aligned(64)));
            uint32_t last = job->rows - row < DOT_ROWS ? job->rows : row + DOT_ROWS;
            int8_dots(job->from.value + row * from_stride, from_stride, packed, weight->steps, sums);
            if (end != INT8_SUMS)
                int8_end_rows(job, sums[0], row, last - row, panel * INT8_PANEL, end, activation);
            else
                for (uint32_t r = row; r < last; r++)
                    memcpy(job->sums + r * sums_stride + panel * INT8_PANEL, sums[r - row], sizeof sums[0]);
        }
    }
}
#endif

static void int8_product(const struct int8_job *job)
{
    if (job->end == INT8_SUMS)
        int8_product_as(job, INT8_SUMS, ACTIVATION_RELU);
    else if (job->end == INT8_SCALED)
        int8_product_as(job, INT8_SCALED, ACTIVATION_RELU);
    else if (job->end == INT8_BIAS)
        int8_product_as(job, INT8_BIAS, ACTIVATION_RELU);
    else if (job->activation == ACTIVATION_GELU_ERF)
        int8_product_as(job, INT8_ACTIVATION, ACTIVATION_GELU_ERF);
    else if (job->activation == ACTIVATION_GELU_TANH)
        int8_product_as(job, INT8_ACTIVATION, ACTIVATION_GELU_TANH);
    else
        int8_product_as(job, INT8_ACTIVATION, ACTIVATION_RELU);
}

/* Some outputs together, so that no sum waits for itself. */
enum { PLAIN_OUTPUTS = 4 };

INLINE void int8_plain_outputs(uint32_t outputs, uint32_t inputs, const float *from, const float *weight, float *to,
                               size_t stride)
{
    enum { VECS = INT8_BLOCK / VEC };
    vec sum[PLAIN_OUTPUTS][VECS];
    for (uint32_t o = 0; o < outputs; o++)
        for (uint32_t v = 0; v < VECS; v++)
            sum[o][v] = vec_set(0.0f);
    for (uint32_t i = 0; i < inputs; i++, from += INT8_BLOCK)
        for (uint32_t o = 0; o < outputs; o++)
            for (uint32_t v = 0; v < VECS; v++)
                sum[o][v] = vec_fma(vec_set(weight[(size_t)o * inputs + i]), vec_load(from + v * VEC), sum[o][v]);
    for (uint32_t o = 0; o < outputs; o++) {
        float column[INT8_BLOCK];
        for (uint32_t v = 0; v < VECS; v++)
            vec_store(column + v * VEC, sum[o][v]);
        for (uint32_t row = 0; row < INT8_BLOCK; row++)
            to[row * stride + o] = column[row];
    }
}

static void int8_plain_product(uint32_t outputs, uint32_t inputs, const float *from, const float *weight, float *to,
                               size_t stride)
{
    uint32_t o = 0;
    for (; o + PLAIN_OUTPUTS <= outputs; o += PLAIN_OUTPUTS)
        int8_plain_outputs(PLAIN_OUTPUTS, inputs, from, weight + (size_t)o * inputs, to + o, stride);
    for (; o < outputs; o++)
        int8_plain_outputs(1, inputs, from, weight + (size_t)o * inputs, to + o, stride);
}

const struct int8_kernels INT8_NAME = {
    .name = INT8_LABEL,
    .runs_here = int8_runs_here,
    .quantise = int8_quantise,
    .product = int8_product,
    .add_norm = int8_add_norm,
    .plain_product = int8_plain_product,
};
