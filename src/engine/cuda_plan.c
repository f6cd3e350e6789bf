#include "engine/cuda_plan.h"

#include "engine/cuda_ragged.h"

uint32_t cuda_bucket_tokens(uint32_t tokens)
{
    uint32_t step = 8;
    while (tokens / step >= 32)
        step *= 2;
    return (tokens + step - 1) / step * step;
}

uint32_t cuda_bucket_rows(uint32_t rows, uint32_t most)
{
    uint32_t bucket = 8;
    while (bucket < rows)
        bucket *= 2;
    return bucket < most ? bucket : most;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t aligned(size_t bytes)
{
    return (bytes + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
}

/* The next part of the block. */
static size_t part(size_t *used, size_t bytes)
{
    size_t at = *used;
    *used += aligned(bytes);
    return at;
}

static size_t output_bytes(uint32_t rows, uint32_t dim)
{
    return (size_t)rows * dim * sizeof(float);
}

static struct cuda_places lay_out(const struct cuda_plan_request *request, uint32_t tokens, uint32_t rows)
{
    const struct model *model = request->model;
    size_t element = request->element_bytes, used = 0, hidden = element * model->hidden;
    size_t wide = larger(3 * hidden, element * model->intermediate_size);
    size_t ragged = cuda_ragged_layout(tokens, rows).bytes;
    struct cuda_places places = {
        .x = part(&used, tokens * hidden),
        .y = part(&used, tokens * hidden),
        .wide = part(&used, tokens * wide),
    };
    places.first = part(&used, model->pooling == POOLING_CLS ? rows * hidden : 0);
    places.ragged = part(&used, ragged);
    for (unsigned slot = 0; slot < request->slots; slot++) {
        places.slot_ragged[slot] = part(&used, ragged);
        places.slot_output[slot] = part(&used, output_bytes(rows, model->dim));
        places.slot_finite[slot] = part(&used, rows * sizeof(uint32_t));
    }
    places.bytes = used;
    return places;
}

static void fill(const struct cuda_plan_request *request, struct cuda_plan *plan)
{
    uint32_t rows = request->batch_rows == 0 ? CUDA_DEFAULT_ROWS : request->batch_rows;
    size_t graph = CUDA_GRAPH_BYTES + (size_t)request->model->layer_count * CUDA_GRAPH_LAYER_BYTES;
    plan->rows = rows < plan->tokens ? rows : plan->tokens;
    plan->dim = request->model->dim;
    plan->places = lay_out(request, plan->tokens, plan->rows);
    plan->ragged_bytes = aligned(cuda_ragged_layout(plan->tokens, plan->rows).bytes);
    plan->pinned_bytes = request->slots * (plan->ragged_bytes + aligned(output_bytes(plan->rows, plan->dim)));
    plan->graph_bytes = request->graphs * graph;
    plan->total_bytes = request->weight_bytes + plan->places.bytes + request->workspace_bytes + plan->graph_bytes;
}

enum status cuda_plan_halve(const struct cuda_plan_request *request, struct cuda_plan *plan, struct err *err)
{
    uint32_t least = cuda_bucket_tokens(request->model->max_tokens);
    if (plan->tokens <= least)
        return err_set(err, STATUS_NO_MEMORY,
                       "no device memory for one text of %u tokens: it takes %zu MiB (weights %zu, activations %zu), "
                       "and %zu may be taken",
                       request->model->max_tokens, plan->total_bytes >> 20, request->weight_bytes >> 20,
                       plan->places.bytes >> 20, request->available_bytes >> 20);
    uint32_t half = cuda_bucket_tokens(plan->tokens / 2);
    plan->tokens = half > least ? half : least;
    plan->halvings++;
    fill(request, plan);
    return STATUS_OK;
}

uint32_t cuda_plan_tokens(const struct cuda_plan_request *request)
{
    uint32_t asked = request->batch_tokens == 0 ? CUDA_DEFAULT_TOKENS : request->batch_tokens;
    uint32_t least = request->model->max_tokens;
    return cuda_bucket_tokens(asked > least ? asked : least);
}

enum status cuda_plan_make(const struct cuda_plan_request *request, struct cuda_plan *out, struct err *err)
{
    *out = (struct cuda_plan){.tokens = cuda_plan_tokens(request)};
    fill(request, out);
    while (out->total_bytes > request->available_bytes)
        TRY(cuda_plan_halve(request, out, err));
    return STATUS_OK;
}
