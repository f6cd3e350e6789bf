/* Written against oneDNN directly and not through src/engine, so that a weakness there cannot lower the yardstick. */
#include "gemm_peak.h"

#include <dnnl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 256 };

struct gemm_peak {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    void *buffers[4];
    dnnl_exec_arg_t arguments[4];
    double operations;
};

static void must(dnnl_status_t status)
{
    if (status != dnnl_success) {
        fprintf(stderr, "gemm_peak: oneDNN failed with status %d\n", (int)status);
        exit(1);
    }
}

/* Memory for one operand, filled with small numbers (bf16 and f32 both read them as such; bytes are what they are). */
static void bind(struct gemm_peak *peak, unsigned at, int argument, const dnnl_memory_desc_t *shape, bool bf16)
{
    size_t bytes = (dnnl_memory_desc_get_size(shape) + 127) / 64 * 64;
    peak->buffers[at] = aligned_alloc(64, bytes);
    if (peak->buffers[at] == NULL)
        exit(1);
    for (size_t i = 0; i < bytes / 2; i++)
        ((uint16_t *)peak->buffers[at])[i] = (uint16_t)((bf16 || i % 2 == 1 ? 0x3c00 : 0) + i * 2654435761u % 512);
    peak->arguments[at].arg = argument;
    must(dnnl_memory_create(&peak->arguments[at].memory, shape, peak->engine, peak->buffers[at]));
}

struct gemm_peak *gemm_peak_open(uint32_t outputs, uint32_t inputs, enum gemm_type of)
{
    struct gemm_peak *peak = calloc(1, sizeof *peak);
    const dnnl_data_type_t types[] = {[GEMM_F32] = dnnl_f32, [GEMM_BF16] = dnnl_bf16, [GEMM_INT8] = dnnl_s8};
    dnnl_data_type_t type = types[of], sums = of == GEMM_INT8 ? dnnl_s32 : dnnl_f32;
    bool bf16 = of == GEMM_BF16;
    dnnl_memory_desc_t from, weight, to;
    dnnl_dims_t from_dims = {ROWS, inputs}, weight_dims = {inputs, outputs}, to_dims = {ROWS, outputs};
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_desc_t description;
    if (peak == NULL)
        exit(1);
    must(dnnl_engine_create(&peak->engine, dnnl_cpu, 0));
    must(dnnl_stream_create(&peak->stream, peak->engine, dnnl_stream_default_flags));
    must(dnnl_memory_desc_init_by_tag(&from, 2, from_dims, type, dnnl_ab));
    must(dnnl_memory_desc_init_by_tag(&weight, 2, weight_dims, type, dnnl_format_tag_any));
    must(dnnl_memory_desc_init_by_tag(&to, 2, to_dims, sums, dnnl_ab));
    must(dnnl_matmul_desc_init(&matmul, &from, &weight, NULL, &to));
    must(dnnl_primitive_attr_create(&attributes));
    must(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    must(dnnl_primitive_desc_create(&description, &matmul, attributes, peak->engine, NULL));
    must(dnnl_primitive_create(&peak->primitive, description));
    bind(peak, 0, DNNL_ARG_SRC, &from, bf16);
    bind(peak, 1, DNNL_ARG_WEIGHTS, dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0), bf16);
    bind(peak, 2, DNNL_ARG_DST, &to, false);
    bind(peak, 3, DNNL_ARG_SCRATCHPAD, dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0), false);
    must(dnnl_primitive_desc_destroy(description));
    must(dnnl_primitive_attr_destroy(attributes));
    peak->operations = 2.0 * ROWS * inputs * outputs;
    return peak;
}

void gemm_peak_close(struct gemm_peak *peak)
{
    for (unsigned i = 0; i < 4; i++) {
        must(dnnl_memory_destroy(peak->arguments[i].memory));
        free(peak->buffers[i]);
    }
    must(dnnl_primitive_destroy(peak->primitive));
    must(dnnl_stream_destroy(peak->stream));
    must(dnnl_engine_destroy(peak->engine));
    free(peak);
}

double gemm_peak_run(struct gemm_peak *peak, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        must(dnnl_primitive_execute(peak->primitive, peak->stream, 4, peak->arguments));
    must(dnnl_stream_wait(peak->stream));
    return times * peak->operations;
}
