/* The CPU backend, one thread per stream. Matrix products are oneDNN's (cpu_matmul.h), everything between them is our
 * own vector code (cpu_kernels.h); where the processor has tile registers and the model's sizes suit them, products and
 * attention in bf16 run on those (struct cpu_tiles), because what follows a product then costs next to nothing.
 *
 * Activations stay f32 from end to end; in bf16 only the operands of a product are rounded. Bias and what follows a
 * product are done by the pass over memory that comes next anyway: the activation after the intermediate product, the
 * normalisation after the two that end in a residual, attention after queries, keys and values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/cpu_describe.h"
#include "engine/cpu_int8_pass.h"
#include "engine/cpu_kernels.h"
#include "engine/cpu_matmul.h"
#include "engine/cpu_memory.h"
#include "engine/cpu_weights.h"

/* A pass reads all weights once from the third-level cache or memory, so it should have many rows; the activations of
 * these still fit a second-level cache one product at a time. */
enum { PASS_TOKENS = 512 };

/* Words that are asked for ahead of their turn. */
enum { WORDS_AHEAD = 4 };

/* The largest weight, in elements, that stays in such a cache beside a strip of rows. */
enum { STRIP_WEIGHTS = 3 << 18 };

/* Buffers of activations; a row is a token. What a precision does not need is NULL. */
struct backend_stream {
    const struct cpu_weights *weights;
    struct matmul_runner *runner;
    const struct pass *pass;
    void *memory;               /* behind all that follows */
    float *hidden;              /* [rows, hidden] */
    uint16_t *hidden16;         /* [rows, hidden] */
    float *wide;                /* [rows, 3 hidden] before attention, [rows, intermediate] before the output */
    uint16_t *wide16;           /* the same */
    float *product;             /* [rows, hidden] of a product with a residual, or one block of another product */
    struct activations context; /* [rows, hidden] */
    float *scratch;             /* attention's */
    struct int8_space whole;    /* in int8 */
};

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
    cpu_describe(weights->kernels->name, weights->backend.device, sizeof weights->backend.device);
    *out = &weights->backend;
    return STATUS_OK;
}

static void cpu_close(struct backend *backend)
{
    cpu_weights_close((struct cpu_weights *)backend);
}

/* --- streams -------------------------------------------------------------------------------------------------------
 */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Lays the stream's buffers out in `block` (or nowhere, to learn the size) and returns their size. */
static size_t lay_out(struct backend_stream *stream, char *block)
{
    const struct cpu_weights *weights = stream->weights;
    const struct model *model = weights->backend.model;
    bool half = weights->backend.precision == PRECISION_BF16;
    size_t longest = larger(PASS_TOKENS, model->max_tokens);
    size_t rows = (longest + MATMUL_ROWS - 1) / MATMUL_ROWS * MATMUL_ROWS + MATMUL_ROWS, used = 0;
    size_t hidden = rows * model->hidden, wide = rows * larger(3 * model->hidden, model->intermediate_size);
    size_t product = hidden;
    for (unsigned site = 0; site < CPU_SHAPES; site++)
        if (weights->shapes[site] != NULL)
            product = larger(product, rows * matmul_block_outputs(weights->shapes[site]));

    stream->hidden = cpu_memory_part(block, &used, hidden * sizeof(float));
    stream->product = cpu_memory_part(block, &used, product * sizeof(float));
    stream->scratch = cpu_memory_part(
        block, &used,
        sizeof(float) * weights->kernels->attention_scratch(model->max_tokens, model->hidden / model->heads));
    if (weights->tiles == NULL)
        stream->wide = cpu_memory_part(block, &used, wide * sizeof(float));
    if (weights->int8 != NULL) {
        stream->wide16 = cpu_memory_part(block, &used, wide * sizeof(uint16_t));
        used += int8_space_lay_out(&stream->whole, model, rows, cpu_memory_part(block, &used, 0));
    }
    if (weights->int8 != NULL && weights->tiles != NULL) {
        stream->context.bf16 = cpu_memory_part(block, &used, hidden * sizeof(uint16_t));
    } else if (half) {
        stream->hidden16 = cpu_memory_part(block, &used, hidden * sizeof(uint16_t));
        stream->context.bf16 = cpu_memory_part(block, &used, hidden * sizeof(uint16_t));
        stream->wide16 = cpu_memory_part(block, &used, wide * sizeof(uint16_t));
    } else {
        stream->context.f32 = cpu_memory_part(block, &used, hidden * sizeof(float));
    }
    return used;
}

static void cpu_stream_close(struct backend_stream *stream)
{
    if (stream == NULL)
        return;
    matmul_runner_close(stream->runner);
    free(stream->memory);
    free(stream);
}

static enum status cpu_stream_open(struct backend *backend, struct backend_stream **out, struct err *err)
{
    struct cpu_weights *weights = (struct cpu_weights *)backend;
    matmul_single_thread();
    struct backend_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a CPU stream");
    stream->weights = weights;
    size_t bytes = lay_out(stream, NULL);
    stream->memory = cpu_memory(bytes);
    enum status status = STATUS_NO_MEMORY;
    if (stream->memory == NULL) {
        err_set(err, status, "no memory for a CPU stream (%zu bytes)", bytes);
    } else {
        memset(stream->memory, 0, bytes); /* what gaps hold is computed with; it must be finite */
        lay_out(stream, stream->memory);
        status = STATUS_OK;
        if (weights->shapes[0] != NULL)
            status = matmul_runner_open(weights->device, weights->shapes, CPU_SHAPES, &stream->runner, err);
    }
    if (status != STATUS_OK) {
        cpu_stream_close(stream);
        return status;
    }
    *out = stream;
    return STATUS_OK;
}

static struct stream_limits cpu_limits(const struct backend_stream *stream)
{
    (void)stream;
    return (struct stream_limits){PASS_TOKENS, UINT32_MAX};
}

/* --- the forward pass ----------------------------------------------------------------------------------------------
 */

static struct activations hidden_row(const struct backend_stream *stream, size_t row)
{
    size_t at = row * stream->weights->backend.model->hidden;
    return (struct activations){stream->hidden + at, stream->hidden16 == NULL ? NULL : stream->hidden16 + at};
}

static struct int8_work int8_work_of(const struct backend_stream *stream)
{
    bool tiles = stream->weights->tiles != NULL;
    return (struct int8_work){
        .rows = stream->pass->extent,
        .hidden = stream->hidden,
        .qkv = {.f32 = tiles ? NULL : stream->wide, .bf16 = tiles ? stream->wide16 : NULL},
        .context = stream->context,
        .intermediate = stream->wide16,
    };
}

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
                                    hidden_row(stream, at + t));
        }
    }
    if (weights->int8 != NULL) {
        struct int8_work work = int8_work_of(stream);
        int8_pass_embedded(&stream->whole, weights, &work);
    }
    return STATUS_OK;
}

/* What a product reads. */
static const void *input_of(const struct backend_stream *stream, enum linear_site site)
{
    bool half = stream->weights->backend.precision == PRECISION_BF16;
    if (site == LINEAR_ATTENTION_OUTPUT)
        return half ? (const void *)stream->context.bf16 : stream->context.f32;
    if (site == LINEAR_OUTPUT)
        return half ? (const void *)stream->wide16 : stream->wide;
    return half ? (const void *)stream->hidden16 : stream->hidden;
}

/* One product with what follows it. The residual's goes strip by strip where a strip can pass the whole weight in the
 * second-level cache: then its sums are normalised while they are there. */
static void tiles_linear(struct backend_stream *stream, const struct cpu_layer *layer, enum linear_site site)
{
    const struct cpu_weights *weights = stream->weights;
    const struct cpu_linear *linear = &layer->linear[site];
    struct product_job job = {
        .rows = stream->pass->extent,
        .from = input_of(stream, site),
        .from_tiled = site == LINEAR_OUTPUT,
        .packed = linear->tiles,
        .activation = weights->backend.model->activation,
        .bias = linear->bias,
        .to = {.f32 = stream->product},
    };
    cpu_weights_shape(weights->backend.model, site, &job.outputs, &job.inputs);
    job.last_output = job.outputs;
    if (site == LINEAR_QKV || site == LINEAR_INTERMEDIATE) {
        job.end = site == LINEAR_QKV ? END_BIAS : END_BIAS_ACTIVATION;
        job.to_tiled = site == LINEAR_INTERMEDIATE;
        job.to = (struct activations){.bf16 = stream->wide16};
        weights->tiles->product(&job);
        return;
    }
    const uint16_t *from = job.from;
    const struct norm_weights *norm = &layer->norm[site == LINEAR_OUTPUT ? NORM_OUTPUT : NORM_ATTENTION];
    uint32_t rows = job.rows, strip = (size_t)job.outputs * job.inputs > STRIP_WEIGHTS ? rows : TILES_MULTIPLE;
    for (uint32_t row = 0; row < rows; row += strip) {
        job.rows = rows - row < strip ? rows - row : strip;
        job.from = from + (size_t)row * job.inputs;
        weights->tiles->product(&job);
        weights->kernels->add_norm(job.rows, job.outputs, stream->product, linear->bias, norm, hidden_row(stream, row));
    }
}

/* The intermediate product goes through its activation block by block, while a block is in the cache. */
static enum status matmul_linear(struct backend_stream *stream, const struct cpu_linear *linear, enum linear_site site,
                                 struct err *err)
{
    const struct cpu_weights *weights = stream->weights;
    const struct model *model = weights->backend.model;
    const struct matmul *shape = weights->shapes[site];
    uint32_t rows = stream->pass->extent, outputs = matmul_block_outputs(shape);
    float *to = site == LINEAR_QKV ? stream->wide : stream->product;
    for (uint32_t block = 0; block < matmul_blocks(shape); block++) {
        enum status status =
            matmul_run(stream->runner, shape, linear->packed, block, rows, input_of(stream, site), to, err);
        if (status != STATUS_OK)
            return status;
        if (site != LINEAR_INTERMEDIATE)
            continue;
        size_t first = (size_t)block * outputs;
        struct activations activated = {.f32 = stream->wide + first};
        if (stream->wide16 != NULL)
            activated = (struct activations){.bf16 = stream->wide16 + first};
        weights->kernels->activate(rows, outputs, model->activation, to, linear->bias + first, activated,
                                   model->intermediate_size);
    }
    return STATUS_OK;
}

static enum status cpu_linear(struct backend_stream *stream, uint32_t layer, enum linear_site site, struct err *err)
{
    const struct cpu_linear *linear = &stream->weights->layers[layer].linear[site];
    if (stream->weights->int8 != NULL) {
        struct int8_work work = int8_work_of(stream);
        int8_pass_linear(&stream->whole, stream->weights, &work, layer, site);
        return STATUS_OK;
    }
    if (stream->weights->tiles == NULL)
        return matmul_linear(stream, linear, site, err);
    tiles_linear(stream, &stream->weights->layers[layer], site);
    return STATUS_OK;
}

static enum status cpu_attention(struct backend_stream *stream, uint32_t layer, struct err *err)
{
    (void)err;
    const struct cpu_weights *weights = stream->weights;
    const struct model *model = weights->backend.model;
    const struct pass *pass = stream->pass;
    uint32_t head_dim = model->hidden / model->heads;
    for (uint32_t r = 0; r < pass->rows; r++) {
        size_t first = (size_t)(pass->start[r] - pass->origin) * model->hidden;
        struct attention_job job = {
            .length = pass->length[r],
            .heads = model->heads,
            .head_dim = head_dim,
            .scale = 1.0f / sqrtf((float)head_dim),
            .scratch = stream->scratch,
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
            job.bias = weights->layers[layer].linear[LINEAR_QKV].bias;
            weights->kernels->attention(&job);
        }
    }
    return STATUS_OK;
}

static enum status cpu_norm(struct backend_stream *stream, uint32_t layer, enum norm_site site, struct err *err)
{
    (void)err;
    const struct cpu_weights *weights = stream->weights;
    const struct cpu_layer *at = &weights->layers[layer];
    if (weights->int8 != NULL) {
        struct int8_work work = int8_work_of(stream);
        int8_pass_norm(&stream->whole, weights, &work, layer, site);
        return STATUS_OK;
    }
    if (weights->tiles != NULL) /* tiles_linear has done it */
        return STATUS_OK;
    enum linear_site product = site == NORM_ATTENTION ? LINEAR_ATTENTION_OUTPUT : LINEAR_OUTPUT;
    weights->kernels->add_norm(stream->pass->extent, weights->backend.model->hidden, stream->product,
                               at->linear[product].bias, &at->norm[site], hidden_row(stream, 0));
    return STATUS_OK;
}

static enum status cpu_pool(struct backend_stream *stream, struct err *err)
{
    (void)err;
    const struct cpu_weights *weights = stream->weights;
    const struct model *model = weights->backend.model;
    const struct pass *pass = stream->pass;
    for (uint32_t r = 0; r < pass->rows; r++) {
        const float *first = hidden_row(stream, pass->start[r] - pass->origin).f32;
        float *vector = pass->output + (size_t)r * model->dim;
        uint32_t pooled = model->pooling == POOLING_CLS ? 1 : pass->length[r];
        weights->kernels->mean(pooled, model->hidden, model->dim, first, vector);
    }
    return STATUS_OK;
}

static enum status cpu_submit(struct backend_stream *stream, struct err *err)
{
    (void)stream, (void)err;
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
    .devices = cpu_devices,
    .choose = cpu_choose,
    .open = cpu_open,
    .close = cpu_close,
    .stream_open = cpu_stream_open,
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
