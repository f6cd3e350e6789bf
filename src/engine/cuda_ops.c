#include "engine/cuda_ops.h"

#include "engine/cuda_half.h"

static enum status check(const struct backend_workspace *stream, cudaError_t answer, const char *what, struct err *err)
{
    return cuda_check(stream->cuda->api, answer, what, err);
}

/* --- what there is to work on --------------------------------------------------------------------------------------
 */

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

/* --- plans ---------------------------------------------------------------------------------------------------------
 */

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
    enum { BLOCK = 16384 };
    const struct cuda_api *api = stream->cuda->api;
    const enum kernel_type type = stream->cuda->weights.type;
    union {
        float f32[BLOCK / 4];
        uint16_t f16[BLOCK / 2];
    } block;
    char *to = stream->device.memory + ((const char *)from - stream->device.memory);
    size_t element = kernel_type_bytes(type), done = bytes < BLOCK ? bytes : BLOCK;
    uint32_t seed = 1;
    for (size_t i = 0; i < BLOCK / element; i++) {
        seed = seed * 1664525 + 1013904223;
        float value = (float)(int32_t)seed * 0x1p-31f;
        if (type == KERNEL_F32) {
            block.f32[i] = value;
        } else {
            block.f16[i] = type == KERNEL_F16 ? to_f16(value) : to_bf16(value);
        }
    }
    cudaStream_t queue = stream->device.compute;
    TRY(check(stream, api->cudaMemcpyAsync(to, &block, done, cudaMemcpyHostToDevice, queue), what, err));
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

/* Plans every op of a new bucket: all layers are like the first one, but for the last of a CLS-pooled model. */
enum status cuda_ops_plan(struct backend_workspace *stream, struct err *err)
{
    uint32_t last = model_of(stream)->layer_count - 1;
    TRY(plan_layer(stream, 0, err));
    return last > 0 && first_tokens_only(stream, last) ? plan_layer(stream, last, err) : STATUS_OK;
}

/* --- the ops -------------------------------------------------------------------------------------------------------
 */

enum status cuda_ops_embed(struct backend_workspace *stream, struct err *err)
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

enum status cuda_ops_linear(struct backend_workspace *stream, uint32_t layer, enum linear_site site, struct err *err)
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

enum status cuda_ops_attention(struct backend_workspace *stream, uint32_t layer, struct err *err)
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

enum status cuda_ops_norm(struct backend_workspace *stream, uint32_t layer, enum norm_site site, struct err *err)
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
enum status cuda_ops_pool(struct backend_workspace *stream, struct err *err)
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
