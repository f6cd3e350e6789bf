#include "engine/cuda_ops.h"

#include "base/log.h"

static enum status check(const struct backend_stream *stream, cudaError_t answer, const char *what, struct err *err)
{
    return cuda_check(stream->cuda->api, answer, what, err);
}

/* --- what there is to work on --------------------------------------------------------------------------------------
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

/* --- plans ---------------------------------------------------------------------------------------------------------
 */

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
enum status cuda_ops_plan(struct backend_stream *stream, struct err *err)
{
    TRY(plan_layer(stream, 0, err));
    TRY(plan_layer(stream, model_of(stream)->layer_count - 1, err));
    return plan_attention(stream, err);
}

/* --- the ops -------------------------------------------------------------------------------------------------------
 */

enum status cuda_ops_embed(struct backend_stream *stream, struct err *err)
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

enum status cuda_ops_linear(struct backend_stream *stream, uint32_t layer, enum linear_site site, struct err *err)
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

/* By cuDNN. A plan that fails when it is run is given up for our kernel; one that has run and cannot be captured stays,
 * and is the reason for no more graphs with it: the pass that was being captured is lost, once. */
static enum status attend_cudnn(struct backend_stream *stream, struct err *err)
{
    const struct cuda_places *places = &stream->device.plan.places;
    enum status status = cudnn_run(stream->cudnn, stream->bucket->attention, &stream->cudnn_rows,
                                   place(stream, places->wide), place(stream, places->y), err);
    if (status == STATUS_OK || status == STATUS_DEVICE_LOST)
        return status;
    if (stream->capturing) {
        stream->cudnn_direct = true;
        return status;
    }
    stream->bucket->attention = NULL;
    log_warn("cudnn_passed_over", log_int("rows", stream->bucket->rows), log_int("longest", stream->bucket->longest),
             log_str("reason", err->message));
    return STATUS_OK;
}

enum status cuda_ops_attention(struct backend_stream *stream, uint32_t layer, struct err *err)
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

enum status cuda_ops_norm(struct backend_stream *stream, uint32_t layer, enum norm_site site, struct err *err)
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

/* The vectors go into the slot, so the graph of all before is the same for every slot. Nobody asks for `finite`: the
 * encoder looks at the vectors themselves, whatever the backend. */
enum status cuda_ops_pool(struct backend_stream *stream, struct err *err)
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
