/* See workspace.h. */
#include "engine/cpu/workspace.h"

#include <stdlib.h>
#include <string.h>

#include "base/system.h"

/* Chunks of a step for each thread: with a few, all end at about the same time. */
enum { CHUNKS_PER_THREAD = 4 };

static size_t larger_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t scratch_bytes(const struct cpu_weights *weights, size_t tokens)
{
    const struct model *model = weights->backend.model;
    uint32_t longest = (uint32_t)(tokens < model->max_tokens ? tokens : model->max_tokens);
    uint32_t head_dim = model_head_dim(model);
    size_t floats = weights->set->kernels->attention_scratch(longest, head_dim);
    return sizeof(float) * larger_of(floats, attention16_scratch(longest, head_dim));
}

static size_t longest_pass(const struct backend_workspace *workspace)
{
    size_t longest = larger_of(PASS_TOKENS, workspace->weights->backend.model->max_tokens);
    return workspace->tokens > 0 ? workspace->tokens : longest;
}

/* Lays out the helpers' own buffers, as lay_out does. */
static size_t lay_out_helpers(struct backend_workspace *workspace, unsigned threads, char *block)
{
    const struct cpu_weights *weights = workspace->weights;
    size_t used = 0;
    for (unsigned thread = 1; thread < threads; thread++) {
        workspace->thread[thread].scratch = memory_part(block, &used, scratch_bytes(weights, longest_pass(workspace)));
    }
    return used;
}

struct scaled_rows cpu_lay_out_integers(enum gemm_kind kind, size_t rows, uint32_t inputs, char *block, size_t *used)
{
    size_t row = (kind == GEMM_INT16 ? 2 * (size_t)inputs : inputs) + INT8_STEP - 1;
    size_t bytes = kind == GEMM_SPLIT_F32 ? split_f32_bytes(rows, inputs) : rows * (row / INT8_STEP * INT8_STEP);
    struct scaled_rows integers = {.value = memory_part(block, used, bytes)};
    integers.scale = memory_part(block, used, rows * sizeof(float));
    if (kind == GEMM_INT8) {
        integers.offset = memory_part(block, used, rows * sizeof(float));
        integers.far = memory_part(block, used, rows * INT8_FAR * sizeof(struct int8_far));
    }
    return integers;
}

/* True if a product of this kind computes the model. */
static bool has_product(const struct cpu_weights *weights, enum gemm_kind kind)
{
    if (weights->both && kind == weights->kind) { return true; }
    for (uint32_t layer = 0; layer < weights->backend.model->layer_count; layer++) {
        for (int product = 0; product < ENGINE_PRODUCTS; product++) {
            const struct cpu_linear *linear = &weights->layers[layer].linear[product];
            if (linear->kind == kind && linear->weight.outputs > 0) { return true; }
        }
    }
    return false;
}

/* Lays the workspace's buffers out in `block` (NULL: nowhere, to learn the size) and returns their size. */
static size_t lay_out(struct backend_workspace *workspace, char *block)
{
    const struct cpu_weights *weights = workspace->weights;
    const struct model *model = weights->backend.model;
    size_t longest = longest_pass(workspace), rows = longest + GEMM_ROWS_BEHIND, used = 0;
    size_t query = model_query_width(model), qkv = query + 2 * (size_t)model_key_width(model);
    size_t hidden = rows * model->hidden, wide = rows * larger_of(qkv, model->intermediate_size);

    workspace->hidden = memory_part(block, &used, hidden * sizeof(float));
    workspace->sum = model->pre_norm ? memory_part(block, &used, hidden * sizeof(float)) : workspace->hidden;
    workspace->thread[0].scratch = memory_part(block, &used, scratch_bytes(weights, longest));
    workspace->product = memory_part(block, &used, hidden * sizeof(float));
    bool half = cpu_weights_are_half(weights), inner_half = cpu_weights_inner_is_half(weights);
    if (!inner_half || !weights->qkv_half) { workspace->wide = memory_part(block, &used, wide * sizeof(float)); }
    if (inner_half || weights->qkv_half) { workspace->wide16 = memory_part(block, &used, wide * sizeof(uint16_t)); }
    uint32_t inputs = (uint32_t)larger_of(larger_of(model->hidden, query), model->intermediate_size);
    if ((weights->kind == GEMM_SPLIT_F32 || weights->kind == GEMM_INT16) && has_product(weights, weights->kind)) {
        workspace->integers = cpu_lay_out_integers(weights->kind, rows, inputs, block, &used);
    }
    if (has_product(weights, GEMM_INT8)) {
        workspace->int8 = cpu_lay_out_integers(GEMM_INT8, rows, inputs, block, &used);
    }
    if (half) {
        workspace->context.bf16 = memory_part(block, &used, rows * query * sizeof(uint16_t));
    } else {
        workspace->context.f32 = memory_part(block, &used, rows * query * sizeof(float));
    }
    if (half && has_product(weights, weights->kind)) {
        workspace->hidden16 = memory_part(block, &used, hidden * sizeof(uint16_t));
    }
    return used;
}

void cpu_workspace_close(struct backend_workspace *workspace)
{
    if (!workspace) { return; }
    cpu_decoder_close(workspace->decoder);
    memory_unmap(workspace->helpers_memory, workspace->helpers_bytes);
    memory_unmap(workspace->memory, workspace->bytes);
    free(workspace);
}

/* Memory starts as zeros: gaps between rows take part in products, so they must be finite. Only pages that are used
 * become resident: a model that takes 8,192 tokens has room for them, but most texts are short. */
static enum status make_room(size_t bytes, void **out, struct err *err)
{
    *out = memory_map(bytes);
    return *out ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a CPU workspace (%zu bytes)", bytes);
}

enum status cpu_workspace_open_for(struct backend *backend, uint32_t tokens, struct backend_workspace **out,
                                   struct err *err)
{
    struct cpu_weights *weights = (struct cpu_weights *)backend;
    struct backend_workspace *workspace = calloc(1, sizeof *workspace);
    if (!workspace) { return err_set(err, STATUS_NO_MEMORY, "no memory for a CPU workspace"); }
    workspace->weights = weights;
    workspace->tokens = tokens;
    workspace->threads = 1;
    workspace->bytes = lay_out(workspace, NULL);
    enum status status = make_room(workspace->bytes, &workspace->memory, err);
    if (status != STATUS_OK) {
        cpu_workspace_close(workspace);
        return status;
    }
    lay_out(workspace, workspace->memory);
    *out = workspace;
    return STATUS_OK;
}

enum status cpu_workspace_open(struct backend *backend, struct backend_workspace **out, struct err *err)
{
    return cpu_workspace_open_for(backend, 0, out, err);
}

/* If it fails, the workspace has no helpers. */
enum status cpu_workspace_join(struct backend_workspace *workspace, struct parallel_for *parallel, struct err *err)
{
    unsigned threads = parallel_for_threads(parallel);
    if (threads == 1) { return STATUS_OK; }
    workspace->helpers_bytes = lay_out_helpers(workspace, threads, NULL);
    TRY(make_room(workspace->helpers_bytes, &workspace->helpers_memory, err));
    lay_out_helpers(workspace, threads, workspace->helpers_memory);
    workspace->threads = threads;
    workspace->parallel = parallel;
    return STATUS_OK;
}

/* ---- steps ---- */

unsigned cpu_chunks(const struct backend_workspace *workspace, uint32_t parts, uint32_t least)
{
    if (!workspace->helped) { return 1; }
    unsigned most = parts / least, good = workspace->threads * CHUNKS_PER_THREAD;
    return most < 1 ? 1 : most < good ? most : good;
}

void cpu_do(const struct cpu_step *step, void (*chunk)(void *context, unsigned thread, unsigned chunk))
{
    struct backend_workspace *workspace = step->workspace;
    struct cpu_step own = *step;
    if (workspace->helped) {
        parallel_for_run(workspace->parallel, &(struct parallel_step){chunk, &own, step->chunks});
        return;
    }
    for (unsigned i = 0; i < step->chunks; i++) { chunk(&own, 0, i); }
}
