/* The int8 kernels, written once over the words of a vec_*.h header and a few more, and compiled by each cpu_int8_*.c.
 * It is included once per file, after those words, INT8_NAME and INT8_LABEL. A file that has tile registers to multiply
 * on says INT8_TILES; the others bring int8_dots. Here are the products; rows of int8 are cpu_int8_rows.h's, the
 * normalisation is cpu_int8_norm.h's. */
#include "engine/cpu_int8_norm.h"

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

/* The activation that a job asks for, for such a result. */
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
            y = vec_fma(y, vec_set(job->from.scale[r]), load_upto(x + i, columns - i));
            if (end == INT8_ACTIVATION)
                y = int8_activation(activation, y);
            if (end == INT8_SCALED)
                int8_store(job->to.f32 + at + i, y, columns - i);
            else
                int8_store_half(job->to.bf16 + at + i, y, columns - i);
        }
    }
}

/* Some rows of any panel. */
INLINE void int8_end_rows(const struct int8_job *job, const int32_t *sums, uint32_t row, uint32_t rows, uint32_t output,
                          enum int8_end end, enum activation activation)
{
    if (job->weight->outputs - output >= INT8_PANEL)
        int8_end_panel(job, sums, row, rows, output, end, activation);
    else
        int8_end_part(job, sums, row, rows, output, end, activation);
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

/* So many outputs of a block of rows, whose inputs stand in columns. */
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
