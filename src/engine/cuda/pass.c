#include "engine/cuda/pass.h"

#include <assert.h>
#include <stdlib.h>

#include "base/log.h"

static enum status check(const struct backend_workspace *stream, cudaError_t answer, const char *what, struct err *err)
{
    return cuda_check(stream->cuda->api, answer, what, err);
}

/* --- graphs --- */

static void destroy(struct cuda_graphs *graphs, struct cuda_bucket *bucket)
{
    if (bucket->graph == NULL)
        return;
    (void)graphs->api->cudaGraphExecDestroy(bucket->graph);
    bucket->graph = NULL;
    graphs->graphs--;
}

void cuda_graphs_drop(struct cuda_graphs *graphs)
{
    for (size_t i = 0; i < graphs->count; i++)
        destroy(graphs, &graphs->buckets[i]);
}

void cuda_graphs_close(struct cuda_graphs *graphs)
{
    cuda_graphs_drop(graphs);
    free(graphs->buckets);
    *graphs = (struct cuda_graphs){0};
}

static enum status grow(struct cuda_graphs *graphs, struct err *err)
{
    size_t capacity = graphs->capacity == 0 ? 32 : 2 * graphs->capacity;
    struct cuda_bucket *buckets = realloc(graphs->buckets, capacity * sizeof *buckets);
    if (buckets == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu sizes of passes", capacity);
    graphs->buckets = buckets;
    graphs->capacity = capacity;
    return STATUS_OK;
}

/* The bucket of that size, made when there is none; it may move when the next one is made.
 * Errors: STATUS_NO_MEMORY. */
static enum status find_or_add_bucket(struct cuda_graphs *graphs, uint32_t tokens, uint32_t rows,
                                      struct cuda_bucket **out, struct err *err)
{
    for (size_t i = 0; i < graphs->count; i++) {
        *out = &graphs->buckets[i];
        if ((*out)->tokens == tokens && (*out)->rows == rows)
            return STATUS_OK;
    }
    if (graphs->count == graphs->capacity)
        TRY(grow(graphs, err));
    *out = &graphs->buckets[graphs->count++];
    **out = (struct cuda_bucket){.tokens = tokens, .rows = rows};
    return STATUS_OK;
}

static struct cuda_bucket *oldest(const struct cuda_graphs *graphs)
{
    struct cuda_bucket *found = NULL;
    for (size_t i = 0; i < graphs->count; i++) {
        struct cuda_bucket *bucket = &graphs->buckets[i];
        if (bucket->graph != NULL && (found == NULL || bucket->last_pass < found->last_pass))
            found = bucket;
    }
    return found;
}

static enum status make_room(struct cuda_graphs *graphs, cudaStream_t stream, uint64_t running, struct err *err)
{
    const struct cuda_api *api = graphs->api;
    if (graphs->graphs < graphs->most)
        return STATUS_OK;
    struct cuda_bucket *goes = oldest(graphs);
    if (goes->last_pass >= running)
        TRY(cuda_check(api, api->cudaStreamSynchronize(stream), "waiting for a graph", err));
    destroy(graphs, goes);
    return STATUS_OK;
}

static enum status instantiate(struct cuda_graphs *graphs, struct cuda_bucket *bucket, cudaGraph_t captured,
                               cudaStream_t stream, struct err *err)
{
    const struct cuda_api *api = graphs->api;
    static const char what[] = "making a graph";
    enum status status = cuda_check(api, api->cudaGraphInstantiate(&bucket->graph, captured, 0), what, err);
    if (status == STATUS_NO_MEMORY && graphs->graphs > 0) {
        TRY(cuda_check(api, api->cudaStreamSynchronize(stream), "waiting for graphs", err));
        bucket->graph = NULL;
        cuda_graphs_drop(graphs);
        status = cuda_check(api, api->cudaGraphInstantiate(&bucket->graph, captured, 0), what, err);
    }
    if (status == STATUS_OK)
        graphs->graphs++;
    else
        bucket->graph = NULL;
    return status;
}

/* Makes a captured graph the bucket's, and destroys `captured`. Room is made by the graph that was used least recently;
 * when the device has no memory for one more, by all. A graph of pass `running` or a later one may still run on
 * `stream`, which is then waited for. Errors: STATUS_NO_MEMORY, STATUS_DEVICE_LOST, STATUS_INTERNAL. */
static enum status keep_graph(struct cuda_graphs *graphs, struct cuda_bucket *bucket, cudaGraph_t captured,
                              cudaStream_t stream, uint64_t running, struct err *err)
{
    enum status status = make_room(graphs, stream, running, err);
    if (status == STATUS_OK)
        status = instantiate(graphs, bucket, captured, stream, err);
    (void)graphs->api->cudaGraphDestroy(captured);
    return status;
}

/* --- what an op works on --- */

/* x is the residual stream: attention and the intermediate layer read it, and the two products that end in a residual
 * add to it in place, bias and all, before it is normalised, also in place. Of a CLS-pooled model's last layer only the
 * first token of each row is needed: these are gathered into `first`, and the layer runs on them instead of on all
 * tokens, but for keys and values. */

static const struct model *model_of(const struct backend_workspace *stream)
{
    return stream->cuda->backend.model;
}

static bool first_tokens_only(const struct backend_workspace *stream, uint32_t layer)
{
    return cuda_first_tokens_only(model_of(stream), layer);
}

static void *place(const struct backend_workspace *stream, size_t at)
{
    return stream->device.memory + at;
}

/* A matrix with its number of rows: as it is launched for, and as it is in this pass, on the device. */
struct extent {
    void *x;
    uint32_t bound;
    const uint32_t *count;
};

static struct extent all_tokens(const struct backend_workspace *stream)
{
    return (struct extent){place(stream, stream->device.plan.places.x), stream->bucket->tokens,
                           stream->ragged.counts + KERNEL_COUNT_TOKENS};
}

static struct extent first_tokens(const struct backend_workspace *stream)
{
    return (struct extent){place(stream, stream->device.plan.places.first), stream->bucket->rows,
                           stream->ragged.counts + KERNEL_COUNT_ROWS};
}

/* What the layer's ops work on, but for its keys and values. */
static struct extent extent_of(const struct backend_workspace *stream, uint32_t layer)
{
    return first_tokens_only(stream, layer) ? first_tokens(stream) : all_tokens(stream);
}

/* --- plans --- */

struct product {
    struct gemm_shape shape;
    struct gemm_operands operands;
    uint32_t rows;
};

/* Where a layer for first tokens only has its queries: behind the keys and values, at most as many. */
static void *queries_of(const struct backend_workspace *stream)
{
    size_t token = kernel_type_bytes(stream->cuda->weights.type) * model_of(stream)->hidden;
    return place(stream, stream->device.plan.places.wide + 2 * token * stream->bucket->tokens);
}

/* The queries of such a layer, out of what product_of says of any. */
static void narrow_to_queries(const struct backend_workspace *stream, struct product *product)
{
    product->shape.outputs = model_of(stream)->hidden;
    product->operands.to = queries_of(stream);
}

/* And its keys and values, for all tokens. */
static struct product keys_and_values(const struct backend_workspace *stream, uint32_t layer)
{
    const struct model *model = model_of(stream);
    const struct cuda_linear *linear = &stream->cuda->weights.layers[layer].keys_values;
    struct extent extent = all_tokens(stream);
    return (struct product){
        .shape = {2 * model->hidden, model->hidden, stream->cuda->weights.type, GEMM_BIAS},
        .operands = {.from = extent.x,
                     .weight = linear->weight,
                     .bias = linear->bias,
                     .to = place(stream, stream->device.plan.places.wide),
                     .count = extent.count},
        .rows = extent.bound,
    };
}

static struct product product_of(const struct backend_workspace *stream, uint32_t layer, enum linear_site site)
{
    const struct cuda_backend *cuda = stream->cuda;
    const struct cuda_places *places = &stream->device.plan.places;
    const struct cuda_linear *linear = &cuda->weights.layers[layer].linear[site];
    struct extent extent = extent_of(stream, layer);
    struct product product = {
        .shape = {.type = cuda->weights.type, .after = GEMM_BIAS},
        .operands = {.from = extent.x, .weight = linear->weight, .bias = linear->bias, .count = extent.count},
        .rows = extent.bound,
    };
    backend_linear_shape(model_of(stream), site, &product.shape.outputs, &product.shape.inputs);
    if (site == LINEAR_QKV || site == LINEAR_INTERMEDIATE) {
        product.operands.to = place(stream, places->wide);
    } else {
        product.operands.from = place(stream, site == LINEAR_OUTPUT ? places->wide : places->y);
        product.operands.residual = product.operands.to = extent.x;
        product.shape.after = GEMM_BIAS_RESIDUAL;
    }
    if (site == LINEAR_INTERMEDIATE)
        product.shape.after = cuda->activation_after;
    if (site == LINEAR_QKV && first_tokens_only(stream, layer))
        narrow_to_queries(stream, &product);
    return product;
}

static const struct gemm_plan **plan_of(struct backend_workspace *stream, uint32_t layer, enum linear_site site)
{
    return first_tokens_only(stream, layer) ? &stream->bucket->first_plans[site] : &stream->bucket->plans[site];
}

/* Random numbers, for products to be timed on: multiplying zeros, with which memory begins, takes a GPU less power, and
 * so less time, than it does at work. One block of them goes there from the host, and is copied until there are enough.
 */
static enum status fill_at_random(struct backend_workspace *stream, const void *from, size_t bytes, struct err *err)
{
    static const char what[] = "random numbers for products";
    enum { BLOCK = 4096 }; /* numbers */
    const struct cuda_api *api = stream->cuda->api;
    const enum kernel_type type = stream->cuda->weights.type;
    float block[BLOCK], rounded[BLOCK];
    char *to = stream->device.memory + ((const char *)from - stream->device.memory);
    size_t all = BLOCK * kernel_type_bytes(type), done = bytes < all ? bytes : all;
    uint32_t seed = 1;
    for (size_t i = 0; i < BLOCK; i++) {
        seed = seed * 1664525 + 1013904223;
        block[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    cuda_narrow(type, block, BLOCK, 1, rounded);
    cudaStream_t queue = stream->device.compute;
    TRY(check(stream, api->cudaMemcpyAsync(to, rounded, done, cudaMemcpyHostToDevice, queue), what, err));
    TRY(check(stream, api->cudaStreamSynchronize(queue), what, err)); /* the block goes with this call */
    for (size_t more; done < bytes; done += more) {
        more = done < bytes - done ? done : bytes - done;
        TRY(check(stream, api->cudaMemcpyAsync(to + done, to, more, cudaMemcpyDeviceToDevice, queue), what, err));
    }
    return STATUS_OK;
}

static enum status plan_product(struct backend_workspace *stream, const struct product *product,
                                const struct gemm_plan **out, struct err *err)
{
    size_t bytes = (size_t)product->rows * product->shape.inputs * kernel_type_bytes(product->shape.type);
    TRY(fill_at_random(stream, product->operands.from, bytes, err));
    return gemm_prepare(stream->runner, &product->shape, product->rows, &product->operands, out, err);
}

static enum status plan_layer(struct backend_workspace *stream, uint32_t layer, struct err *err)
{
    for (unsigned site = 0; site < CUDA_LINEARS; site++) {
        struct product product = product_of(stream, layer, (enum linear_site)site);
        TRY(plan_product(stream, &product, plan_of(stream, layer, (enum linear_site)site), err));
    }
    if (!first_tokens_only(stream, layer))
        return STATUS_OK;
    struct product product = keys_and_values(stream, layer);
    return plan_product(stream, &product, &stream->bucket->keys_values, err);
}

/* Plans every op of a new bucket: all layers are like the first one, but for the last of a CLS-pooled model. Times
 * products, so it is not called in a capture, and overwrites the pass's memory. */
static enum status plan_bucket(struct backend_workspace *stream, struct err *err)
{
    uint32_t last = model_of(stream)->layer_count - 1;
    TRY(plan_layer(stream, 0, err));
    return last > 0 && first_tokens_only(stream, last) ? plan_layer(stream, last, err) : STATUS_OK;
}

/* --- the ops: each enqueues on the compute stream, whether it is captured or runs --- */

static enum status enqueue_embed(struct backend_workspace *stream, struct err *err)
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

/* For a layer for first tokens only: from here on those are in `first`. */
static enum status gather_first_tokens(struct backend_workspace *stream, struct err *err)
{
    struct kernel_gather_args args = {
        .type = stream->cuda->weights.type,
        .bound = stream->bucket->rows,
        .hidden = model_of(stream)->hidden,
        .ragged = stream->ragged,
        .from = all_tokens(stream).x,
        .to = first_tokens(stream).x,
    };
    return check(stream, kernel_gather(&stream->queue, &args), "gathering first tokens", err);
}

static enum status begin_last_layer(struct backend_workspace *stream, uint32_t layer, struct err *err)
{
    struct product product = keys_and_values(stream, layer);
    TRY(gather_first_tokens(stream, err));
    return gemm_run(stream->runner, stream->bucket->keys_values, &product.operands, err);
}

static enum status enqueue_linear(struct backend_workspace *stream, uint32_t layer, enum linear_site site,
                                  struct err *err)
{
    const struct cuda_backend *cuda = stream->cuda;
    struct product product = product_of(stream, layer, site);
    if (site == LINEAR_QKV && first_tokens_only(stream, layer))
        TRY(begin_last_layer(stream, layer, err));
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

static enum status enqueue_attention(struct backend_workspace *stream, uint32_t layer, struct err *err)
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
        .ragged = stream->ragged,
        .queries = first_only ? queries_of(stream) : NULL,
        .qkv = place(stream, places->wide),
        .context = place(stream, places->y),
    };
    return check(stream, kernel_attention(&stream->queue, &args), "attention", err);
}

static enum status enqueue_norm(struct backend_workspace *stream, uint32_t layer, enum norm_site site, struct err *err)
{
    const struct model *model = model_of(stream);
    const struct cuda_norm *norm = &stream->cuda->weights.layers[layer].norm[site];
    struct extent extent = extent_of(stream, layer);
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

/* The vectors go into the slot, so the graph of all before is the same for every slot. Nobody asks for `finite`: the
 * encoder looks at the vectors themselves, whatever the backend. */
static enum status enqueue_pool(struct backend_workspace *stream, struct err *err)
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

/* --- a pass --- */

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
    TRY(find_or_add_bucket(&stream->graphs, tokens, rows, &stream->bucket, err));
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
        return enqueue_embed(stream, err);
    case OP_LINEAR:
        return enqueue_linear(stream, op->layer, op->linear, err);
    case OP_ATTENTION:
        return enqueue_attention(stream, op->layer, err);
    case OP_NORM:
        break;
    }
    return enqueue_norm(stream, op->layer, op->norm, err);
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
        TRY(plan_bucket(stream, err));
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
    TRY(keep_graph(&stream->graphs, stream->bucket, captured, stream->device.compute, running, err));
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
    return enqueue_pool(stream, err);
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
