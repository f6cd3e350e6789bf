#include "engine/cuda/pass.h"

#include <assert.h>
#include <stdlib.h>

#include "base/log.h"

static enum status check(const struct backend_workspace *workspace, cudaError_t answer, const char *what,
                         struct err *err)
{
    return cuda_check(workspace->cuda->api, answer, what, err);
}

/* --- graphs --- */

static void destroy(struct cuda_graphs *graphs, struct cuda_bucket *bucket)
{
    if (!bucket->graph) { return; }
    (void)graphs->api->cudaGraphExecDestroy(bucket->graph);
    bucket->graph = NULL;
    graphs->graphs--;
}

void cuda_graphs_drop(struct cuda_graphs *graphs)
{
    for (size_t i = 0; i < graphs->count; i++) { destroy(graphs, &graphs->buckets[i]); }
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
    if (!buckets) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu sizes of passes", capacity); }
    graphs->buckets = buckets;
    graphs->capacity = capacity;
    return STATUS_OK;
}

/* Finds or makes the bucket of a size. Making one may move the others. Errors: STATUS_NO_MEMORY. */
static enum status find_or_add_bucket(struct cuda_graphs *graphs, uint32_t tokens, uint32_t rows,
                                      struct cuda_bucket **out, struct err *err)
{
    for (size_t i = 0; i < graphs->count; i++) {
        *out = &graphs->buckets[i];
        if ((*out)->tokens == tokens && (*out)->rows == rows) { return STATUS_OK; }
    }
    if (graphs->count == graphs->capacity) { TRY(grow(graphs, err)); }
    *out = &graphs->buckets[graphs->count++];
    **out = (struct cuda_bucket){.tokens = tokens, .rows = rows};
    return STATUS_OK;
}

static struct cuda_bucket *least_recent(const struct cuda_graphs *graphs)
{
    struct cuda_bucket *found = NULL;
    for (size_t i = 0; i < graphs->count; i++) {
        struct cuda_bucket *bucket = &graphs->buckets[i];
        if (bucket->graph && (!found || bucket->last_pass < found->last_pass)) { found = bucket; }
    }
    return found;
}

static enum status make_room(struct cuda_graphs *graphs, cudaStream_t cuda_stream, uint64_t running, struct err *err)
{
    const struct cuda_api *api = graphs->api;
    if (graphs->graphs < graphs->most) { return STATUS_OK; }
    struct cuda_bucket *evicted = least_recent(graphs);
    if (evicted->last_pass >= running) {
        TRY(cuda_check(api, api->cudaStreamSynchronize(cuda_stream), "waiting for a graph", err));
    }
    destroy(graphs, evicted);
    return STATUS_OK;
}

static enum status instantiate(struct cuda_graphs *graphs, struct cuda_bucket *bucket, cudaGraph_t captured,
                               cudaStream_t cuda_stream, struct err *err)
{
    const struct cuda_api *api = graphs->api;
    static const char what[] = "making a graph";
    enum status status = cuda_check(api, api->cudaGraphInstantiate(&bucket->graph, captured, 0), what, err);
    if (status == STATUS_NO_MEMORY && graphs->graphs > 0) {
        TRY(cuda_check(api, api->cudaStreamSynchronize(cuda_stream), "waiting for graphs", err));
        bucket->graph = NULL;
        cuda_graphs_drop(graphs);
        status = cuda_check(api, api->cudaGraphInstantiate(&bucket->graph, captured, 0), what, err);
    }
    if (status == STATUS_OK) {
        graphs->graphs++;
    } else {
        bucket->graph = NULL;
    }
    return status;
}

/* Instantiates `captured` for the bucket and destroys it. At the limit the least recently used graph makes room;
 * without device memory all graphs do. If graphs of pass `running` or later may still run, waits for `cuda_stream`
 * first. Errors: STATUS_NO_MEMORY, STATUS_DEVICE_LOST, STATUS_INTERNAL. */
static enum status keep_graph(struct cuda_graphs *graphs, struct cuda_bucket *bucket, cudaGraph_t captured,
                              cudaStream_t cuda_stream, uint64_t running, struct err *err)
{
    enum status status = make_room(graphs, cuda_stream, running, err);
    if (status == STATUS_OK) { status = instantiate(graphs, bucket, captured, cuda_stream, err); }
    (void)graphs->api->cudaGraphDestroy(captured);
    return status;
}

/* --- the operands of an op --- */

/* x is the residual stream. Attention and the intermediate layer read it; the two products with a residual add to it in
 * place, bias included, and then it is normalised in place. With pre_norm it is not changed, and its normalised copy,
 * for the next product or for pooling, is in y: attention has read the copy before it writes its output to y, and the
 * output has been read before the next copy is written. If a product's output has a norm of its own before it is added
 * to x, it is written to a buffer that the product does not read: `wide` for attention's output, y for the other. The
 * last layer of a CLS-pooled model needs only the first token of each row: these are gathered into `first`, and the
 * layer runs on them, except for keys and values. */

static const struct model *model_of(const struct backend_workspace *workspace)
{
    return workspace->cuda->backend.model;
}

static bool first_tokens_only(const struct backend_workspace *workspace, uint32_t layer)
{
    return cuda_first_tokens_only(model_of(workspace), layer);
}

static void *at_offset(const struct backend_workspace *workspace, size_t at)
{
    return workspace->memory.device + at;
}

/* A matrix with its number of rows: the launch's bound, and the count of this pass in device memory. */
struct extent {
    void *x;
    uint32_t bound;
    const uint32_t *count;
};

static struct extent all_tokens(const struct backend_workspace *workspace)
{
    return (struct extent){at_offset(workspace, workspace->memory.plan.offsets.x), workspace->bucket->tokens,
                           workspace->ragged.counts + KERNEL_COUNT_TOKENS};
}

static struct extent first_tokens(const struct backend_workspace *workspace)
{
    return (struct extent){at_offset(workspace, workspace->memory.plan.offsets.first), workspace->bucket->rows,
                           workspace->ragged.counts + KERNEL_COUNT_ROWS};
}

/* The operand of the layer's ops, except keys and values. */
static struct extent extent_of(const struct backend_workspace *workspace, uint32_t layer)
{
    return first_tokens_only(workspace, layer) ? first_tokens(workspace) : all_tokens(workspace);
}

/* The input of a layer, of all tokens: x or, with pre_norm, the output of the previous layer's norm or of the
 * embeddings' norm, if there is one. */
static void *layer_input(const struct backend_workspace *workspace, uint32_t layer)
{
    const struct cuda_offsets *offsets = &workspace->memory.plan.offsets;
    const struct model *model = model_of(workspace);
    return at_offset(workspace, model->pre_norm && (layer > 0 || model->first_norm) ? offsets->y : offsets->x);
}

/* The destination of a norm of x. */
static void *normed(const struct backend_workspace *workspace, void *x)
{
    return model_of(workspace)->pre_norm ? at_offset(workspace, workspace->memory.plan.offsets.y) : x;
}

/* The output of a product that has a norm of its own, which reads it; NULL: the product adds to the residual stream
 * itself. */
static void *added_of(const struct backend_workspace *workspace, uint32_t layer, enum norm_site site)
{
    const struct cuda_offsets *offsets = &workspace->memory.plan.offsets;
    if (!workspace->cuda->weights.layers[layer].added_gain[site]) { return NULL; }
    return at_offset(workspace, site == NORM_ATTENTION ? offsets->wide : offsets->y);
}

/* --- plans of products --- */

struct gemm_args {
    struct cuda_gemm_shape shape;
    struct cuda_gemm_operands operands;
    uint32_t rows;
};

/* The queries of a first-tokens layer follow its keys and values; there are never more queries than keys or values. */
static void *queries_of(const struct backend_workspace *workspace)
{
    size_t keys = kernel_type_bytes(workspace->cuda->weights.type) * model_key_width(model_of(workspace));
    return at_offset(workspace, workspace->memory.plan.offsets.wide + 2 * keys * workspace->bucket->tokens);
}

static void narrow_to_queries(const struct backend_workspace *workspace, struct gemm_args *args)
{
    args->shape.outputs = model_query_width(model_of(workspace));
    args->operands.from = first_tokens(workspace).x;
    args->operands.to = queries_of(workspace);
}

/* The keys and values of a first-tokens layer, for all tokens. */
static struct gemm_args keys_and_values(const struct backend_workspace *workspace, uint32_t layer)
{
    const struct model *model = model_of(workspace);
    const struct cuda_linear *linear = &workspace->cuda->weights.layers[layer].keys_values;
    struct extent extent = all_tokens(workspace);
    return (struct gemm_args){
        .shape = {2 * model_key_width(model), model->hidden, workspace->cuda->weights.type, CUDA_EPILOGUE_BIAS},
        .operands = {.from = layer_input(workspace, layer),
                     .weight = linear->weight,
                     .bias = linear->bias,
                     .to = at_offset(workspace, workspace->memory.plan.offsets.wide),
                     .count = extent.count},
        .rows = extent.bound,
    };
}

static struct gemm_args gemm_args_of(const struct backend_workspace *workspace, uint32_t layer, enum linear_site site)
{
    const struct cuda_backend *cuda = workspace->cuda;
    const struct cuda_offsets *offsets = &workspace->memory.plan.offsets;
    const struct cuda_linear *linear = &cuda->weights.layers[layer].linear[site];
    struct extent extent = extent_of(workspace, layer);
    struct gemm_args args = {
        .shape = {.type = cuda->weights.type, .epilogue = CUDA_EPILOGUE_BIAS},
        .operands = {.weight = linear->weight, .bias = linear->bias, .count = extent.count},
        .rows = extent.bound,
    };
    struct cuda_gemm_operands *operands = &args.operands;
    backend_linear_shape(model_of(workspace), site, &args.shape.outputs, &args.shape.inputs);
    switch (site) {
    case LINEAR_QKV:
        operands->from = layer_input(workspace, layer);
        operands->to = at_offset(workspace, offsets->wide);
        if (first_tokens_only(workspace, layer)) { narrow_to_queries(workspace, &args); }
        break;
    case LINEAR_INTERMEDIATE:
        operands->from = normed(workspace, extent.x);
        operands->to = at_offset(workspace, offsets->wide);
        args.shape.epilogue = cuda->activation_epilogue;
        break;
    case LINEAR_ATTENTION_OUTPUT:
    case LINEAR_OUTPUT:
        operands->from = at_offset(workspace, site == LINEAR_ATTENTION_OUTPUT ? offsets->y
                                              : model_of(workspace)->gated    ? offsets->gated
                                                                              : offsets->wide);
        operands->to = added_of(workspace, layer, site == LINEAR_OUTPUT ? NORM_OUTPUT : NORM_ATTENTION);
        if (!operands->to) {
            operands->residual = operands->to = extent.x;
            args.shape.epilogue = CUDA_EPILOGUE_BIAS_RESIDUAL;
        }
        break;
    }
    return args;
}

static const struct cuda_gemm_plan **plan_of(struct backend_workspace *workspace, uint32_t layer, enum linear_site site)
{
    return first_tokens_only(workspace, layer) ? &workspace->bucket->first_plans[site]
                                               : &workspace->bucket->plans[site];
}

/* Fills an operand with random numbers before timing: multiplying zeros, which fresh memory holds, takes a GPU less
 * power and so less time. One block comes from the host and is copied on the device until the operand is full. */
static enum status fill_at_random(struct backend_workspace *workspace, const void *from, size_t bytes, struct err *err)
{
    static const char what[] = "random numbers for products";
    enum { BLOCK = 4096 }; /* numbers */
    const struct cuda_api *api = workspace->cuda->api;
    const enum kernel_type type = workspace->cuda->weights.type;
    float block[BLOCK], rounded[BLOCK];
    char *to = workspace->memory.device + ((const char *)from - workspace->memory.device);
    size_t all = BLOCK * kernel_type_bytes(type), done = bytes < all ? bytes : all;
    uint32_t seed = 1;
    for (size_t i = 0; i < BLOCK; i++) {
        seed = seed * 1664525 + 1013904223;
        block[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    cuda_narrow(type, block, BLOCK, 1, rounded);
    cudaStream_t queue = workspace->memory.compute;
    TRY(check(workspace, api->cudaMemcpyAsync(to, rounded, done, cudaMemcpyHostToDevice, queue), what, err));
    TRY(check(workspace, api->cudaStreamSynchronize(queue), what, err)); /* `rounded` ends with this function */
    for (size_t more; done < bytes; done += more) {
        more = done < bytes - done ? done : bytes - done;
        TRY(check(workspace, api->cudaMemcpyAsync(to + done, to, more, cudaMemcpyDeviceToDevice, queue), what, err));
    }
    return STATUS_OK;
}

static enum status plan_gemm(struct backend_workspace *workspace, const struct gemm_args *args,
                             const struct cuda_gemm_plan **out, struct err *err)
{
    size_t bytes = (size_t)args->rows * args->shape.inputs * kernel_type_bytes(args->shape.type);
    TRY(fill_at_random(workspace, args->operands.from, bytes, err));
    return cuda_gemm_prepare(workspace->runner, &args->shape, args->rows, &args->operands, out, err);
}

static enum status plan_layer(struct backend_workspace *workspace, uint32_t layer, struct err *err)
{
    for (unsigned site = 0; site < CUDA_LINEARS; site++) {
        struct gemm_args args = gemm_args_of(workspace, layer, (enum linear_site)site);
        TRY(plan_gemm(workspace, &args, plan_of(workspace, layer, (enum linear_site)site), err));
    }
    if (!first_tokens_only(workspace, layer)) { return STATUS_OK; }
    struct gemm_args args = keys_and_values(workspace, layer);
    return plan_gemm(workspace, &args, &workspace->bucket->keys_values, err);
}

/* Plans every product of a new bucket. All layers are like the first, except the last of a CLS-pooled model. Times
 * products, so it must not run in a capture, and overwrites the pass's memory. */
static enum status plan_bucket(struct backend_workspace *workspace, struct err *err)
{
    uint32_t last = model_of(workspace)->layer_count - 1;
    TRY(plan_layer(workspace, 0, err));
    return last > 0 && first_tokens_only(workspace, last) ? plan_layer(workspace, last, err) : STATUS_OK;
}

/* --- the ops: each enqueues on the compute stream, whether it is captured or runs --- */

static enum status enqueue_embed(struct backend_workspace *workspace, struct err *err)
{
    const struct model *model = model_of(workspace);
    const struct cuda_weights *weights = &workspace->cuda->weights;
    struct kernel_embed_norm_args args = {
        .type = weights->type,
        .bound = workspace->bucket->tokens,
        .hidden = model->hidden,
        .vocabulary = model->vocabulary,
        .positions = model_position_rows(model),
        .epsilon = model->layer_norm_eps,
        .rms = model->rms_norm,
        .ragged = workspace->ragged,
        .word = weights->word,
        .position = weights->position,
        .gain = weights->embedding_norm.gain,
        .shift = weights->embedding_norm.shift,
        .sum = model->first_norm ? all_tokens(workspace).x : NULL,
        .to = layer_input(workspace, 0),
    };
    return check(workspace, kernel_embed_norm(&workspace->queue, &args), "embedding", err);
}

static enum status gather_first_tokens(struct backend_workspace *workspace, const void *from, struct err *err)
{
    struct kernel_gather_args args = {
        .type = workspace->cuda->weights.type,
        .bound = workspace->bucket->rows,
        .hidden = model_of(workspace)->hidden,
        .ragged = workspace->ragged,
        .from = from,
        .to = first_tokens(workspace).x,
    };
    return check(workspace, kernel_gather(&workspace->queue, &args), "gathering first tokens", err);
}

/* Computes keys and values of all tokens and queries of the first tokens, and makes these the residual stream of the
 * rest of the layer. */
static enum status begin_last_layer(struct backend_workspace *workspace, uint32_t layer, struct err *err)
{
    const void *x = all_tokens(workspace).x, *from = layer_input(workspace, layer);
    struct gemm_args args = keys_and_values(workspace, layer);
    TRY(cuda_gemm_run(workspace->runner, workspace->bucket->keys_values, &args.operands, err));
    TRY(gather_first_tokens(workspace, from, err));
    args = gemm_args_of(workspace, layer, LINEAR_QKV);
    TRY(cuda_gemm_run(workspace->runner, *plan_of(workspace, layer, LINEAR_QKV), &args.operands, err));
    return from == x ? STATUS_OK : gather_first_tokens(workspace, x, err);
}

static enum status enqueue_linear(struct backend_workspace *workspace, uint32_t layer, enum linear_site site,
                                  struct err *err)
{
    const struct cuda_backend *cuda = workspace->cuda;
    struct gemm_args gemm = gemm_args_of(workspace, layer, site);
    if (site == LINEAR_QKV && first_tokens_only(workspace, layer)) { return begin_last_layer(workspace, layer, err); }
    TRY(cuda_gemm_run(workspace->runner, *plan_of(workspace, layer, site), &gemm.operands, err));
    if (gemm.shape.epilogue != CUDA_EPILOGUE_NONE) { return STATUS_OK; }
    if (model_of(workspace)->gated) {
        struct kernel_gate_args args = {
            .type = gemm.shape.type,
            .activation = cuda->activation,
            .bound = gemm.rows,
            .width = gemm.shape.outputs / 2,
            .count = gemm.operands.count,
            .from = gemm.operands.to,
            .bias = gemm.operands.bias,
            .to = at_offset(workspace, workspace->memory.plan.offsets.gated),
        };
        return check(workspace, kernel_gate(&workspace->queue, &args), "gating", err);
    }
    struct kernel_activate_args args = {
        .type = gemm.shape.type,
        .activation = cuda->activation,
        .bound = gemm.rows,
        .width = gemm.shape.outputs,
        .count = gemm.operands.count,
        .bias = gemm.operands.bias,
        .x = gemm.operands.to,
    };
    return check(workspace, kernel_activate(&workspace->queue, &args), "activation", err);
}

/* A first token is at position 0, which turns nothing: with first tokens only, just the keys are turned. */
static enum status enqueue_rotate(struct backend_workspace *workspace, uint32_t layer, struct err *err)
{
    const struct model *model = model_of(workspace);
    const struct cuda_layer *weights = &workspace->cuda->weights.layers[layer];
    const uint32_t queries = first_tokens_only(workspace, layer) ? 0 : model->heads, keys = model_key_heads(model);
    struct kernel_rotate_args args = {
        .type = workspace->cuda->weights.type,
        .bound = workspace->bucket->tokens,
        .heads = queries + keys,
        .queries = queries,
        .head_dim = model_head_dim(model),
        .stride = (queries + 2 * keys) * model_head_dim(model),
        .positions = model->max_tokens,
        .ragged = workspace->ragged,
        .table = workspace->cuda->weights.rotary[model->layers[layer].local],
        .query_gain = weights->query_gain,
        .key_gain = weights->key_gain,
        .epsilon = model->layer_norm_eps,
        .x = at_offset(workspace, workspace->memory.plan.offsets.wide),
    };
    return args.table ? check(workspace, kernel_rotate(&workspace->queue, &args), "turning heads", err) : STATUS_OK;
}

static enum status enqueue_attention(struct backend_workspace *workspace, uint32_t layer, struct err *err)
{
    const struct model *model = model_of(workspace);
    const struct cuda_offsets *offsets = &workspace->memory.plan.offsets;
    bool first_only = first_tokens_only(workspace, layer);
    uint32_t window = model->layers[layer].local ? model->window : UINT32_MAX;
    TRY(enqueue_rotate(workspace, layer, err));
    struct kernel_attention_args args = {
        .type = workspace->cuda->weights.type,
        .bound = first_only ? workspace->bucket->rows
                            : kernel_tiles_bound(workspace->bucket->tokens, workspace->bucket->rows),
        .heads = model->heads,
        .key_heads = model_key_heads(model),
        .head_dim = model_head_dim(model),
        .scale = 1.0f, /* folded into the query weights */
        .reach = model->max_tokens - 1,
        .bias = workspace->cuda->weights.relative_bias,
        .before = window,
        .behind = model->causal ? 0 : window,
        .longest = workspace->bucket->tokens,
        .ragged = workspace->ragged,
        .queries = first_only ? queries_of(workspace) : NULL,
        .qkv = at_offset(workspace, offsets->wide),
        .context = at_offset(workspace, offsets->y),
    };
    return check(workspace, kernel_attention(&workspace->queue, &args), "attention", err);
}

static enum status enqueue_norm(struct backend_workspace *workspace, uint32_t layer, enum norm_site site,
                                struct err *err)
{
    const struct model *model = model_of(workspace);
    const struct cuda_layer *weights = &workspace->cuda->weights.layers[layer];
    struct extent extent = extent_of(workspace, layer);
    void *added = added_of(workspace, layer, site);
    struct kernel_norm_args args = {
        .type = workspace->cuda->weights.type,
        .bound = extent.bound,
        .hidden = model->hidden,
        .epsilon = model->layer_norm_eps,
        .rms = model->rms_norm,
        .count = extent.count,
        .from = added ? added : extent.x,
        .residual = added ? extent.x : NULL,
        .added_gain = weights->added_gain[site],
        .gain = weights->norm[site].gain,
        .shift = weights->norm[site].shift,
        .sum = added ? extent.x : NULL,
        .to = normed(workspace, extent.x),
    };
    return check(workspace, kernel_norm(&workspace->queue, &args), "normalising", err);
}

/* The vectors go into the slot, outside the graph, so that one graph serves every slot. */
static enum status enqueue_pool(struct backend_workspace *workspace, struct err *err)
{
    const struct model *model = model_of(workspace);
    bool gathered = first_tokens_only(workspace, model->layer_count - 1);
    struct kernel_pool_args args = {
        .type = workspace->cuda->weights.type,
        .pooling = model->pooling,
        .gathered = gathered,
        .normalize = workspace->slot->pass->normalize,
        .bound = workspace->slot->pass->rows,
        .hidden = model->hidden,
        .ragged = workspace->ragged,
        .x = normed(workspace, (gathered ? first_tokens(workspace) : all_tokens(workspace)).x),
        .output = workspace->slot->output,
        .finite = cuda_memory_flags(&workspace->memory, workspace->slot, workspace->slot->output),
    };
    return check(workspace, kernel_pool(&workspace->queue, &args), "pooling", err);
}

/* --- a pass --- */

enum status cuda_select(const struct cuda_backend *cuda, struct err *err)
{
    return cuda_check(cuda->api, cuda->api->cudaSetDevice(cuda->device.number), "selecting a GPU", err);
}

static enum status lost_error(const struct backend_workspace *workspace, struct err *err)
{
    return err_set(err, STATUS_DEVICE_LOST, "GPU %d (%s) was lost", workspace->cuda->device.number,
                   workspace->cuda->device.name);
}

/* Ends a capture and discards it. */
static void drop_capture(struct backend_workspace *workspace)
{
    const struct cuda_api *api = workspace->cuda->api;
    cudaGraph_t graph = NULL;
    if (!workspace->capturing) { return; }
    workspace->capturing = false;
    (void)api->cudaStreamEndCapture(workspace->memory.compute, &graph);
    if (graph) { (void)api->cudaGraphDestroy(graph); }
    (void)api->cudaGetLastError();
}

/* Abandons a pass that was begun and not submitted. Waits for what it enqueued, because the next pass gets its
 * slot. */
static enum status abort_pass(struct backend_workspace *workspace, struct err *err)
{
    workspace->begun = false;
    drop_capture(workspace);
    return workspace->lost ? lost_error(workspace, err) : cuda_memory_drain(&workspace->memory, err);
}

/* Notes what an error means for later passes: a lost device gets no more calls; if memory is short, the graphs are
 * freed first. */
static enum status note_status(struct backend_workspace *workspace, enum status status)
{
    if (status == STATUS_DEVICE_LOST) { workspace->lost = true; }
    if (status == STATUS_NO_MEMORY && abort_pass(workspace, NULL) == STATUS_OK) {
        cuda_graphs_drop(&workspace->graphs);
    }
    return status;
}

static enum status find_bucket(struct backend_workspace *workspace, const struct pass *pass, struct err *err)
{
    const struct model *model = workspace->cuda->backend.model;
    const struct cuda_plan *plan = &workspace->memory.plan;
    uint32_t tokens = cuda_bucket_tokens(pass->extent), rows = plan->rows < tokens ? plan->rows : tokens;
    if (model->pooling == POOLING_CLS) {
        rows = cuda_bucket_rows(pass->rows, rows);
    } else { /* launches are for the tiles that this number of rows could need; blocks without a tile cost time, too */
        while (rows / 4 >= pass->rows) { rows /= 4; }
    }
    TRY(find_or_add_bucket(&workspace->graphs, tokens, rows, &workspace->bucket, err));
    workspace->bucket->last_pass = workspace->passes++;
    workspace->mode = PASS_DIRECT;
    if (workspace->bucket->graph) {
        workspace->mode = PASS_REPLAY;
    } else if (workspace->bucket->warm && workspace->graphs.most > 0) {
        workspace->mode = PASS_CAPTURE;
    }
    return STATUS_OK;
}

static enum status enqueue(struct backend_workspace *workspace, const struct pass_op *op, struct err *err)
{
    switch (op->kind) {
    case OP_EMBED:
        return enqueue_embed(workspace, err);
    case OP_LINEAR:
        return enqueue_linear(workspace, op->layer, op->linear, err);
    case OP_ATTENTION:
        return enqueue_attention(workspace, op->layer, err);
    case OP_NORM:
        break;
    }
    return enqueue_norm(workspace, op->layer, op->norm, err);
}

/* Runs directly a pass whose graph could not be captured, instantiated or launched, and makes no more graphs: the next
 * would fail alike. The ops called so far are enqueued again, so the batch is not affected. Reports a lost device and
 * missing memory to the caller (see note_status). */
static enum status fall_back(struct backend_workspace *workspace, enum status status, struct err *err)
{
    if (status == STATUS_DEVICE_LOST || status == STATUS_NO_MEMORY) { return status; }
    drop_capture(workspace);
    TRY(cuda_memory_drain(&workspace->memory, err)); /* graphs of earlier passes may still run */
    log_warn("graphs_given_up", log_int("gpu", workspace->cuda->device.number),
             log_int("tokens", workspace->bucket->tokens), log_str("reason", err->message));
    atomic_fetch_add(&workspace->cuda->backend.counters->graph_fallbacks, 1);
    cuda_graphs_drop(&workspace->graphs);
    workspace->graphs.most = 0;
    workspace->mode = PASS_DIRECT;
    for (uint32_t i = 0; i < workspace->op_count; i++) { TRY(enqueue(workspace, &workspace->ops[i], err)); }
    return STATUS_OK;
}

/* Enqueues an op, unless the graph replays it. */
static enum status add_op(struct backend_workspace *workspace, struct pass_op op, struct err *err)
{
    assert(workspace->op_count < CUDA_PASS_OPS(workspace->cuda->backend.model->layer_count));
    workspace->ops[workspace->op_count++] = op;
    if (workspace->mode == PASS_REPLAY) { return STATUS_OK; }
    enum status status = enqueue(workspace, &op, err);
    return status == STATUS_OK || workspace->mode == PASS_DIRECT ? status : fall_back(workspace, status, err);
}

static enum status begin_pass(struct backend_workspace *workspace, const struct pass *pass, struct err *err)
{
    if (workspace->lost) { return lost_error(workspace, err); }
    TRY(cuda_select(workspace->cuda, err));
    if (workspace->begun) { TRY(abort_pass(workspace, err)); }
    workspace->begun = true;
    workspace->op_count = 0;
    TRY(find_bucket(workspace, pass, err));
    struct cuda_ragged_layout layout = cuda_ragged_layout(workspace->bucket->tokens, workspace->bucket->rows);
    const void *block = workspace->memory.device + workspace->memory.plan.offsets.ragged;
    layout.span =
        kernel_attention_span(workspace->queue.capability, workspace->cuda->weights.type,
                              model_head_dim(model_of(workspace)), workspace->cuda->weights.relative_bias != NULL);
    workspace->ragged = cuda_ragged_view(&layout, block);
    if (!workspace->bucket->planned) { TRY(plan_bucket(workspace, err)); }
    workspace->bucket->planned = true;
    workspace->slot = cuda_memory_slot(&workspace->memory);
    TRY(cuda_memory_copy_in(&workspace->memory, workspace->slot, &layout, pass, err));
    if (workspace->mode == PASS_CAPTURE) {
        enum status status = check(
            workspace,
            workspace->cuda->api->cudaStreamBeginCapture(workspace->memory.compute, cudaStreamCaptureModeThreadLocal),
            "beginning a graph", err);
        workspace->capturing = status == STATUS_OK;
        TRY(status == STATUS_OK ? status : fall_back(workspace, status, err));
    }
    return add_op(workspace, (struct pass_op){.kind = OP_EMBED}, err);
}

enum status cuda_pass_embed(struct backend_workspace *workspace, const struct pass *pass, struct err *err)
{
    return note_status(workspace, begin_pass(workspace, pass, err));
}

enum status cuda_pass_linear(struct backend_workspace *workspace, uint32_t layer, enum linear_site site,
                             struct err *err)
{
    return note_status(workspace,
                       add_op(workspace, (struct pass_op){.kind = OP_LINEAR, .layer = layer, .linear = site}, err));
}

enum status cuda_pass_attention(struct backend_workspace *workspace, uint32_t layer, struct err *err)
{
    return note_status(workspace, add_op(workspace, (struct pass_op){.kind = OP_ATTENTION, .layer = layer}, err));
}

enum status cuda_pass_norm(struct backend_workspace *workspace, uint32_t layer, enum norm_site site, struct err *err)
{
    return note_status(workspace,
                       add_op(workspace, (struct pass_op){.kind = OP_NORM, .layer = layer, .norm = site}, err));
}

/* Makes the capture the bucket's graph. */
static enum status end_capture(struct backend_workspace *workspace, struct err *err)
{
    const struct cuda_api *api = workspace->cuda->api;
    cudaGraph_t captured = NULL;
    workspace->capturing = false;
    TRY(check(workspace, api->cudaStreamEndCapture(workspace->memory.compute, &captured), "ending a graph", err));
    uint64_t running = workspace->passes - 1 - workspace->memory.waiting;
    TRY(keep_graph(&workspace->graphs, workspace->bucket, captured, workspace->memory.compute, running, err));
    atomic_fetch_add(&workspace->cuda->backend.counters->graphs_captured, 1);
    return STATUS_OK;
}

static enum status run_graph(struct backend_workspace *workspace, struct err *err)
{
    if (workspace->mode == PASS_CAPTURE) { TRY(end_capture(workspace, err)); }
    TRY(check(workspace, workspace->cuda->api->cudaGraphLaunch(workspace->bucket->graph, workspace->memory.compute),
              "launching a graph", err));
    atomic_fetch_add(&workspace->cuda->backend.counters->graph_launches, 1);
    return STATUS_OK;
}

static enum status end_pass(struct backend_workspace *workspace, struct err *err)
{
    if (workspace->mode != PASS_DIRECT) {
        enum status status = run_graph(workspace, err);
        TRY(status == STATUS_OK ? status : fall_back(workspace, status, err));
    }
    return enqueue_pool(workspace, err);
}

enum status cuda_pass_pool(struct backend_workspace *workspace, struct err *err)
{
    return note_status(workspace, end_pass(workspace, err));
}

enum status cuda_pass_submit(struct backend_workspace *workspace, struct err *err)
{
    TRY(note_status(workspace, cuda_memory_copy_out(&workspace->memory, workspace->slot, err)));
    workspace->bucket->warm = true;
    workspace->begun = false;
    return STATUS_OK;
}

enum status cuda_pass_wait(struct backend_workspace *workspace, struct err *err)
{
    enum status status = workspace->lost ? lost_error(workspace, err) : cuda_select(workspace->cuda, err);
    if (status == STATUS_OK) { return note_status(workspace, cuda_memory_wait(&workspace->memory, err)); }
    cuda_memory_skip(&workspace->memory);
    return note_status(workspace, status);
}

bool cuda_pass_finite(const struct backend_workspace *workspace)
{
    return workspace->memory.finite;
}

void cuda_pass_abort(struct backend_workspace *workspace)
{
    (void)abort_pass(workspace, NULL);
}
