/* Devices and shapes: what is compiled. See cpu_matmul.h. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/gemm_onednn_parts.h"

enum status matmul_check(dnnl_status_t status, const char *what, struct err *err)
{
    if (status == dnnl_success)
        return STATUS_OK;
    if (status == dnnl_out_of_memory)
        return err_set(err, STATUS_NO_MEMORY, "oneDNN ran out of memory (%s)", what);
    if (status == dnnl_unimplemented)
        return err_set(err, STATUS_UNSUPPORTED, "oneDNN cannot do this on this processor (%s)", what);
    return err_set(err, STATUS_INTERNAL, "oneDNN failed with status %d (%s)", (int)status, what);
}

size_t matmul_element_bytes(const struct matmul *matmul)
{
    return matmul->precision == PRECISION_BF16 ? sizeof(uint16_t) : sizeof(float);
}

static dnnl_data_type_t data_type(enum precision precision)
{
    return precision == PRECISION_BF16 ? dnnl_bf16 : dnnl_f32;
}

enum precision matmul_native_precision(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    bool native = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
    return native ? PRECISION_BF16 : PRECISION_F32;
}

void matmul_single_thread(void)
{
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (symbol == NULL)
        return;
    void (*set_threads)(int);
    memcpy(&set_threads, &symbol, sizeof set_threads);
    set_threads(1);
}

enum status matmul_device_open(struct matmul_device **out, struct err *err)
{
    struct matmul_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the CPU device");
    enum status status = matmul_check(dnnl_set_primitive_cache_capacity(0), "cache", err);
    if (status == STATUS_OK)
        status = matmul_check(dnnl_engine_create(&device->engine, dnnl_cpu, 0), "engine", err);
    if (status != STATUS_OK) {
        matmul_device_close(device);
        return status;
    }
    *out = device;
    return STATUS_OK;
}

void matmul_device_close(struct matmul_device *device)
{
    if (device == NULL)
        return;
    if (device->engine != NULL)
        dnnl_engine_destroy(device->engine);
    free(device);
}

/* Describes the operands of one step for one bucket. */
static enum status describe(const struct matmul *matmul, struct step *step, uint32_t bucket, struct err *err)
{
    dnnl_data_type_t type = data_type(matmul->precision);
    dnnl_dim_t rows = (dnnl_dim_t)(bucket + 1) * matmul->bucket_rows;
    dnnl_dims_t from_dims = {rows, matmul->panel_inputs}, from_strides = {matmul->inputs, 1};
    dnnl_dims_t to_dims = {rows, matmul->block_outputs};
    dnnl_dims_t to_strides = {matmul->whole ? matmul->outputs : matmul->block_outputs, 1};
    TRY(matmul_check(dnnl_memory_desc_init_by_strides(&step->from[bucket], 2, from_dims, type, from_strides), "input",
                     err));
    return matmul_check(dnnl_memory_desc_init_by_strides(&step->to[bucket], 2, to_dims, dnnl_f32, to_strides), "output",
                        err);
}

/* User scratchpad, and for steps that add: the product is added to what stands in the output. */
static enum status make_attributes(bool adds, dnnl_primitive_attr_t attributes, struct err *err)
{
    dnnl_post_ops_t post_ops = NULL;
    TRY(matmul_check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user), "scratchpad",
                     err));
    if (!adds)
        return STATUS_OK;
    TRY(matmul_check(dnnl_post_ops_create(&post_ops), "post-ops", err));
    enum status status = matmul_check(dnnl_post_ops_append_sum(post_ops, 1.0f), "sum", err);
    if (status == STATUS_OK)
        status = matmul_check(dnnl_primitive_attr_set_post_ops(attributes, post_ops), "post-ops", err);
    dnnl_post_ops_destroy(post_ops);
    return status;
}

/* The weight's layout is oneDNN's choice for the largest bucket of the first step, and that same layout for all others.
 */
static enum status compile_with(struct matmul *matmul, struct step *step, uint32_t bucket, bool choose,
                                const_dnnl_primitive_attr_t attributes, struct err *err)
{
    dnnl_memory_desc_t weight = matmul->packed;
    dnnl_dims_t weight_dims = {matmul->panel_inputs, matmul->block_outputs};
    dnnl_matmul_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    TRY(describe(matmul, step, bucket, err));
    if (choose)
        TRY(matmul_check(
            dnnl_memory_desc_init_by_tag(&weight, 2, weight_dims, data_type(matmul->precision), dnnl_format_tag_any),
            "weight", err));
    TRY(matmul_check(dnnl_matmul_desc_init(&operation, &step->from[bucket], &weight, NULL, &step->to[bucket]), "matmul",
                     err));
    TRY(matmul_check(dnnl_primitive_desc_create(&description, &operation, attributes, matmul->device->engine, NULL),
                     "matmul description", err));
    if (choose)
        matmul->packed = *dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0);
    size_t scratch = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0));
    if (scratch > matmul->scratch_bytes)
        matmul->scratch_bytes = scratch;
    enum status status = matmul_check(dnnl_primitive_create(&step->primitive[bucket], description), "matmul code", err);
    dnnl_primitive_desc_destroy(description);
    return status;
}

static enum status compile(struct matmul *matmul, enum step_kind kind, uint32_t bucket, bool choose, struct err *err)
{
    dnnl_primitive_attr_t attributes = NULL;
    TRY(matmul_check(dnnl_primitive_attr_create(&attributes), "attributes", err));
    enum status status = make_attributes(kind == STEP_ADD, attributes, err);
    if (status == STATUS_OK)
        status = compile_with(matmul, &matmul->steps[kind], bucket, choose, attributes, err);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

/* The largest bucket first: it chooses the layout, and it must work. A smaller one that cannot be had is done without.
 */
static enum status compile_all(struct matmul *matmul, struct err *err)
{
    uint32_t last = MATMUL_ROWS / matmul->bucket_rows - 1;
    for (uint32_t bucket = last + 1; bucket-- > 0;) {
        enum status status = compile(matmul, STEP_FIRST, bucket, bucket == last, err);
        if (status == STATUS_OK && matmul->panels > 1)
            status = compile(matmul, STEP_ADD, bucket, false, err);
        if (status != STATUS_OK && (status != STATUS_UNSUPPORTED || bucket == last))
            return status;
        matmul->usable[bucket] = status == STATUS_OK;
    }
    return STATUS_OK;
}

/* The fewest equal parts of at most `most` each; 1 for a size that has none of at least a third of that. */
static uint32_t equal_parts(uint32_t size, uint32_t most)
{
    for (uint32_t parts = (size + most - 1) / most; size / parts >= most / 3; parts++)
        if (size % parts == 0 && (parts == 1 || size / parts % 2 == 0))
            return parts;
    return 1;
}

enum status matmul_open(struct matmul_device *device, uint32_t outputs, uint32_t inputs, enum precision precision,
                        bool whole, struct matmul **out, struct err *err)
{
    struct matmul *matmul = calloc(1, sizeof *matmul);
    if (matmul == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a matmul");
    matmul->device = device;
    matmul->outputs = outputs;
    matmul->inputs = inputs;
    matmul->precision = precision;
    matmul->whole = whole;
    matmul->bucket_rows = precision == PRECISION_BF16 ? 16 : MATMUL_ROWS / BUCKETS_MAX;
    matmul->blocks = equal_parts(outputs, BLOCK_OUTPUTS);
    matmul->block_outputs = outputs / matmul->blocks;
    matmul->panels = equal_parts(inputs, PANEL_INPUTS);
    matmul->panel_inputs = inputs / matmul->panels;
    enum status status = compile_all(matmul, err);
    if (status == STATUS_OK) {
        matmul_few_rows_pick(matmul);
        status = matmul_check_bits(matmul, err);
    }
    if (status != STATUS_OK) {
        matmul_close(matmul);
        return status;
    }
    *out = matmul;
    return STATUS_OK;
}

void matmul_close(struct matmul *matmul)
{
    if (matmul == NULL)
        return;
    for (unsigned kind = 0; kind < STEP_KINDS; kind++)
        for (uint32_t bucket = 0; bucket < BUCKETS_MAX; bucket++)
            dnnl_primitive_destroy(matmul->steps[kind].primitive[bucket]);
    free(matmul);
}

uint32_t matmul_block_outputs(const struct matmul *matmul)
{
    return matmul->block_outputs;
}
