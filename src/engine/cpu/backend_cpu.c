/* The CPU backend: one compute thread per workspace, and helpers for passes of few tokens or of one text
 * (parallel_for.h). gemm.h lists the products; kernels.h has everything between them.
 *
 * Activations stay f32 from end to end; in bf16 only the operands of a product are rounded. The bias is added by the
 * pass over memory that comes next anyway: the activation after the intermediate product, the normalisation after the
 * two products that end in a residual, attention after queries, keys and values. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/cpu/isa.h"
#include "engine/cpu/pack.h"
#include "engine/cpu/workspace.h"

/* Word embeddings are prefetched this many tokens ahead. */
enum { WORDS_AHEAD = 4 };

/* The least tokens times heads of a chunk of attention. */
enum { LEAST_HEAD_TOKENS = 48, LEAST_HEAD_TOKENS_TILES = 192 };

static enum status cpu_devices(unsigned *count, struct err *err)
{
    *count = 1;
    return instruction_set_check(err);
}

static enum precision cpu_choose(const struct model *model, enum precision asked)
{
    (void)model;
    if (asked == PRECISION_AUTO) { return PRECISION_BF16; } /* unless a measurement finds f32 as fast */
    bool can = asked == PRECISION_F32 || precision_is_int8(asked) || asked == PRECISION_BF16;
    return can ? asked : PRECISION_AUTO;
}

/* In int8 the text includes the number of such products, and how the others are computed, because the time depends on
 * it. */
static void describe_weights(struct cpu_weights *weights, const struct engine_int8 *choice)
{
    struct backend *backend = &weights->backend;
    char kernels[100], name[PROCESSOR_NAME];
    snprintf(kernels, sizeof kernels, "%s", weights->set->name);
    if (choice) {
        bool all = choice->total == choice->of;
        snprintf(kernels, sizeof kernels, "%s, %u of %u products in int8%s%s", weights->set->name, choice->total,
                 choice->of, all ? "" : ", the others in ", all ? "" : backend->products);
    }
    snprintf(backend->device, sizeof backend->device, "%s, %s, %u threads", processor_name(name), kernels,
             engine_default_threads());
}

static enum status cpu_open(const struct model *model, const struct engine_options *options, struct backend **out,
                            struct err *err)
{
    static const char *const products[] = {
        [GEMM_F32] = "f32",       [GEMM_SPLIT_F32] = "f32",          [GEMM_BF16] = "bf16",
        [GEMM_BF16_DOT] = "bf16", [GEMM_BF16_WIDE] = "bf16 weights", [GEMM_INT16] = "16-bit integers",
    };
    struct cpu_weights *weights;
    if (options->device != 0) {
        return err_set(err, STATUS_UNSUPPORTED, "device %u: the CPU backend has device 0 alone", options->device);
    }
    TRY(cpu_weights_open(model, options, &weights, err));
    weights->backend = (struct backend){.model = model,
                                        .precision = options->precision,
                                        .weight_bytes = weights->bytes,
                                        .products = products[weights->kind],
                                        .slots = 1};
    describe_weights(weights, options->int8);
    *out = &weights->backend;
    return STATUS_OK;
}

/* Sets which products of an engine that was opened for a trial are in int8. */
static void cpu_set_int8(struct backend *backend, const struct engine_int8 *choice)
{
    struct cpu_weights *weights = (struct cpu_weights *)backend;
    for (uint32_t layer = 0; layer < backend->model->layer_count; layer++) {
        for (int product = 0; product < ENGINE_PRODUCTS; product++) {
            bool chosen = choice->in_int8[layer][product];
            struct cpu_linear *linear = &weights->layers[layer].linear[product];
            linear->kind = chosen ? GEMM_INT8 : weights->kind;
            linear->weight = weights->both[layer][product][chosen];
        }
    }
    weights->lm_head.kind = choice->lm_head ? GEMM_INT8 : cpu_weights_head_kind(weights);
    weights->lm_head.weight = weights->both_lm_head[choice->lm_head];
}

static void cpu_settle_int8(struct backend *backend, const struct engine_int8 *choice)
{
    struct cpu_weights *weights = (struct cpu_weights *)backend;
    cpu_set_int8(backend, choice);
    cpu_weights_settle(weights);
    backend->weight_bytes = weights->bytes;
    describe_weights(weights, choice);
}

static void cpu_close(struct backend *backend)
{
    cpu_weights_close((struct cpu_weights *)backend);
}

static struct pass_limits cpu_limits(const struct backend_workspace *workspace)
{
    (void)workspace;
    return (struct pass_limits){.tokens = PASS_TOKENS, .rows = UINT32_MAX};
}

static bool cpu_helped(const struct backend_workspace *workspace)
{
    return workspace->helped;
}

/* --- the products of a layer, each with the step that its kernels do along with it --- */

/* The least size of a chunk: outputs of a product, rows of a normalisation. */
enum { LEAST_OUTPUTS = 64, LEAST_ROWS = 8 };

/* A step's product is an enum engine_product in `site`. */
static const struct cpu_linear *linear_of(const struct cpu_step *step)
{
    return &step->workspace->weights->layers[step->layer].linear[step->site];
}

static struct activations activations_from(struct activations all, size_t at)
{
    return (struct activations){all.f32 ? all.f32 + at : NULL, all.bf16 ? all.bf16 + at : NULL};
}

/* The input of a product: in bf16, or else in f32. */
static struct activations input_of(const struct backend_workspace *workspace, unsigned product)
{
    if (product == ENGINE_ATTENTION_OUTPUT) { return workspace->context; }
    if (product == ENGINE_OUTPUT) {
        bool half = cpu_weights_inner_is_half(workspace->weights);
        return half ? (struct activations){.bf16 = workspace->wide16} : (struct activations){.f32 = workspace->wide};
    }
    return (struct activations){.f32 = workspace->hidden};
}

/* ---- inputs in integers ---- */

static bool takes_integers(const struct cpu_linear *linear)
{
    return linear->kind == GEMM_SPLIT_F32 || linear->kind == GEMM_INT8 || linear->kind == GEMM_INT16;
}

/* Converts rows of a product's input to integers, if it takes them. */
static void convert_rows(const struct cpu_step *step, uint32_t first, uint32_t last)
{
    struct backend_workspace *workspace = step->workspace;
    const struct instruction_set *set = workspace->weights->set;
    const struct cpu_linear *linear = linear_of(step);
    uint32_t width = linear->weight.inputs;
    struct activations from = input_of(workspace, step->site);
    if (!takes_integers(linear) || linear->weight.outputs == 0) { return; }
    if (linear->kind == GEMM_SPLIT_F32) {
        set->split_f32->split(first, last, width, from.f32, workspace->integers);
        return;
    }
    struct scaled_rows to = linear->kind == GEMM_INT8 ? workspace->int8 : workspace->integers;
    to.value += first * (size_t)linear->weight.steps * INT8_STEP;
    to.scale += first;
    from = activations_from(from, first * (size_t)width);
    if (linear->kind == GEMM_INT16) {
        set->int8->quantise16(last - first, width, from, to);
        return;
    }
    to.offset += first;
    to.far += first * (size_t)INT8_FAR;
    set->int8->quantise(last - first, width, from, to);
}

/* The same for the products that read a layer's hidden rows before its attention. */
static void convert_hidden(struct backend_workspace *workspace, uint32_t layer, uint32_t first, uint32_t last)
{
    struct cpu_step step = {workspace, layer, ENGINE_QUERY_KEY, 1};
    enum gemm_kind kind = linear_of(&step)->kind;
    convert_rows(&step, first, last);
    step.site = ENGINE_VALUE;
    if (linear_of(&step)->kind != kind) { convert_rows(&step, first, last); }
}

static void convert_chunk(void *context, unsigned thread, unsigned chunk)
{
    (void)thread;
    const struct cpu_step *step = context;
    uint32_t rows = step->workspace->pass->extent;
    convert_rows(step, parallel_for_first(rows, chunk, step->chunks),
                 parallel_for_first(rows, chunk + 1, step->chunks));
}

/* ---- normalisation ---- */

enum { NORM_ROWS = 16 }; /* whole groups of the kernels' rows */

/* Normalises rows and converts them for the next product, a few at a time, which stay in the first-level cache. */
static void norm_rows(struct backend_workspace *workspace, uint32_t layer, enum norm_site site, uint32_t first,
                      uint32_t last, float *product)
{
    const struct cpu_weights *weights = workspace->weights;
    const struct cpu_layer *at = &weights->layers[layer];
    enum engine_product behind = site == NORM_ATTENTION ? ENGINE_ATTENTION_OUTPUT : ENGINE_OUTPUT;
    const struct kernels *kernels = weights->set->kernels;
    uint32_t width = weights->backend.model->hidden, end;
    struct cpu_step step = {workspace, layer, ENGINE_INTERMEDIATE, 1};
    for (uint32_t row = first; row < last; row = end, product += (size_t)NORM_ROWS * width) {
        end = last - row < NORM_ROWS ? last : row + NORM_ROWS;
        if (at->added_norm[site].gain) { kernels->norm(end - row, width, &at->added_norm[site], product); }
        kernels->add_norm(end - row, width, product, at->linear[behind].bias, &at->norm[site],
                          workspace->sum + (size_t)row * width, cpu_hidden_row(workspace, row));
        if (site == NORM_ATTENTION) {
            convert_rows(&step, row, end);
        } else if (layer + 1 < weights->backend.model->layer_count) {
            convert_hidden(workspace, layer + 1, row, end);
        }
    }
}

static void norm_chunk(void *context, unsigned thread, unsigned chunk)
{
    (void)thread;
    const struct cpu_step *step = context;
    struct backend_workspace *workspace = step->workspace;
    uint32_t rows = workspace->pass->extent, first = parallel_for_first(rows, chunk, step->chunks);
    norm_rows(workspace, step->layer, (enum norm_site)step->site, first,
              parallel_for_first(rows, chunk + 1, step->chunks),
              workspace->product + (size_t)first * workspace->weights->backend.model->hidden);
}

/* ---- products ---- */

/* True if the intermediate product is kept in the order of the tiles: both that write and read it are on tiles. */
static bool is_tiled(const struct cpu_layer *layer)
{
    return layer->linear[ENGINE_INTERMEDIATE].kind == GEMM_BF16 && layer->linear[ENGINE_OUTPUT].kind == GEMM_BF16;
}

static struct gemm_job job_of(const struct cpu_step *step)
{
    struct backend_workspace *workspace = step->workspace;
    const struct cpu_weights *weights = workspace->weights;
    const struct model *model = weights->backend.model;
    const struct cpu_layer *layer = &weights->layers[step->layer];
    const struct cpu_linear *linear = linear_of(step);
    struct activations from = input_of(workspace, step->site);
    bool half = linear->kind == GEMM_BF16 || linear->kind == GEMM_BF16_DOT;
    struct gemm_job job = {
        .rows = workspace->pass->extent,
        .weight = &linear->weight,
        .last_output = linear->weight.outputs,
        .from_f32 = from.f32,
        .from = linear->kind == GEMM_INT8 ? workspace->int8 : workspace->integers,
        .end = GEMM_PLAIN,
        .activation = model->activation,
        .bias = linear->bias,
        .to.f32 = workspace->product,
    };
    if (half) {
        job.from_bf16 = from.bf16 ? from.bf16 : workspace->hidden16;
        job.from_f32 = NULL;
    }
    if (step->site == ENGINE_QUERY_KEY || step->site == ENGINE_VALUE) {
        uint32_t outputs = model_query_width(model) + 2 * model_key_width(model);
        size_t at = step->site == ENGINE_VALUE ? outputs - linear->weight.outputs : 0;
        job.beside = outputs - linear->weight.outputs;
        job.end = weights->qkv_half ? GEMM_BIAS : GEMM_PLAIN;
        job.to = weights->qkv_half ? (struct activations){.bf16 = workspace->wide16 + at}
                                   : (struct activations){.f32 = workspace->wide + at};
    } else if (step->site == ENGINE_INTERMEDIATE) {
        job.end = model->gated ? GEMM_GATE : GEMM_ACTIVATION;
        job.to = input_of(workspace, ENGINE_OUTPUT);
        job.to_tiled = is_tiled(layer);
    } else if (step->site == ENGINE_OUTPUT) {
        job.from_tiled = is_tiled(layer);
    }
    return job;
}

/* A chunk is some panels of outputs. */
static void gemm_chunk(void *context, unsigned thread, unsigned chunk)
{
    (void)thread;
    const struct cpu_step *step = context;
    struct gemm_job job = job_of(step);
    enum gemm_kind kind = linear_of(step)->kind;
    uint32_t panel = kind == GEMM_SPLIT_F32 ? SPLIT_ROWS : GEMM_MULTIPLE;
    uint32_t panels = (job.weight->outputs + panel - 1) / panel;
    uint32_t last = parallel_for_first(panels, chunk + 1, step->chunks) * panel;
    job.first_output = parallel_for_first(panels, chunk, step->chunks) * panel;
    job.last_output = last < job.last_output ? last : job.last_output;
    gemm_run(step->workspace->weights->set, kind, &job);
}

/* True if a product is normalised strip by strip, on tiles. */
static bool goes_by_strips(const struct backend_workspace *workspace, uint32_t layer, enum engine_product product)
{
    bool residual = product == ENGINE_ATTENTION_OUTPUT || product == ENGINE_OUTPUT;
    return residual && workspace->weights->layers[layer].linear[product].kind == GEMM_BF16 && !workspace->helped;
}

/* Works strip by strip if the whole weight and a strip fit in the second-level cache: each strip's sums are then
 * normalised while they are in the cache. */
static void strips_on_tiles(const struct cpu_step *step)
{
    struct backend_workspace *workspace = step->workspace;
    struct gemm_job job = job_of(step);
    const uint16_t *from = job.from_bf16;
    uint32_t outputs = job.weight->outputs, inputs = job.weight->inputs;
    bool stays = (size_t)outputs * inputs * sizeof *from <= gemm_cache() / 4 * 3;
    uint32_t rows = job.rows, strip = stays ? GEMM_MULTIPLE : rows;
    for (uint32_t row = 0; row < rows; row += strip) {
        job.rows = rows - row < strip ? rows - row : strip;
        job.from_bf16 = from + (size_t)row * inputs;
        workspace->weights->set->bf16->run(&job);
        norm_rows(workspace, step->layer, step->site == ENGINE_OUTPUT ? NORM_OUTPUT : NORM_ATTENTION, row,
                  row + job.rows, workspace->product);
    }
}

static void multiply(struct backend_workspace *workspace, uint32_t layer, enum engine_product product)
{
    struct cpu_step step = {workspace, layer, product, 1};
    uint32_t outputs = linear_of(&step)->weight.outputs, rows = workspace->pass->extent;
    bool residual = product == ENGINE_ATTENTION_OUTPUT || product == ENGINE_OUTPUT;
    if (outputs == 0) { return; }
    if (residual && takes_integers(linear_of(&step))) {
        step.chunks = cpu_chunks(workspace, rows, LEAST_ROWS);
        cpu_do(&step, convert_chunk);
    }
    if (goes_by_strips(workspace, layer, product)) {
        strips_on_tiles(&step);
        return;
    }
    step.chunks = cpu_chunks(workspace, outputs, LEAST_OUTPUTS);
    cpu_do(&step, gemm_chunk);
}

/* ---- what the pass calls ---- */

static enum status cpu_linear(struct backend_workspace *workspace, uint32_t layer, enum linear_site site,
                              struct err *err)
{
    static const enum engine_product products[] = {
        [LINEAR_QKV] = ENGINE_QUERY_KEY,
        [LINEAR_ATTENTION_OUTPUT] = ENGINE_ATTENTION_OUTPUT,
        [LINEAR_INTERMEDIATE] = ENGINE_INTERMEDIATE,
        [LINEAR_OUTPUT] = ENGINE_OUTPUT,
    };
    (void)err;
    multiply(workspace, layer, products[site]);
    if (site == LINEAR_QKV) { multiply(workspace, layer, ENGINE_VALUE); }
    return STATUS_OK;
}

static enum status cpu_norm(struct backend_workspace *workspace, uint32_t layer, enum norm_site site, struct err *err)
{
    (void)err;
    struct cpu_step step = {workspace, layer, site, cpu_chunks(workspace, workspace->pass->extent, LEAST_ROWS)};
    if (!goes_by_strips(workspace, layer, site == NORM_OUTPUT ? ENGINE_OUTPUT : ENGINE_ATTENTION_OUTPUT)) {
        cpu_do(&step, norm_chunk);
    }
    return STATUS_OK;
}

/* --- the forward pass --- */

/* Prefetches the embedding of a row's token. Embeddings are scattered over a large table, so each would wait for
 * memory. */
static void ask_word(const struct cpu_weights *weights, const struct pass *pass, uint32_t row, uint32_t token)
{
    if (token >= pass->length[row]) { return; }
    uint32_t width = weights->backend.model->hidden;
    const char *word = cpu_weights_word(weights, (uint32_t)pass->ids[pass->start[row] - pass->origin + token]);
    for (size_t i = 0; i < width * dtype_bytes(weights->word_dtype); i += 64) { __builtin_prefetch(word + i); }
}

static enum status cpu_embed(struct backend_workspace *workspace, const struct pass *pass, struct err *err)
{
    (void)err;
    const struct cpu_weights *weights = workspace->weights;
    uint32_t width = weights->backend.model->hidden, rows = model_text_rows(weights->backend.model);
    bool first_norm = weights->backend.model->first_norm;
    workspace->pass = pass;
    workspace->helped =
        workspace->parallel &&
        parallel_for_enter(workspace->parallel, pass->rows == 1 || pass->extent <= HELPED_TOKENS || pass->blocks);
    for (uint32_t r = 0; r < pass->rows; r++) {
        size_t at = pass->start[r] - pass->origin;
        uint32_t second = pass->second && pass->second[r] > 0 ? pass->second[r] : UINT32_MAX;
        uint32_t next = model_first_row(weights->backend.model);
        for (uint32_t t = 0; t < WORDS_AHEAD; t++) { ask_word(weights, pass, r, t); }
        for (uint32_t t = 0; t < pass->length[r]; t++) {
            ask_word(weights, pass, r, t + WORDS_AHEAD);
            int32_t id = pass->ids[at + t];
            const void *word = cpu_weights_word(weights, (uint32_t)id);
            size_t row = next_position_row(pass->position_offset, id, &next);
            size_t position = (row < rows ? row : 0) + (t < second ? 0 : pass->second_row);
            struct activations x = cpu_hidden_row(workspace, at + t);
            weights->set->kernels->embed(width, word, weights->word_dtype, weights->word_scale,
                                         weights->position + position * width, &weights->embedding_norm,
                                         first_norm ? workspace->sum + (at + t) * width : x.f32, x);
        }
    }
    if (workspace->sum != workspace->hidden && !first_norm) {
        memcpy(workspace->sum, workspace->hidden, (size_t)pass->extent * width * sizeof *workspace->sum);
    }
    convert_hidden(workspace, 0, 0, pass->extent);
    return STATUS_OK;
}

static void copy_either_way(void *in, void *kept, size_t bytes, bool back)
{
    memcpy(back ? in : kept, back ? kept : in, bytes);
}

static void cpu_copy_input(struct backend_workspace *workspace, uint32_t layer, float *rows, bool back)
{
    size_t count = (size_t)workspace->pass->extent * workspace->weights->backend.model->hidden;
    copy_either_way(workspace->hidden, rows, count * sizeof *rows, back);
    copy_either_way(workspace->sum, rows + count, count * sizeof *rows, back);
    if (workspace->hidden16) {
        copy_either_way(workspace->hidden16, rows + 2 * count, count * sizeof *workspace->hidden16, back);
    }
    if (back) { convert_hidden(workspace, layer, 0, workspace->pass->extent); }
}

/* Some heads of one row. */
static void attention_chunk(void *context, unsigned thread, unsigned chunk)
{
    const struct cpu_step *step = context;
    struct backend_workspace *workspace = step->workspace;
    const struct cpu_weights *weights = workspace->weights;
    const struct model *model = weights->backend.model;
    const struct pass *pass = workspace->pass;
    unsigned shares = step->chunks / pass->rows, r = chunk / shares, share = chunk % shares;
    size_t first = pass->start[r] - pass->origin;
    uint32_t head_dim = model_head_dim(model), length = pass->length[r];
    size_t outputs = model_query_width(model) + 2 * (size_t)model_key_width(model);
    const struct cpu_layer *layer = &weights->layers[step->layer];
    bool local = model->layers[step->layer].local;
    uint32_t reach = local && model->window < length ? model->window : length;
    struct attention_job job = {
        .length = length,
        .heads = model->heads,
        .key_heads = model_key_heads(model),
        .first_head = parallel_for_first(model->heads, share, shares),
        .last_head = parallel_for_first(model->heads, share + 1, shares),
        .head_dim = head_dim,
        .scale = 1.0f / sqrtf(model_score_width(model)),
        .query_norm = layer->query_norm.gain ? &layer->query_norm : NULL,
        .key_norm = layer->key_norm.gain ? &layer->key_norm : NULL,
        .rotary = weights->rotary[local],
        .before = reach,
        .behind = model->causal ? 0 : reach,
        .relative_bias = weights->relative_bias,
        .bias_reach = model->max_tokens - 1,
        .scratch = workspace->thread[thread].scratch,
    };
    if (workspace->context.f32) {
        job.context.f32 = workspace->context.f32 + first * model_query_width(model);
    } else {
        job.context.bf16 = workspace->context.bf16 + first * model_query_width(model);
    }
    if (weights->qkv_half) {
        job.qkv16 = workspace->wide16 + first * outputs;
        (weights->kind == GEMM_BF16 ? weights->set->bf16->attention : weights->set->int8->attention16)(&job);
    } else {
        job.qkv = workspace->wide + first * outputs;
        job.bias = layer->linear[ENGINE_QUERY_KEY].bias;
        weights->set->kernels->attention(&job);
    }
}

static enum status cpu_attention(struct backend_workspace *workspace, uint32_t layer, struct err *err)
{
    (void)err;
    uint32_t rows = workspace->pass->rows, heads = workspace->weights->backend.model->heads;
    uint32_t least = workspace->weights->kind != GEMM_BF16 ? LEAST_HEAD_TOKENS : LEAST_HEAD_TOKENS_TILES;
    unsigned shares = cpu_chunks(workspace, heads * workspace->pass->extent, least) / rows;
    shares = shares < 1 ? 1 : shares < heads ? shares : heads;
    struct cpu_step step = {workspace, layer, 0, rows * shares};
    cpu_do(&step, attention_chunk);
    return STATUS_OK;
}

static enum status cpu_pool(struct backend_workspace *workspace, struct err *err)
{
    (void)err;
    const struct cpu_weights *weights = workspace->weights;
    const struct model *model = weights->backend.model;
    const struct pass *pass = workspace->pass;
    for (uint32_t r = 0; r < pass->rows; r++) {
        const float *first = cpu_hidden_row(workspace, pass->start[r] - pass->origin).f32;
        float *vector = pass->output + (size_t)r * model->hidden;
        weights->set->kernels->pool(model->pooling, pass->length[r], model->hidden, first, vector);
    }
    return STATUS_OK;
}

static enum status cpu_submit(struct backend_workspace *workspace, struct err *err)
{
    (void)err;
    if (workspace->parallel) { parallel_for_leave(workspace->parallel, workspace->helped); }
    return STATUS_OK;
}

static enum status cpu_wait(struct backend_workspace *workspace, struct err *err)
{
    (void)err;
    workspace->pass = NULL;
    return STATUS_OK;
}

const struct backend_ops backend_cpu = {
    .name = "cpu",
    .batch = {.tokens = 4096, .rows = 256},
    .devices = cpu_devices,
    .choose = cpu_choose,
    .measures = true,
    .open = cpu_open,
    .close = cpu_close,
    .workspace_open = cpu_workspace_open,
    .workspace_join = cpu_workspace_join,
    .helped = cpu_helped,
    .workspace_close = cpu_workspace_close,
    .limits = cpu_limits,
    .embed = cpu_embed,
    .set_int8 = cpu_set_int8,
    .settle_int8 = cpu_settle_int8,
    .copy_input = cpu_copy_input,
    .linear = cpu_linear,
    .attention = cpu_attention,
    .norm = cpu_norm,
    .pool = cpu_pool,
    .submit = cpu_submit,
    .wait = cpu_wait,
    .decoder = &decoder_cpu,
};
