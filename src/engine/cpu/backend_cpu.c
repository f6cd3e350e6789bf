/* The CPU backend, one thread per stream, which others may help with short passes (cpu_stream.h). Matrix products are
 * oneDNN's (cpu_matmul.h), everything between them is our own vector code (cpu_kernels.h); where the processor has tile
 * registers and the model's sizes suit them, products run on those, in bf16 (struct cpu_tiles) with attention, and in
 * f32 by whole numbers (cpu_digits.h), because what follows a product then costs next to nothing.
 *
 * Activations stay f32 from end to end; in bf16 only the operands of a product are rounded. Bias and
 * what follows a product are done by the pass over memory that comes next anyway: the activation after the intermediate
 * product, the normalisation after the two that end in a residual, attention after queries, keys and values. */
#include <math.h>
#include <stdio.h>

#include "engine/cpu/describe.h"
#include "engine/cpu/workspace.h"

/* Words that are asked for ahead of their turn. */
enum { WORDS_AHEAD = 4 };

/* Tokens times heads that a range of attention has at least. */
enum { LEAST_HEAD_TOKENS = 48, LEAST_HEAD_TOKENS_TILES = 192 };

static enum status cpu_devices(unsigned *count, struct err *err)
{
    (void)err;
    *count = 1;
    return STATUS_OK;
}

static enum precision cpu_choose(enum precision asked)
{
    if (asked == PRECISION_AUTO)
        return matmul_native_precision();
    bool can = asked == PRECISION_F32 || asked == PRECISION_INT8 ||
               (asked == PRECISION_BF16 && matmul_native_precision() == PRECISION_BF16);
    return can ? asked : PRECISION_AUTO;
}

/* In int8 it is also said how many layers that is, as their time depends on it. */
static void describe(struct cpu_weights *weights)
{
    char kernels[60];
    uint32_t layers = weights->backend.model->layer_count, whole = layers - weights->first_whole;
    snprintf(kernels, sizeof kernels, "%s", weights->kernels->name);
    if (weights->int8 != NULL)
        snprintf(kernels, sizeof kernels, "%s, %u of %u layers in int8", weights->kernels->name, whole, layers);
    cpu_describe(kernels, weights->backend.device, sizeof weights->backend.device);
}

static enum status cpu_open(const struct model *model, const struct engine_options *options, struct backend **out,
                            struct err *err)
{
    struct cpu_weights *weights;
    if (options->device != 0)
        return err_set(err, STATUS_UNSUPPORTED, "device %u: the CPU backend has device 0 alone", options->device);
    matmul_single_thread();
    TRY(cpu_weights_open(model, options->precision, &weights, err));
    weights->backend =
        (struct backend){.model = model, .precision = options->precision, .weight_bytes = weights->bytes, .slots = 1};
    describe(weights);
    *out = &weights->backend;
    return STATUS_OK;
}

static void cpu_close(struct backend *backend)
{
    cpu_weights_close((struct cpu_weights *)backend);
}

static struct stream_limits cpu_limits(const struct backend_stream *stream)
{
    (void)stream;
    return (struct stream_limits){.tokens = PASS_TOKENS, .rows = UINT32_MAX};
}

static bool cpu_helped(const struct backend_stream *stream)
{
    return stream->helped;
}

/* --- the forward pass ----------------------------------------------------------------------------------------------
 */

/* Asks for the word of a row's token ahead of time: words lie anywhere in the embeddings, so each would wait for
 * memory. */
static void ask_word(const struct cpu_weights *weights, const struct pass *pass, uint32_t row, uint32_t token)
{
    if (token >= pass->length[row])
        return;
    uint32_t width = weights->backend.model->hidden;
    size_t first = (size_t)pass->ids[pass->start[row] - pass->origin + token] * width;
    for (size_t i = 0; weights->word != NULL && i < width; i += 64 / sizeof(float))
        __builtin_prefetch(weights->word + first + i);
    for (size_t i = 0; weights->word16 != NULL && i < width; i += 64 / sizeof(uint16_t))
        __builtin_prefetch(weights->word16 + first + i);
}

static enum status cpu_embed(struct backend_stream *stream, const struct pass *pass, struct err *err)
{
    (void)err;
    const struct cpu_weights *weights = stream->weights;
    uint32_t width = weights->backend.model->hidden;
    matmul_single_thread();
    stream->pass = pass;
    stream->helped = stream->team != NULL && team_enter(stream->team, pass->extent <= HELPED_TOKENS);
    for (uint32_t r = 0; r < pass->rows; r++) {
        uint32_t at = pass->start[r] - pass->origin;
        for (uint32_t t = 0; t < WORDS_AHEAD; t++)
            ask_word(weights, pass, r, t);
        for (uint32_t t = 0; t < pass->length[r]; t++) {
            ask_word(weights, pass, r, t + WORDS_AHEAD);
            size_t id = (size_t)pass->ids[at + t] * width;
            weights->kernels->embed(width, weights->word == NULL ? NULL : weights->word + id,
                                    weights->word16 == NULL ? NULL : weights->word16 + id,
                                    weights->place + (size_t)t * width, &weights->embedding_norm,
                                    cpu_hidden_row(stream, at + t));
        }
    }
    cpu_product_prepare(stream);
    return STATUS_OK;
}

/* Ends the pass: nobody helps with it any more. */
static void end_pass(struct backend_stream *stream)
{
    if (stream->team != NULL)
        team_leave(stream->team, stream->helped);
}

static enum status ended_by(struct backend_stream *stream, enum status status)
{
    if (status != STATUS_OK)
        end_pass(stream);
    return status;
}

static enum status cpu_linear(struct backend_stream *stream, uint32_t layer, enum linear_site site, struct err *err)
{
    return ended_by(stream, cpu_product(stream, layer, site, err));
}

/* Some heads of one row. */
static void attention_range(void *context, unsigned hand, unsigned range)
{
    const struct cpu_step *step = context;
    struct backend_stream *stream = step->stream;
    const struct cpu_weights *weights = stream->weights;
    const struct model *model = weights->backend.model;
    const struct pass *pass = stream->pass;
    unsigned shares = step->ranges / pass->rows, r = range / shares, share = range % shares;
    size_t first = (size_t)(pass->start[r] - pass->origin) * model->hidden;
    uint32_t head_dim = model->hidden / model->heads;
    struct attention_job job = {
        .length = pass->length[r],
        .heads = model->heads,
        .first_head = team_range_first(model->heads, share, shares),
        .last_head = team_range_first(model->heads, share + 1, shares),
        .head_dim = head_dim,
        .scale = 1.0f / sqrtf((float)head_dim),
        .scratch = stream->hand[hand].scratch,
    };
    if (stream->context.f32 != NULL)
        job.context.f32 = stream->context.f32 + first;
    else
        job.context.bf16 = stream->context.bf16 + first;
    if (weights->tiles != NULL) {
        job.qkv16 = stream->wide16 + 3 * first;
        weights->tiles->attention(&job);
    } else {
        job.qkv = stream->wide + 3 * first;
        job.bias = weights->layers[step->layer].linear[LINEAR_QKV].bias;
        weights->kernels->attention(&job);
    }
}

static enum status cpu_attention(struct backend_stream *stream, uint32_t layer, struct err *err)
{
    uint32_t rows = stream->pass->rows, heads = stream->weights->backend.model->heads;
    uint32_t least = stream->weights->tiles == NULL ? LEAST_HEAD_TOKENS : LEAST_HEAD_TOKENS_TILES;
    unsigned shares = cpu_ranges(stream, heads * stream->pass->extent, least) / rows;
    shares = shares < 1 ? 1 : shares < heads ? shares : heads;
    struct cpu_step step = {stream, layer, 0, rows * shares};
    return ended_by(stream, cpu_do(&step, attention_range, err));
}

static enum status cpu_norm(struct backend_stream *stream, uint32_t layer, enum norm_site site, struct err *err)
{
    return ended_by(stream, cpu_product_norm(stream, layer, site, err));
}

static enum status cpu_pool(struct backend_stream *stream, struct err *err)
{
    (void)err;
    const struct cpu_weights *weights = stream->weights;
    const struct model *model = weights->backend.model;
    const struct pass *pass = stream->pass;
    for (uint32_t r = 0; r < pass->rows; r++) {
        const float *first = cpu_hidden_row(stream, pass->start[r] - pass->origin).f32;
        float *vector = pass->output + (size_t)r * model->dim;
        uint32_t pooled = model->pooling == POOLING_CLS ? 1 : pass->length[r];
        weights->kernels->mean(pooled, model->hidden, model->dim, first, vector);
    }
    return STATUS_OK;
}

static enum status cpu_submit(struct backend_stream *stream, struct err *err)
{
    (void)err;
    end_pass(stream);
    return STATUS_OK;
}

static enum status cpu_wait(struct backend_stream *stream, struct err *err)
{
    (void)err;
    stream->pass = NULL;
    return STATUS_OK;
}

const struct backend_ops backend_cpu = {
    .name = "cpu",
    .batch = {.tokens = 4096, .rows = 256},
    .devices = cpu_devices,
    .choose = cpu_choose,
    .open = cpu_open,
    .close = cpu_close,
    .stream_open = cpu_stream_open,
    .stream_join = cpu_stream_join,
    .helped = cpu_helped,
    .stream_close = cpu_stream_close,
    .limits = cpu_limits,
    .embed = cpu_embed,
    .linear = cpu_linear,
    .attention = cpu_attention,
    .norm = cpu_norm,
    .pool = cpu_pool,
    .submit = cpu_submit,
    .wait = cpu_wait,
};
