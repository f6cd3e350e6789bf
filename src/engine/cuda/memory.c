#include "engine/cuda/memory.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"

/* --- the batch as one block --- */

static size_t aligned16(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

struct cuda_ragged_layout cuda_ragged_layout(uint32_t tokens, uint32_t rows)
{
    struct cuda_ragged_layout layout;
    layout.start = aligned16(KERNEL_COUNTS * sizeof(uint32_t));
    layout.length = layout.start + aligned16(rows * sizeof(uint32_t));
    layout.ids = layout.length + aligned16(rows * sizeof(uint32_t));
    layout.position = layout.ids + aligned16(tokens * sizeof(int32_t));
    layout.tiles = layout.position + aligned16(tokens * sizeof(uint32_t));
    layout.bytes = layout.tiles + kernel_tiles_bound(tokens, rows) * sizeof(struct kernel_tile);
    layout.span = (struct kernel_span){0, 0};
    return layout;
}

static void fill_tokens(const struct pass *pass, const uint32_t *start, int32_t *ids, uint32_t *position)
{
    uint32_t end = 0; /* of the part written */
    for (uint32_t row = 0; row < pass->rows; row++) {
        uint32_t at = start[row], length = pass->length[row];
        if (at > end) {
            memset(ids + end, 0, (at - end) * sizeof *ids);
            memset(position + end, 0, (at - end) * sizeof *position);
        }
        memcpy(ids + at, pass->ids + at, length * sizeof *ids);
        uint32_t second = pass->second && pass->second[row] > 0 ? pass->second[row] : length;
        uint32_t next = pass->position_offset > 0;
        for (uint32_t t = 0; t < length; t++) {
            position[at + t] =
                next_position_row(pass->position_offset, ids[at + t], &next) + (t < second ? 0 : pass->second_row);
        }
        end = at + length;
    }
    if (pass->extent > end) {
        memset(ids + end, 0, (pass->extent - end) * sizeof *ids);
        memset(position + end, 0, (pass->extent - end) * sizeof *position);
    }
}

size_t cuda_ragged_fill(const struct cuda_ragged_layout *layout, const struct pass *pass, void *block)
{
    char *base = block;
    uint32_t *counts = block, *start = (uint32_t *)(void *)(base + layout->start);
    struct kernel_tile *tiles = (struct kernel_tile *)(void *)(base + layout->tiles);
    for (uint32_t row = 0; row < pass->rows; row++) { start[row] = pass->start[row] - pass->origin; }
    memcpy(base + layout->length, pass->length, pass->rows * sizeof(uint32_t));
    fill_tokens(pass, start, (int32_t *)(void *)(base + layout->ids), (uint32_t *)(void *)(base + layout->position));
    counts[KERNEL_COUNT_ROWS] = pass->rows;
    counts[KERNEL_COUNT_TOKENS] = pass->extent;
    counts[KERNEL_COUNT_TILES] =
        kernel_spans_fill(start, pass->length, pass->rows, layout->span, tiles, &counts[KERNEL_COUNT_SPANS]);
    return layout->tiles + counts[KERNEL_COUNT_TILES] * sizeof *tiles;
}

struct kernel_ragged cuda_ragged_view(const struct cuda_ragged_layout *layout, const void *block)
{
    const char *base = block;
    return (struct kernel_ragged){
        .counts = block,
        .ids = (const int32_t *)(const void *)(base + layout->ids),
        .position = (const uint32_t *)(const void *)(base + layout->position),
        .start = (const uint32_t *)(const void *)(base + layout->start),
        .length = (const uint32_t *)(const void *)(base + layout->length),
        .tiles = (const struct kernel_tile *)(const void *)(base + layout->tiles),
    };
}

/* --- the plan --- */

uint32_t cuda_bucket_tokens(uint32_t tokens)
{
    uint32_t step = 8;
    while (tokens / step >= 32) { step *= 2; }
    return (tokens + step - 1) / step * step;
}

uint32_t cuda_bucket_rows(uint32_t rows, uint32_t most)
{
    uint32_t bucket = 8;
    while (bucket < rows) { bucket *= 2; }
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

/* Reserves the next part of the block and returns its offset. */
static size_t part(size_t *used, size_t bytes)
{
    size_t at = *used;
    *used += aligned(bytes);
    return at;
}

/* Vectors, and a flag for each row. */
static size_t output_bytes(uint32_t rows, uint32_t hidden)
{
    return rows * (hidden * sizeof(float) + sizeof(uint32_t));
}

static struct cuda_offsets lay_out(const struct cuda_plan_request *request, uint32_t tokens, uint32_t rows)
{
    const struct model *model = request->model;
    size_t element = request->element_bytes, used = 0, hidden = element * model->hidden;
    size_t query = element * model_query_width(model), key = element * model_key_width(model);
    size_t inner = element * model->intermediate_size;
    size_t wide = larger(larger(hidden, query + 2 * key), model->gated ? 2 * inner : inner);
    size_t ragged = cuda_ragged_layout(tokens, rows).bytes;
    struct cuda_offsets offsets = {
        .x = part(&used, tokens * hidden),
        .y = part(&used, tokens * larger(hidden, query)),
        .wide = part(&used, tokens * wide),
    };
    offsets.gated = part(&used, model->gated ? tokens * inner : 0);
    offsets.first = part(&used, model->pooling == POOLING_CLS ? rows * hidden : 0);
    offsets.ragged = part(&used, ragged);
    for (unsigned slot = 0; slot < request->slots; slot++) {
        offsets.slot_ragged[slot] = part(&used, ragged);
        offsets.slot_output[slot] = part(&used, output_bytes(rows, model->hidden));
    }
    offsets.bytes = used;
    return offsets;
}

static void fill(const struct cuda_plan_request *request, struct cuda_plan *plan)
{
    uint32_t rows = request->batch_rows == 0 ? CUDA_DEFAULT_ROWS : request->batch_rows;
    size_t graph = CUDA_GRAPH_BYTES + (size_t)request->model->layer_count * CUDA_GRAPH_LAYER_BYTES;
    plan->rows = rows < plan->tokens ? rows : plan->tokens;
    plan->hidden = request->model->hidden;
    plan->offsets = lay_out(request, plan->tokens, plan->rows);
    plan->ragged_bytes = aligned(cuda_ragged_layout(plan->tokens, plan->rows).bytes);
    plan->pinned_bytes = request->slots * (plan->ragged_bytes + aligned(output_bytes(plan->rows, plan->hidden)));
    plan->graph_bytes = request->graphs * graph;
    plan->total_bytes = request->weight_bytes + plan->offsets.bytes + request->workspace_bytes + plan->graph_bytes;
}

enum status cuda_plan_halve(const struct cuda_plan_request *request, struct cuda_plan *plan, struct err *err)
{
    uint32_t least = cuda_bucket_tokens(request->model->max_tokens);
    if (plan->tokens <= least) {
        return err_set(err, STATUS_NO_MEMORY,
                       "no device memory for one text of %u tokens: it takes %zu MiB (weights %zu, activations %zu), "
                       "and %zu may be taken",
                       request->model->max_tokens, plan->total_bytes >> 20, request->weight_bytes >> 20,
                       plan->offsets.bytes >> 20, request->available_bytes >> 20);
    }
    uint32_t half = cuda_bucket_tokens(plan->tokens / 2);
    plan->tokens = half > least ? half : least;
    plan->halvings++;
    fill(request, plan);
    return STATUS_OK;
}

/* The tokens of a pass if memory suffices. */
static uint32_t plan_tokens(const struct cuda_plan_request *request)
{
    uint32_t asked = request->batch_tokens == 0 ? CUDA_DEFAULT_TOKENS : request->batch_tokens;
    uint32_t least = request->model->max_tokens;
    return cuda_bucket_tokens(asked > least ? asked : least);
}

enum status cuda_plan_make(const struct cuda_plan_request *request, struct cuda_plan *out, struct err *err)
{
    *out = (struct cuda_plan){.tokens = plan_tokens(request)};
    fill(request, out);
    while (out->total_bytes > request->available_bytes) { TRY(cuda_plan_halve(request, out, err)); }
    return STATUS_OK;
}

/* A single text takes some hundred microseconds. The thread polls a little longer than that, because a sleeping thread
 * wakes late. */
enum { POLL_NS = 1000000 };

static enum status check(const struct cuda_memory *memory, cudaError_t answer, const char *what, struct err *err)
{
    return cuda_check(memory->api, answer, what, err);
}

/* --- open and close --- */

static enum status reserve(struct cuda_memory *memory, struct err *err)
{
    const struct cuda_api *api = memory->api;
    void *block;
    TRY(check(memory, api->cudaMalloc(&block, memory->plan.offsets.bytes), "memory for a pass", err));
    memory->device = block;
    TRY(check(memory, api->cudaHostAlloc(&block, memory->plan.pinned_bytes, cudaHostAllocDefault),
              "pinned memory for a pass", err));
    memory->pinned = block;
    return STATUS_OK;
}

static void give_back(struct cuda_memory *memory)
{
    if (memory->device) { (void)memory->api->cudaFree(memory->device); }
    if (memory->pinned) { (void)memory->api->cudaFreeHost(memory->pinned); }
    memory->device = memory->pinned = NULL;
}

static void place_slots(struct cuda_memory *memory)
{
    const struct cuda_plan *plan = &memory->plan;
    for (unsigned i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_slot *slot = &memory->slots[i];
        slot->ragged = memory->device + plan->offsets.slot_ragged[i];
        slot->output = (float *)(void *)(memory->device + plan->offsets.slot_output[i]);
        char *pinned = memory->pinned + plan->pinned_bytes / CUDA_SLOTS * i;
        slot->ragged_host = pinned;
        slot->output_host = (float *)(void *)(pinned + plan->ragged_bytes);
    }
}

static enum status make_events(struct cuda_memory *memory, struct err *err)
{
    const struct cuda_api *api = memory->api;
    static const char what[] = "events of a stream";
    for (unsigned i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_slot *slot = &memory->slots[i];
        TRY(check(memory, api->cudaEventCreateWithFlags(&slot->arrived, cudaEventDisableTiming), what, err));
        TRY(check(memory, api->cudaEventCreateWithFlags(&slot->computed, cudaEventDisableTiming), what, err));
        TRY(check(memory,
                  api->cudaEventCreateWithFlags(&slot->delivered, cudaEventDisableTiming | cudaEventBlockingSync), what,
                  err));
    }
    return STATUS_OK;
}

/* Kernels compute on gaps too, so memory starts zeroed. */
static enum status make_all(struct cuda_memory *memory, const struct cuda_plan_request *request, struct err *err)
{
    const struct cuda_api *api = memory->api;
    static const char what[] = "opening a stream";
    enum status status;
    while ((status = reserve(memory, err)) == STATUS_NO_MEMORY) {
        give_back(memory);
        TRY(cuda_plan_halve(request, &memory->plan, err));
    }
    TRY(status);
    place_slots(memory);
    TRY(check(memory, api->cudaStreamCreateWithFlags(&memory->in, cudaStreamNonBlocking), what, err));
    TRY(check(memory, api->cudaStreamCreateWithFlags(&memory->compute, cudaStreamNonBlocking), what, err));
    TRY(check(memory, api->cudaStreamCreateWithFlags(&memory->out, cudaStreamNonBlocking), what, err));
    TRY(make_events(memory, err));
    TRY(check(memory, api->cudaMemsetAsync(memory->device, 0, memory->plan.offsets.bytes, memory->compute), what, err));
    return check(memory, api->cudaStreamSynchronize(memory->compute), what, err);
}

enum status cuda_memory_open(const struct cuda_api *api, const struct cuda_plan_request *request,
                             const struct cuda_plan *plan, struct cuda_memory *out, struct err *err)
{
    *out = (struct cuda_memory){.api = api, .plan = *plan};
    enum status status = make_all(out, request, err);
    if (status != STATUS_OK) { cuda_memory_close(out); }
    return status;
}

void cuda_memory_close(struct cuda_memory *memory)
{
    const struct cuda_api *api = memory->api;
    cudaStream_t *const streams[] = {&memory->in, &memory->compute, &memory->out};
    for (int i = 0; i < 3; i++) {
        if (*streams[i]) { (void)api->cudaStreamSynchronize(*streams[i]); }
    }
    for (unsigned i = 0; i < CUDA_SLOTS; i++) {
        const cudaEvent_t events[] = {memory->slots[i].arrived, memory->slots[i].computed, memory->slots[i].delivered};
        for (int e = 0; e < 3; e++) {
            if (events[e]) { (void)api->cudaEventDestroy(events[e]); }
        }
    }
    for (int i = 0; i < 3; i++) {
        if (*streams[i]) { (void)api->cudaStreamDestroy(*streams[i]); }
    }
    give_back(memory);
    *memory = (struct cuda_memory){0};
}

/* --- passes --- */

enum status cuda_memory_drain(struct cuda_memory *memory, struct err *err)
{
    static const char what[] = "waiting for a stream";
    TRY(check(memory, memory->api->cudaStreamSynchronize(memory->in), what, err));
    TRY(check(memory, memory->api->cudaStreamSynchronize(memory->compute), what, err));
    return check(memory, memory->api->cudaStreamSynchronize(memory->out), what, err);
}

struct cuda_slot *cuda_memory_slot(struct cuda_memory *memory)
{
    assert(memory->waiting < CUDA_SLOTS);
    return &memory->slots[(memory->first + memory->waiting) % CUDA_SLOTS];
}

uint32_t *cuda_memory_flags(const struct cuda_memory *memory, const struct cuda_slot *slot, float *output)
{
    return (uint32_t *)(void *)(output + (size_t)slot->pass->rows * memory->plan.hidden);
}

enum status cuda_memory_copy_in(struct cuda_memory *memory, struct cuda_slot *slot,
                                const struct cuda_ragged_layout *layout, const struct pass *pass, struct err *err)
{
    const struct cuda_api *api = memory->api;
    static const char what[] = "copying a batch to the device";
    void *block = memory->device + memory->plan.offsets.ragged;
    size_t bytes = cuda_ragged_fill(layout, pass, slot->ragged_host);
    slot->pass = pass;
    TRY(check(memory, api->cudaMemcpyAsync(slot->ragged, slot->ragged_host, bytes, cudaMemcpyHostToDevice, memory->in),
              what, err));
    TRY(check(memory, api->cudaEventRecord(slot->arrived, memory->in), what, err));
    TRY(check(memory, api->cudaStreamWaitEvent(memory->compute, slot->arrived, 0), what, err));
    return check(memory, api->cudaMemcpyAsync(block, slot->ragged, bytes, cudaMemcpyDeviceToDevice, memory->compute),
                 what, err);
}

enum status cuda_memory_copy_out(struct cuda_memory *memory, struct cuda_slot *slot, struct err *err)
{
    const struct cuda_api *api = memory->api;
    static const char what[] = "copying vectors from the device";
    size_t bytes = output_bytes(slot->pass->rows, memory->plan.hidden);
    TRY(check(memory, api->cudaEventRecord(slot->computed, memory->compute), what, err));
    TRY(check(memory, api->cudaStreamWaitEvent(memory->out, slot->computed, 0), what, err));
    TRY(check(memory, api->cudaMemcpyAsync(slot->output_host, slot->output, bytes, cudaMemcpyDeviceToHost, memory->out),
              what, err));
    TRY(check(memory, api->cudaEventRecord(slot->delivered, memory->out), what, err));
    memory->waiting++;
    return STATUS_OK;
}

static enum status await(const struct cuda_memory *memory, cudaEvent_t event, struct err *err)
{
    static const char what[] = "waiting for a batch";
    uint64_t until_ns = clock_now_ns() + POLL_NS;
    cudaError_t answer;
    do {
        answer = memory->api->cudaEventQuery(event);
    } while (answer == cudaErrorNotReady && clock_now_ns() < until_ns);
    if (answer == cudaErrorNotReady) { answer = memory->api->cudaEventSynchronize(event); }
    return check(memory, answer, what, err);
}

void cuda_memory_skip(struct cuda_memory *memory)
{
    assert(memory->waiting > 0);
    memory->first = (memory->first + 1) % CUDA_SLOTS;
    memory->waiting--;
}

enum status cuda_memory_wait(struct cuda_memory *memory, struct err *err)
{
    const struct cuda_slot *slot = &memory->slots[memory->first];
    enum status status = await(memory, slot->delivered, err);
    memory->finite = false;
    if (status == STATUS_OK) {
        const uint32_t *flags = cuda_memory_flags(memory, slot, slot->output_host), rows = slot->pass->rows;
        memcpy(slot->pass->output, slot->output_host, (size_t)rows * memory->plan.hidden * sizeof(float));
        memory->finite = true;
        for (uint32_t r = 0; r < rows; r++) { memory->finite = memory->finite && flags[r] != 0; }
    }
    cuda_memory_skip(memory);
    return status;
}
