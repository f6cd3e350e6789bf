/* Products of few rows in f32, past oneDNN: see cpu_few_rows.h. */
#include "engine/cpu/gemm_onednn_parts.h"

/* What oneDNN packs a weight into: either strips of 64 outputs, in a strip the inputs one after the other (it says so
 * in two levels, 16 inputs of 64 outputs), or the inputs one after the other with all outputs. */
static struct few_layout layout_of(const struct matmul *matmul)
{
    enum { STEP = 16 };
    const dnnl_blocking_desc_t *blocking = &matmul->packed.format_desc.blocking;
    dnnl_dim_t inputs = matmul->panel_inputs, outputs = matmul->block_outputs;
    if (matmul->packed.format_kind != dnnl_blocked || outputs % FEW_STRIP != 0)
        return (struct few_layout){0};
    if (blocking->inner_nblks == 0 && blocking->strides[0] == outputs && blocking->strides[1] == 1)
        return (struct few_layout){(size_t)outputs, FEW_STRIP};
    if (blocking->inner_nblks == 2 && blocking->inner_blks[0] == STEP && blocking->inner_idxs[0] == 0 &&
        blocking->inner_blks[1] == FEW_STRIP && blocking->inner_idxs[1] == 1 && inputs % STEP == 0 &&
        blocking->strides[0] == STEP * FEW_STRIP && blocking->strides[1] == inputs * FEW_STRIP)
        return (struct few_layout){FEW_STRIP, (size_t)inputs * FEW_STRIP};
    return (struct few_layout){0};
}

void matmul_few_rows_pick(struct matmul *matmul)
{
    matmul->few_layout = layout_of(matmul);
    if (matmul->precision == PRECISION_F32 && matmul->few_layout.input_stride > 0)
        matmul->few_rows = kernels_pick()->few_rows;
}

/* Where the weights of a strip stand from an input on. */
static const float *strip_at(const struct matmul *matmul, const struct matmul_weights *weights, uint32_t strip,
                             uint32_t input)
{
    uint32_t in_block = matmul->block_outputs / FEW_STRIP;
    size_t part = (size_t)(strip / in_block) * matmul->panels + input / matmul->panel_inputs;
    const char *packed = weights->packed + part * matmul_part_bytes(matmul);
    return (const float *)(const void *)packed + strip % in_block * matmul->few_layout.strip_stride +
           input % matmul->panel_inputs * matmul->few_layout.input_stride;
}

/* What a hand will want behind a strip: the one beside it, or the first on its way of the product that comes next. */
static void look_ahead(const struct matmul *matmul, const struct matmul_weights *weights, uint32_t strip,
                       const struct matmul_way *way, struct few_job *job)
{
    if (strip != (way->down ? 0 : matmul->outputs / FEW_STRIP - 1)) {
        job->ahead = strip_at(matmul, weights, way->down ? strip - 1 : strip + 1, 0);
        job->ahead_stride = matmul->few_layout.input_stride;
    } else if (way->next != NULL && way->next->few_rows != NULL) {
        job->ahead = strip_at(way->next, way->next_weights, way->down ? way->next->outputs / FEW_STRIP - 1 : 0, 0);
        job->ahead_stride = way->next->few_layout.input_stride;
    }
}

void matmul_few_rows_run(const struct matmul *matmul, const struct matmul_weights *weights, uint32_t strip,
                         const struct matmul_way *way, uint32_t rows, const float *from, float *to)
{
    for (uint32_t input = 0; input < matmul->inputs; input += matmul->few_inputs) {
        struct few_job job = {
            .rows = rows,
            .inputs = matmul->few_inputs,
            .from = from + input,
            .from_stride = matmul->inputs,
            .strip = strip_at(matmul, weights, strip, input),
            .strip_stride = matmul->few_layout.input_stride,
            .to = matmul->whole ? to + (size_t)strip * FEW_STRIP : to,
            .to_stride = matmul->whole ? matmul->outputs : FEW_STRIP,
            .adds = input > 0,
        };
        if (input + matmul->few_inputs < matmul->inputs) {
            job.ahead = strip_at(matmul, weights, strip, input + matmul->few_inputs);
            job.ahead_stride = job.strip_stride;
        } else {
            look_ahead(matmul, weights, strip, way, &job);
        }
        matmul->few_rows(&job);
    }
}
