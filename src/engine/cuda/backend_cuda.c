/* The CUDA backend: cuBLASLt's products (gemm.h), our own kernels between them (kernels/kernels.h), and memory for the
 * passes of each workspace (memory.h). Opens and closes them; pass.h runs a pass. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/cuda/pass.h"

/* --- the device and its weights --- */

/* If all GPUs are too old, reports that there are none, so that "auto" takes the CPU. */
static enum status cuda_devices(unsigned *count, struct err *err)
{
    const struct cuda_api *api;
    struct cuda_device device;
    uint32_t found;
    TRY(cuda_api_real(&api, err));
    TRY(cuda_device_count(api, &found, err));
    *count = found;
    enum status status = cuda_device_query(api, 0, &device, err);
    for (uint32_t i = 1; i < found && status == STATUS_UNSUPPORTED; i++) {
        if (cuda_device_query(api, (int)i, &device, NULL) == STATUS_OK) { status = STATUS_OK; }
    }
    return status;
}

static enum precision cuda_choose(const struct model *model, enum precision asked)
{
    if (precision_is_int8(asked)) { return PRECISION_AUTO; }
    if (asked != PRECISION_AUTO) { return asked; }
    return model && model->beyond_f16 ? PRECISION_BF16 : PRECISION_F16;
}

/* Succeeds if the kernels compute the model's heads: a lane turns 8 numbers of each half of a head, and head_dim / 16
 * lanes of a warp normalise a head before that. */
static enum status cuda_takes(const struct model *model, struct err *err)
{
    const uint32_t head_dim = model->heads > 0 ? model_head_dim(model) : 0;
    if (head_dim > KERNEL_HEAD_DIM_MAX) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "the CUDA engine does not compute heads of %u numbers, only up to %d; the CPU's does "
                       "(backend: cpu)",
                       head_dim, KERNEL_HEAD_DIM_MAX);
    }
    const bool normed = model->layer_count > 0 && model->layers[0].query_norm.gain.data;
    const bool turns = head_dim % 16 == 0 && (!normed || (head_dim & (head_dim - 1)) == 0);
    return model->rotary[0].base == 0 || turns
               ? STATUS_OK
               : err_set(err, STATUS_UNSUPPORTED,
                         "the CUDA engine does not compute rotary positions in heads of %u numbers, only of multiples "
                         "of 16, or where heads are normalised of powers of 2; the CPU's does (backend: cpu)",
                         head_dim);
}

static enum kernel_type type_of(enum precision precision)
{
    return precision == PRECISION_F32 ? KERNEL_F32 : precision == PRECISION_F16 ? KERNEL_F16 : KERNEL_BF16;
}

/* GELU's tanh form, which cuBLASLt computes as an epilogue, differs from the erf form by less than f16 rounds away.
 * f32 is the reference that other precisions are compared with, so it always uses the model's own form, as does the
 * gate of gated models. */
static void choose_activation(struct cuda_backend *cuda, const struct engine_options *options)
{
    bool exact = options->exact_gelu || options->precision == PRECISION_F32;
    cuda->activation_epilogue = CUDA_EPILOGUE_BIAS_GELU;
    switch (cuda->backend.model->activation) {
    case ACTIVATION_GELU_ERF:
        cuda->activation = KERNEL_GELU_ERF;
        if (exact) { cuda->activation_epilogue = CUDA_EPILOGUE_NONE; }
        break;
    case ACTIVATION_GELU_TANH:
        cuda->activation = KERNEL_GELU_TANH;
        break;
    case ACTIVATION_RELU:
        cuda->activation = KERNEL_RELU;
        cuda->activation_epilogue = CUDA_EPILOGUE_BIAS_RELU;
        break;
    case ACTIVATION_SILU:
        cuda->activation = KERNEL_SILU;
        cuda->activation_epilogue = CUDA_EPILOGUE_NONE;
        break;
    }
    if (cuda->backend.model->gated) { cuda->activation_epilogue = CUDA_EPILOGUE_NONE; }
}

/* The memory limit is a share of the memory that is free before the weights are copied. */
static enum status make_plan(struct cuda_backend *cuda, const struct engine_options *options, struct err *err)
{
    size_t free_bytes, all_bytes;
    enum kernel_type type = type_of(options->precision);
    float share = options->memory_share > 0 ? options->memory_share : 0.8f;
    TRY(cuda_check(cuda->api, cuda->api->cudaMemGetInfo(&free_bytes, &all_bytes), "asking for free memory", err));
    cuda->request = (struct cuda_plan_request){
        .model = cuda->backend.model,
        .element_bytes = (uint32_t)kernel_type_bytes(type),
        .slots = CUDA_SLOTS,
        .graphs = options->no_graphs ? 0 : CUDA_GRAPHS,
        .batch_tokens = options->batch_tokens,
        .batch_rows = options->batch_rows,
        .weight_bytes = cuda_weights_bytes(cuda->backend.model, type),
        .workspace_bytes = cuda_gemm_workspace_bytes(&cuda->device),
        .available_bytes = (size_t)((double)free_bytes * share),
    };
    return cuda_plan_make(&cuda->request, &cuda->plan, err);
}

static void cuda_close(struct backend *backend)
{
    struct cuda_backend *cuda = (struct cuda_backend *)backend;
    if (cuda->weights.memory) { (void)cuda->api->cudaSetDevice(cuda->device.number); }
    if (cuda->gemm) { cuda_gemm_close(cuda->gemm); }
    cuda_weights_close(cuda->api, &cuda->weights);
    free(cuda);
}

/* Names everything besides model and precision that a pass's time depends on; calibrations are kept under that name. */
static void describe(struct cuda_backend *cuda)
{
    snprintf(cuda->backend.device, sizeof cuda->backend.device, "%.80s, driver %d, cublaslt %zu, %s, gelu %s",
             cuda->device.name, cuda->device.driver, cuda->device.cublaslt,
             cuda->request.graphs > 0 ? "graphs" : "no graphs",
             cuda->activation_epilogue == CUDA_EPILOGUE_NONE ? "exact" : "fast");
}

static enum status fill(struct cuda_backend *cuda, const struct engine_options *options, struct err *err)
{
    const struct model *model = cuda->backend.model;
    enum kernel_type type = type_of(options->precision);
    uint32_t count;
    TRY(cuda_device_count(cuda->api, &count, err));
    if (options->device >= count) {
        return err_set(err, STATUS_UNSUPPORTED, "there is no GPU %u: they are numbered 0 to %u", options->device,
                       count - 1);
    }
    TRY(cuda_device_query(cuda->api, (int)options->device, &cuda->device, err));
    TRY(cuda_select(cuda, err));
    choose_activation(cuda, options);
    TRY(make_plan(cuda, options, err));
    describe(cuda);
    TRY(cuda_weights_open(cuda->api, model, type, &cuda->weights, err));
    cuda->backend.weight_bytes = cuda->weights.bytes;
    struct cuda_gemm_options gemm = {.api = cuda->api, .device = &cuda->device, .candidates = options->candidates};
    return cuda_gemm_open(&gemm, &cuda->gemm, err);
}

static enum status cuda_open(const struct model *model, const struct engine_options *options, struct backend **out,
                             struct err *err)
{
    const struct cuda_api *api;
    TRY(cuda_takes(model, err));
    TRY(cuda_api_real(&api, err));
    struct cuda_backend *cuda = calloc(1, sizeof *cuda);
    if (!cuda) { return err_set(err, STATUS_NO_MEMORY, "no memory for the CUDA backend"); }
    cuda->api = api;
    cuda->backend = (struct backend){.model = model, .precision = options->precision, .slots = CUDA_SLOTS};
    enum status status = fill(cuda, options, err);
    if (status != STATUS_OK) {
        cuda_close(&cuda->backend);
        return status;
    }
    *out = &cuda->backend;
    return STATUS_OK;
}

/* --- workspaces --- */

static void cuda_workspace_close(struct backend_workspace *workspace)
{
    if (!workspace) { return; }
    (void)workspace->cuda->api->cudaSetDevice(workspace->cuda->device.number);
    if (workspace->memory.device) { cuda_pass_abort(workspace); }
    cuda_graphs_close(&workspace->graphs);
    if (workspace->runner) { cuda_gemm_runner_close(workspace->runner); }
    cuda_memory_close(&workspace->memory);
    free(workspace->ops);
    free(workspace);
}

static enum status workspace_fill(struct backend_workspace *workspace, struct err *err)
{
    struct cuda_backend *cuda = workspace->cuda;
    workspace->ops = calloc(CUDA_PASS_OPS(cuda->backend.model->layer_count), sizeof *workspace->ops);
    if (!workspace->ops) { return err_set(err, STATUS_NO_MEMORY, "no memory for a workspace on the GPU"); }
    TRY(cuda_select(cuda, err));
    TRY(cuda_memory_open(cuda->api, &cuda->request, &cuda->plan, &workspace->memory, err));
    atomic_fetch_add(&cuda->backend.counters->halvings, workspace->memory.plan.halvings);
    workspace->queue = (struct kernel_queue){.launch = cuda->api->cudaLaunchKernel,
                                             .cuda_stream = workspace->memory.compute,
                                             .multiprocessors = cuda->device.multiprocessors,
                                             .capability = cuda->device.capability};
    workspace->graphs = (struct cuda_graphs){.api = cuda->api, .most = cuda->request.graphs};
    return cuda_gemm_runner_open(cuda->gemm, &workspace->queue, &workspace->runner, err);
}

static enum status cuda_workspace_open(struct backend *backend, struct backend_workspace **out, struct err *err)
{
    struct backend_workspace *workspace = calloc(1, sizeof *workspace);
    if (!workspace) { return err_set(err, STATUS_NO_MEMORY, "no memory for a workspace on the GPU"); }
    workspace->cuda = (struct cuda_backend *)backend;
    enum status status = workspace_fill(workspace, err);
    if (status == STATUS_OK) {
        *out = workspace;
    } else {
        cuda_workspace_close(workspace);
    }
    return status;
}

static struct pass_limits cuda_limits(const struct backend_workspace *workspace)
{
    return (struct pass_limits){.tokens = workspace->memory.plan.tokens, .rows = workspace->memory.plan.rows};
}

const struct backend_ops backend_cuda = {
    .name = "cuda",
    .batch = {.tokens = CUDA_DEFAULT_TOKENS, .rows = CUDA_DEFAULT_ROWS},
    .devices = cuda_devices,
    .choose = cuda_choose,
    .takes = cuda_takes,
    .open = cuda_open,
    .close = cuda_close,
    .workspace_open = cuda_workspace_open,
    .workspace_close = cuda_workspace_close,
    .limits = cuda_limits,
    .embed = cuda_pass_embed,
    .linear = cuda_pass_linear,
    .attention = cuda_pass_attention,
    .norm = cuda_pass_norm,
    .pool = cuda_pass_pool,
    .submit = cuda_pass_submit,
    .wait = cuda_pass_wait,
    .finite = cuda_pass_finite,
};
