#include "engine/cuda_pass.h"

#include <assert.h>

#include "base/log.h"
#include "engine/cuda_ops.h"

static enum status check(const struct backend_workspace *stream, cudaError_t answer, const char *what, struct err *err)
{
    return cuda_check(stream->cuda->api, answer, what, err);
}

enum status cuda_select(const struct cuda_backend *cuda, struct err *err)
{
    return cuda_check(cuda->api, cuda->api->cudaSetDevice(cuda->device.number), "selecting a GPU", err);
}

static enum status say_lost(const struct backend_workspace *stream, struct err *err)
{
    return err_set(err, STATUS_DEVICE_LOST, "GPU %d (%s) was lost", stream->cuda->device.number,
                   stream->cuda->device.name);
}

/* Ends a capture of which no graph is made. */
static void drop_capture(struct backend_workspace *stream)
{
    const struct cuda_api *api = stream->cuda->api;
    cudaGraph_t graph = NULL;
    if (!stream->capturing) {
        return;
    }
    stream->capturing = false;
    (void)api->cudaStreamEndCapture(stream->device.compute, &graph);
    if (graph != NULL) {
        (void)api->cudaGraphDestroy(graph);
    }
    (void)api->cudaGetLastError();
}

/* After a pass that was begun and not submitted: ends its capture, and waits for what it had enqueued, since its slot
 * is given to the next pass. */
static enum status forget(struct backend_workspace *stream, struct err *err)
{
    stream->begun = false;
    drop_capture(stream);
    return stream->lost ? say_lost(stream, err) : cuda_stream_drain(&stream->device, err);
}

/* What an error means for the passes to come: a lost device answers nothing any more; without memory, graphs are the
 * first to go. */
static enum status ended(struct backend_workspace *stream, enum status status)
{
    if (status == STATUS_DEVICE_LOST)
        stream->lost = true;
    if (status == STATUS_NO_MEMORY && forget(stream, NULL) == STATUS_OK)
        cuda_graphs_drop(&stream->graphs);
    return status;
}

static enum status find_bucket(struct backend_workspace *stream, const struct pass *pass, struct err *err)
{
    const struct model *model = stream->cuda->backend.model;
    const struct cuda_plan *plan = &stream->device.plan;
    uint32_t tokens = cuda_bucket_tokens(pass->extent), rows = plan->rows < tokens ? plan->rows : tokens;
    if (model->pooling == POOLING_CLS)
        rows = cuda_bucket_rows(pass->rows, rows);
    TRY(cuda_graphs_find(&stream->graphs, tokens, rows, &stream->bucket, err));
    stream->bucket->last_pass = stream->passes++;
    stream->mode = PASS_DIRECT;
    if (stream->bucket->graph != NULL)
        stream->mode = PASS_REPLAY;
    else if (stream->bucket->warm && stream->graphs.most > 0)
        stream->mode = PASS_CAPTURE;
    return STATUS_OK;
}

static enum status enqueue(struct backend_workspace *stream, const struct pass_op *op, struct err *err)
{
    switch (op->kind) {
    case OP_EMBED:
        return cuda_ops_embed(stream, err);
    case OP_LINEAR:
        return cuda_ops_linear(stream, op->layer, op->linear, err);
    case OP_ATTENTION:
        return cuda_ops_attention(stream, op->layer, err);
    case OP_NORM:
        break;
    }
    return cuda_ops_norm(stream, op->layer, op->norm, err);
}

/* What is done about a graph that could not be captured, made or launched. A lost device and a lack of memory are the
 * caller's to hear of (see ended). After anything else this stream makes no graphs any more: the next attempt would
 * fail as this one did. What there is of the pass is enqueued directly, so the batch does not notice. */
static enum status without_graph(struct backend_workspace *stream, enum status status, struct err *err)
{
    if (status == STATUS_DEVICE_LOST || status == STATUS_NO_MEMORY) {
        return status;
    }
    drop_capture(stream);
    TRY(cuda_stream_drain(&stream->device, err)); /* graphs of earlier passes may still run */
    log_warn("graphs_given_up", log_int("gpu", stream->cuda->device.number), log_int("tokens", stream->bucket->tokens),
             log_str("reason", err->message));
    atomic_fetch_add(&stream->cuda->backend.counters->graph_fallbacks, 1);
    cuda_graphs_drop(&stream->graphs);
    stream->graphs.most = 0;
    stream->mode = PASS_DIRECT;
    for (uint32_t i = 0; i < stream->op_count; i++) {
        TRY(enqueue(stream, &stream->ops[i], err));
    }
    return STATUS_OK;
}

/* Enqueues an op, or leaves it to the graph. */
static enum status add_op(struct backend_workspace *stream, struct pass_op op, struct err *err)
{
    assert(stream->op_count < CUDA_PASS_OPS(stream->cuda->backend.model->layer_count));
    stream->ops[stream->op_count++] = op;
    if (stream->mode == PASS_REPLAY) {
        return STATUS_OK;
    }
    enum status status = enqueue(stream, &op, err);
    return status == STATUS_OK || stream->mode == PASS_DIRECT ? status : without_graph(stream, status, err);
}

static enum status begin_pass(struct backend_workspace *stream, const struct pass *pass, struct err *err)
{
    if (stream->lost)
        return say_lost(stream, err);
    TRY(cuda_select(stream->cuda, err));
    if (stream->begun)
        TRY(forget(stream, err));
    stream->begun = true;
    stream->op_count = 0;
    TRY(find_bucket(stream, pass, err));
    struct cuda_ragged_layout layout = cuda_ragged_layout(stream->bucket->tokens, stream->bucket->rows);
    const void *block = stream->device.memory + stream->device.plan.places.ragged;
    stream->ragged = cuda_ragged_view(&layout, block);
    if (!stream->bucket->planned)
        TRY(cuda_ops_plan(stream, err));
    stream->bucket->planned = true;
    stream->slot = cuda_stream_slot(&stream->device);
    TRY(cuda_stream_bring(&stream->device, stream->slot, &layout, pass, err));
    if (stream->mode == PASS_CAPTURE) {
        enum status status = check(
            stream, stream->cuda->api->cudaStreamBeginCapture(stream->device.compute, cudaStreamCaptureModeThreadLocal),
            "beginning a graph", err);
        stream->capturing = status == STATUS_OK;
        TRY(status == STATUS_OK ? status : without_graph(stream, status, err));
    }
    return add_op(stream, (struct pass_op){.kind = OP_EMBED}, err);
}

enum status cuda_pass_embed(struct backend_workspace *stream, const struct pass *pass, struct err *err)
{
    return ended(stream, begin_pass(stream, pass, err));
}

enum status cuda_pass_linear(struct backend_workspace *stream, uint32_t layer, enum linear_site site, struct err *err)
{
    return ended(stream, add_op(stream, (struct pass_op){.kind = OP_LINEAR, .layer = layer, .linear = site}, err));
}

enum status cuda_pass_attention(struct backend_workspace *stream, uint32_t layer, struct err *err)
{
    return ended(stream, add_op(stream, (struct pass_op){.kind = OP_ATTENTION, .layer = layer}, err));
}

enum status cuda_pass_norm(struct backend_workspace *stream, uint32_t layer, enum norm_site site, struct err *err)
{
    return ended(stream, add_op(stream, (struct pass_op){.kind = OP_NORM, .layer = layer, .norm = site}, err));
}

/* Turns what was captured into the bucket's graph. */
static enum status end_capture(struct backend_workspace *stream, struct err *err)
{
    const struct cuda_api *api = stream->cuda->api;
    cudaGraph_t captured = NULL;
    stream->capturing = false;
    TRY(check(stream, api->cudaStreamEndCapture(stream->device.compute, &captured), "ending a graph", err));
    uint64_t running = stream->passes - 1 - stream->device.waiting;
    TRY(cuda_graphs_keep(&stream->graphs, stream->bucket, captured, stream->device.compute, running, err));
    atomic_fetch_add(&stream->cuda->backend.counters->graphs_captured, 1);
    return STATUS_OK;
}

static enum status run_graph(struct backend_workspace *stream, struct err *err)
{
    if (stream->mode == PASS_CAPTURE) {
        TRY(end_capture(stream, err));
    }
    TRY(check(stream, stream->cuda->api->cudaGraphLaunch(stream->bucket->graph, stream->device.compute),
              "launching a graph", err));
    atomic_fetch_add(&stream->cuda->backend.counters->graph_launches, 1);
    return STATUS_OK;
}

static enum status end_pass(struct backend_workspace *stream, struct err *err)
{
    if (stream->mode != PASS_DIRECT) {
        enum status status = run_graph(stream, err);
        TRY(status == STATUS_OK ? status : without_graph(stream, status, err));
    }
    return cuda_ops_pool(stream, err);
}

enum status cuda_pass_pool(struct backend_workspace *stream, struct err *err)
{
    return ended(stream, end_pass(stream, err));
}

enum status cuda_pass_submit(struct backend_workspace *stream, struct err *err)
{
    TRY(ended(stream, cuda_stream_deliver(&stream->device, stream->slot, err)));
    stream->bucket->warm = true;
    stream->begun = false;
    return STATUS_OK;
}

enum status cuda_pass_wait(struct backend_workspace *stream, struct err *err)
{
    enum status status = stream->lost ? say_lost(stream, err) : cuda_select(stream->cuda, err);
    if (status == STATUS_OK)
        return ended(stream, cuda_stream_wait(&stream->device, err));
    cuda_stream_skip(&stream->device);
    return ended(stream, status);
}

void cuda_pass_forget(struct backend_workspace *stream)
{
    (void)forget(stream, NULL);
}
