#include "engine/cuda_pass.h"

#include "base/log.h"

static enum status check(const struct backend_stream *stream, cudaError_t answer, const char *what, struct err *err)
{
    return cuda_check(stream->cuda->api, answer, what, err);
}

enum status cuda_select(const struct cuda_backend *cuda, struct err *err)
{
    return cuda_check(cuda->api, cuda->api->cudaSetDevice(cuda->device.number), "selecting a GPU", err);
}

static enum status say_lost(const struct backend_stream *stream, struct err *err)
{
    return err_set(err, STATUS_DEVICE_LOST, "GPU %d (%s) was lost", stream->cuda->device.number,
                   stream->cuda->device.name);
}

/* After a pass that was begun and not submitted: ends its capture, and waits for what it had enqueued, since its slot
 * is given to the next pass. */
static enum status forget(struct backend_stream *stream, struct err *err)
{
    const struct cuda_api *api = stream->cuda->api;
    stream->begun = false;
    if (stream->capturing) {
        cudaGraph_t graph = NULL;
        stream->capturing = false;
        (void)api->cudaStreamEndCapture(stream->device.compute, &graph);
        if (graph != NULL)
            (void)api->cudaGraphDestroy(graph);
        (void)api->cudaGetLastError();
    }
    return stream->lost ? say_lost(stream, err) : cuda_stream_drain(&stream->device, err);
}

/* What an error means for the passes to come: a lost device answers nothing any more; without memory, graphs are the
 * first to go. */
static enum status ended(struct backend_stream *stream, enum status status)
{
    if (status == STATUS_DEVICE_LOST)
        stream->lost = true;
    if (status == STATUS_NO_MEMORY && forget(stream, NULL) == STATUS_OK)
        cuda_graphs_drop(&stream->graphs);
    return status;
}

/* --- what a pass is made of ----------------------------------------------------------------------------------------
 */

static const struct model *model_of(const struct backend_stream *stream)
{
    return stream->cuda->backend.model;
}

static bool first_tokens_only(const struct backend_stream *stream, uint32_t layer)
{
    return model_of(stream)->pooling == POOLING_CLS && layer + 1 == model_of(stream)->layer_count;
}

static void *place(const struct backend_stream *stream, size_t at)
{
    return stream->device.memory + at;
}

/* A matrix with its number of rows: as it is launched for, and as it is in this pass, on the device. */
struct extent {
    void *x;
    uint32_t bound;
    const uint32_t *count;
};

static struct extent all_tokens(const struct backend_stream *stream)
{
    return (struct extent){place(stream, stream->device.plan.places.x), stream->bucket->tokens,
                           stream->ragged.counts + KERNEL_COUNT_TOKENS};
}

static struct extent first_tokens(const struct backend_stream *stream)
{
    return (struct extent){place(stream, stream->device.plan.places.first), stream->bucket->rows,
                           stream->ragged.counts + KERNEL_COUNT_ROWS};
}

/* What the layer's ops behind attention work on. */
static struct extent behind_attention(const struct backend_stream *stream, uint32_t layer)
{
    return first_tokens_only(stream, layer) ? first_tokens(stream) : all_tokens(stream);
}

struct product {
    struct gemm_shape shape;
    struct gemm_operands operands;
    uint32_t rows;
};

static struct product product_of(const struct backend_stream *stream, uint32_t layer, enum linear_site site)
{
    const struct cuda_backend *cuda = stream->cuda;
    const struct cuda_places *places = &stream->device.plan.places;
    const struct cuda_linear *linear = &cuda->weights.layers[layer].linear[site];
    struct extent extent = site == LINEAR_QKV ? all_tokens(stream) : behind_attention(stream, layer);
    struct product product = {
        .shape = {.type = cuda->weights.type, .after = GEMM_BIAS},
        .operands = {.from = extent.x, .weight = linear->weight, .bias = linear->bias, .count = extent.count},
        .rows = extent.bound,
    };
    cuda_linear_shape(model_of(stream), site, &product.shape.outputs, &product.shape.inputs);
    if (site == LINEAR_QKV || site == LINEAR_INTERMEDIATE) {
        product.operands.to = place(stream, places->wide);
    } else {
        product.operands.from = place(stream, site == LINEAR_OUTPUT ? places->wide : places->y);
        product.operands.residual = product.operands.to = extent.x;
        product.shape.after = GEMM_BIAS_RESIDUAL;
    }
    if (site == LINEAR_INTERMEDIATE)
        product.shape.after = cuda->activation_after;
    return product;
}

static const struct gemm_plan **plan_of(struct backend_stream *stream, uint32_t layer, enum linear_site site)
{
    bool first = site != LINEAR_QKV && first_tokens_only(stream, layer);
    return first ? &stream->bucket->first_plans[site] : &stream->bucket->plans[site];
}

static enum status plan_layer(struct backend_stream *stream, uint32_t layer, struct err *err)
{
    for (unsigned site = 0; site < CUDA_LINEARS; site++) {
        struct product product = product_of(stream, layer, (enum linear_site)site);
        TRY(gemm_prepare(stream->runner, &product.shape, product.rows, &product.operands,
                         plan_of(stream, layer, (enum linear_site)site), err));
    }
    return STATUS_OK;
}

/* What cuDNN has no plan for, our kernel does. */
static enum status plan_attention(struct backend_stream *stream, struct err *err)
{
    struct cuda_bucket *bucket = stream->bucket;
    if (stream->cudnn == NULL)
        return STATUS_OK;
    enum status status = cudnn_find(stream->cudnn, bucket->rows, bucket->longest, &bucket->attention, err);
    if (status == STATUS_DEVICE_LOST)
        return status;
    if (status != STATUS_OK)
        log_warn("cudnn_passed_over", log_int("rows", bucket->rows), log_int("longest", bucket->longest),
                 log_str("reason", err->message));
    return STATUS_OK;
}

/* Plans every op of a new bucket: all layers are like the first one, but for the last of a CLS-pooled model. */
static enum status plan_bucket(struct backend_stream *stream, struct err *err)
{
    TRY(plan_layer(stream, 0, err));
    TRY(plan_layer(stream, model_of(stream)->layer_count - 1, err));
    return plan_attention(stream, err);
}

/* --- the forward pass ----------------------------------------------------------------------------------------------
 */

static uint32_t longest_of(const struct pass *pass)
{
    uint32_t longest = 0;
    for (uint32_t row = 0; row < pass->rows; row++)
        longest = pass->length[row] > longest ? pass->length[row] : longest;
    return longest;
}

static enum status find_bucket(struct backend_stream *stream, const struct pass *pass, struct err *err)
{
    const struct cuda_plan *plan = &stream->device.plan;
    uint32_t tokens = cuda_bucket_tokens(pass->extent), rows = plan->rows < tokens ? plan->rows : tokens;
    uint32_t longest = 0;
    if (model_of(stream)->pooling == POOLING_CLS || stream->cudnn != NULL)
        rows = cuda_bucket_rows(pass->rows, rows);
    if (stream->cudnn != NULL)
        longest = cuda_bucket_rows(longest_of(pass), model_of(stream)->max_tokens);
    TRY(cuda_graphs_find(&stream->graphs, tokens, rows, longest, &stream->bucket, err));
    stream->bucket->last_pass = stream->passes++;
    bool captures = stream->graphs.most > 0 && !(stream->cudnn_direct && stream->bucket->attention != NULL);
    stream->mode = PASS_DIRECT;
    if (stream->bucket->graph != NULL)
        stream->mode = PASS_REPLAY;
    else if (stream->bucket->warm && captures)
        stream->mode = PASS_CAPTURE;
    return STATUS_OK;
}

static enum status embed_tokens(struct backend_stream *stream, struct err *err)
{
    const struct model *model = model_of(stream);
    const struct cuda_weights *weights = &stream->cuda->weights;
    struct kernel_embed_norm_args args = {
        .type = weights->type,
        .bound = stream->bucket->tokens,
        .hidden = model->hidden,
        .vocabulary = model->vocabulary,
        .positions = model->max_tokens,
        .epsilon = model->layer_norm_eps,
        .ragged = stream->ragged,
        .word = weights->word,
        .place = weights->place,
        .gain = weights->embedding_norm.gain,
        .shift = weights->embedding_norm.shift,
        .to = all_tokens(stream).x,
    };
    return check(stream, kernel_embed_norm(&stream->queue, &args), "embedding", err);
}

static enum status begin_pass(struct backend_stream *stream, const struct pass *pass, struct err *err)
{
    if (stream->lost)
        return say_lost(stream, err);
    TRY(cuda_select(stream->cuda, err));
    if (stream->begun)
        TRY(forget(stream, err));
    stream->begun = true;
    TRY(find_bucket(stream, pass, err));
    struct cuda_ragged_layout layout = cuda_ragged_layout(stream->bucket->tokens, stream->bucket->rows,
                                                          stream->cudnn == NULL ? 0 : model_of(stream)->hidden);
    stream->ragged = cuda_ragged_view(&layout, place(stream, stream->device.plan.places.ragged));
    stream->cudnn_rows = cuda_ragged_cudnn(&layout, place(stream, stream->device.plan.places.ragged));
    if (!stream->bucket->planned)
        TRY(plan_bucket(stream, err));
    stream->bucket->planned = true;
    stream->slot = cuda_stream_slot(&stream->device);
    TRY(cuda_stream_bring(&stream->device, stream->slot, &layout, pass, err));
    if (stream->mode == PASS_REPLAY)
        return STATUS_OK;
    if (stream->mode == PASS_CAPTURE) {
        TRY(check(stream,
                  stream->cuda->api->cudaStreamBeginCapture(stream->device.compute, cudaStreamCaptureModeThreadLocal),
                  "beginning a graph", err));
        stream->capturing = true;
    }
    return embed_tokens(stream, err);
}

enum status cuda_pass_embed(struct backend_stream *stream, const struct pass *pass, struct err *err)
{
    return ended(stream, begin_pass(stream, pass, err));
}

static enum status multiply(struct backend_stream *stream, uint32_t layer, enum linear_site site, struct err *err)
{
    const struct cuda_backend *cuda = stream->cuda;
    struct product product = product_of(stream, layer, site);
    TRY(gemm_run(stream->runner, *plan_of(stream, layer, site), &product.operands, err));
    if (product.shape.after != GEMM_ALONE)
        return STATUS_OK;
    struct kernel_activate_args args = {
        .type = product.shape.type,
        .activation = cuda->activation,
        .bound = product.rows,
        .width = product.shape.outputs,
        .count = product.operands.count,
        .bias = product.operands.bias,
        .x = product.operands.to,
    };
    return check(stream, kernel_activate(&stream->queue, &args), "activation", err);
}

enum status cuda_pass_linear(struct backend_stream *stream, uint32_t layer, enum linear_site site, struct err *err)
{
    return stream->mode == PASS_REPLAY ? STATUS_OK : ended(stream, multiply(stream, layer, site, err));
}

static enum status without_graphs(struct backend_stream *stream, enum status status)
{
    stream->cudnn_direct = true;
    return status;
}

/* By cuDNN. A plan that fails when it is run is given up for our kernel; one that has run and cannot be captured stays,
 * and is the reason for no more graphs with it: the pass that was being captured is lost, once. */
static enum status attend_cudnn(struct backend_stream *stream, struct err *err)
{
    const struct cuda_places *places = &stream->device.plan.places;
    enum status status = cudnn_run(stream->cudnn, stream->bucket->attention, &stream->cudnn_rows,
                                   place(stream, places->wide), place(stream, places->y), err);
    if (status == STATUS_OK || status == STATUS_DEVICE_LOST)
        return status;
    if (stream->capturing)
        return without_graphs(stream, status);
    stream->bucket->attention = NULL;
    log_warn("cudnn_passed_over", log_int("rows", stream->bucket->rows), log_int("longest", stream->bucket->longest),
             log_str("reason", err->message));
    return STATUS_OK;
}

static enum status attend(struct backend_stream *stream, uint32_t layer, struct err *err)
{
    const struct model *model = model_of(stream);
    const struct cuda_places *places = &stream->device.plan.places;
    bool first_only = first_tokens_only(stream, layer);
    struct kernel_attention_args args = {
        .type = stream->cuda->weights.type,
        .bound = first_only ? stream->bucket->rows : kernel_tiles_bound(stream->bucket->tokens, stream->bucket->rows),
        .heads = model->heads,
        .head_dim = model->hidden / model->heads,
        .scale = 1.0f, /* it is in the query's weights */
        .first_only = first_only,
        .ragged = stream->ragged,
        .qkv = place(stream, places->wide),
        .context = place(stream, places->y),
    };
    if (!first_only && stream->bucket->attention != NULL)
        TRY(attend_cudnn(stream, err));
    if (first_only || stream->bucket->attention == NULL)
        TRY(check(stream, kernel_attention(&stream->queue, &args), "attention", err));
    if (!first_only)
        return STATUS_OK;
    struct kernel_gather_args gather = {
        .type = args.type,
        .bound = stream->bucket->rows,
        .hidden = model->hidden,
        .ragged = stream->ragged,
        .from = place(stream, places->x),
        .to = place(stream, places->first),
    };
    return check(stream, kernel_gather(&stream->queue, &gather), "gathering first tokens", err);
}

enum status cuda_pass_attention(struct backend_stream *stream, uint32_t layer, struct err *err)
{
    return stream->mode == PASS_REPLAY ? STATUS_OK : ended(stream, attend(stream, layer, err));
}

static enum status normalize(struct backend_stream *stream, uint32_t layer, enum norm_site site, struct err *err)
{
    const struct model *model = model_of(stream);
    const struct cuda_norm *norm = &stream->cuda->weights.layers[layer].norm[site];
    struct extent extent = behind_attention(stream, layer);
    struct kernel_norm_args args = {
        .type = stream->cuda->weights.type,
        .bound = extent.bound,
        .hidden = model->hidden,
        .epsilon = model->layer_norm_eps,
        .count = extent.count,
        .from = extent.x,
        .gain = norm->gain,
        .shift = norm->shift,
        .to = extent.x,
    };
    return check(stream, kernel_norm(&stream->queue, &args), "normalising", err);
}

enum status cuda_pass_norm(struct backend_stream *stream, uint32_t layer, enum norm_site site, struct err *err)
{
    return stream->mode == PASS_REPLAY ? STATUS_OK : ended(stream, normalize(stream, layer, site, err));
}

/* Turns what was captured into the bucket's graph. */
static enum status end_capture(struct backend_stream *stream, struct err *err)
{
    const struct cuda_api *api = stream->cuda->api;
    cudaGraph_t captured = NULL;
    stream->capturing = false;
    enum status status =
        check(stream, api->cudaStreamEndCapture(stream->device.compute, &captured), "ending a graph", err);
    if (status == STATUS_INTERNAL && stream->bucket->attention != NULL)
        return without_graphs(stream, status);
    TRY(status);
    uint64_t running = stream->passes - 1 - stream->device.waiting;
    TRY(cuda_graphs_keep(&stream->graphs, stream->bucket, captured, stream->device.compute, running, err));
    atomic_fetch_add(&stream->cuda->backend.counters->graphs_captured, 1);
    return STATUS_OK;
}

/* The vectors go into the slot, so the graph of all before is the same for every slot. Nobody asks for `finite`: the
 * encoder looks at the vectors themselves, whatever the backend. */
static enum status pool_rows(struct backend_stream *stream, struct err *err)
{
    const struct model *model = model_of(stream);
    bool gathered = model->pooling == POOLING_CLS;
    struct kernel_pool_args args = {
        .type = stream->cuda->weights.type,
        .pooling = gathered ? KERNEL_POOL_GATHERED : KERNEL_POOL_MEAN,
        .output_type = KERNEL_F32,
        .bound = stream->slot->pass->rows,
        .hidden = model->hidden,
        .dim = model->dim,
        .ragged = stream->ragged,
        .x = gathered ? first_tokens(stream).x : all_tokens(stream).x,
        .output = stream->slot->output,
        .finite = stream->slot->finite,
    };
    return check(stream, kernel_pool(&stream->queue, &args), "pooling", err);
}

static enum status end_pass(struct backend_stream *stream, struct err *err)
{
    if (stream->mode == PASS_CAPTURE)
        TRY(end_capture(stream, err));
    if (stream->bucket->attention != NULL)
        atomic_fetch_add(&stream->cuda->backend.counters->cudnn_passes, 1);
    if (stream->mode != PASS_DIRECT) {
        TRY(check(stream, stream->cuda->api->cudaGraphLaunch(stream->bucket->graph, stream->device.compute),
                  "launching a graph", err));
        atomic_fetch_add(&stream->cuda->backend.counters->graph_launches, 1);
    }
    return pool_rows(stream, err);
}

enum status cuda_pass_pool(struct backend_stream *stream, struct err *err)
{
    return ended(stream, end_pass(stream, err));
}

enum status cuda_pass_submit(struct backend_stream *stream, struct err *err)
{
    TRY(ended(stream, cuda_stream_deliver(&stream->device, stream->slot, err)));
    stream->bucket->warm = true;
    stream->begun = false;
    return STATUS_OK;
}

enum status cuda_pass_wait(struct backend_stream *stream, struct err *err)
{
    enum status status = stream->lost ? say_lost(stream, err) : cuda_select(stream->cuda, err);
    if (status == STATUS_OK)
        return ended(stream, cuda_stream_wait(&stream->device, err));
    cuda_stream_skip(&stream->device);
    return ended(stream, status);
}

void cuda_pass_forget(struct backend_stream *stream)
{
    (void)forget(stream, NULL);
}
