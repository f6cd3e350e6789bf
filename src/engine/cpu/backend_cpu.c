/* The CPU backend: one compute thread per workspace, and helpers for passes of few tokens or of one text
 * (parallel_for.h). gemm.h lists the products; kernels.h has everything between them.
 *
 * Activations stay f32 from end to end; in bf16 only the operands of a product are rounded. The bias is added by the
 * pass over memory that comes next anyway: the activation after the intermediate product, the normalisation after the
 * two products that end in a residual, attention after queries, keys and values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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
    bool can = asked == PRECISION_F32 || asked == PRECISION_INT8 || asked == PRECISION_BF16;
    return can ? asked : PRECISION_AUTO;
}

/* Linux names the processor in /proc/cpuinfo on x86; on other machines it may not. */
static void find_model(char *out, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(out, size, "unknown processor");
    while (file && fgets(line, sizeof line, file)) {
        char *name = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!name) { continue; }
        name += 1 + strspn(name + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(name, "\n"), name);
        break;
    }
    if (file) { fclose(file); }
}

/* Writes down which products are in int8. */
static enum status note_choice(struct cpu_weights *weights, struct err *err)
{
    struct engine_int8 *choice = &weights->choice;
    uint32_t layers = weights->backend.model->layer_count;
    *choice = (struct engine_int8){.layers = layers, .mean_error = NAN, .worst_error = NAN};
    choice->others = weights->kind == GEMM_INT16 ? "16-bit integers" : cpu_weights_are_half(weights) ? "bf16" : "f32";
    choice->in_int8 = calloc(layers, sizeof *choice->in_int8);
    if (!choice->in_int8) { return err_set(err, STATUS_NO_MEMORY, "no memory for the products of %u layers", layers); }
    for (uint32_t layer = 0; layer < layers; layer++) {
        for (int product = 0; product < ENGINE_PRODUCTS; product++) {
            bool in_int8 = cpu_weights_is_int8(weights, layer) && product != ENGINE_ATTENTION_OUTPUT;
            choice->in_int8[layer][product] = in_int8;
            choice->count[product] += in_int8;
            choice->total += in_int8;
        }
    }
    weights->backend.int8 = choice;
    return STATUS_OK;
}

/* In int8 the text includes the number of such layers, and what the others run in, because the time depends on it. */
static void describe_weights(struct cpu_weights *weights)
{
    char kernels[100];
    uint32_t layers = weights->backend.model->layer_count, int8 = layers - weights->first_int8_layer;
    snprintf(kernels, sizeof kernels, "%s", weights->set->name);
    if (weights->int8) {
        const char *others = int8 == layers                  ? ""
                             : weights->kind == GEMM_INT16   ? ", the others in 16-bit integers"
                             : cpu_weights_are_half(weights) ? ", the others in bf16"
                                                             : ", the others in f32";
        snprintf(kernels, sizeof kernels, "%s, %u of %u layers in int8%s", weights->set->name, int8, layers, others);
    }
    char name[80];
    find_model(name, sizeof name);
    snprintf(weights->backend.device, sizeof weights->backend.device, "%s, %s, %u threads", name, kernels,
             engine_default_threads());
}

static enum status cpu_open(const struct model *model, const struct engine_options *options, struct backend **out,
                            struct err *err)
{
    struct cpu_weights *weights;
    if (options->device != 0) {
        return err_set(err, STATUS_UNSUPPORTED, "device %u: the CPU backend has device 0 alone", options->device);
    }
    TRY(cpu_weights_open(model, options->precision, &weights, err));
    weights->backend =
        (struct backend){.model = model, .precision = options->precision, .weight_bytes = weights->bytes, .slots = 1};
    describe_weights(weights);
    if (weights->int8 && note_choice(weights, err) != STATUS_OK) {
        cpu_weights_close(weights);
        return STATUS_NO_MEMORY;
    }
    *out = &weights->backend;
    return STATUS_OK;
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

/* --- the four products of a layer, each with the step that its kernels do along with it --- */

/* The least size of a chunk: outputs of a product, rows of a normalisation. */
enum { LEAST_OUTPUTS = 64, LEAST_ROWS = 8 };

static bool ends_in_residual(enum linear_site site)
{
    return site == LINEAR_ATTENTION_OUTPUT || site == LINEAR_OUTPUT;
}

static enum norm_site norm_behind(enum linear_site site)
{
    return site == LINEAR_OUTPUT ? NORM_OUTPUT : NORM_ATTENTION;
}

/* The input of a product, unless it is in int8 or split. */
static const void *input_of(const struct backend_workspace *workspace, enum linear_site site)
{
    bool half = workspace->context.bf16;
    if (site == LINEAR_ATTENTION_OUTPUT) {
        return half ? (const void *)workspace->context.bf16 : workspace->context.f32;
    }
    if (site == LINEAR_OUTPUT) { return half ? (const void *)workspace->wide16 : workspace->wide; }
    return half ? (const void *)workspace->hidden16 : workspace->hidden;
}

/* Splits rows of `hidden` for the next product, if that is split_f32. */
static void split_hidden(struct backend_workspace *workspace, uint32_t first, uint32_t last)
{
    const struct cpu_weights *weights = workspace->weights;
    if (weights->kind == GEMM_SPLIT_F32) {
        weights->set->split_f32->split(first, last, weights->backend.model->hidden, workspace->hidden,
                                       workspace->hidden_split);
    }
}

/* ---- normalisation of f32 products ---- */

static void norm_rows(struct backend_workspace *workspace, uint32_t layer, enum norm_site site, uint32_t first,
                      uint32_t last, float *product)
{
    const struct cpu_weights *weights = workspace->weights;
    const struct cpu_layer *at = &weights->layers[layer];
    enum linear_site behind = site == NORM_ATTENTION ? LINEAR_ATTENTION_OUTPUT : LINEAR_OUTPUT;
    const struct kernels *kernels = weights->set->kernels;
    uint32_t width = weights->backend.model->hidden;
    if (at->added_norm[site].gain) { kernels->norm(last - first, width, &at->added_norm[site], product); }
    kernels->add_norm(last - first, width, product, at->linear[behind].bias, &at->norm[site],
                      workspace->sum + (size_t)first * width, cpu_hidden_row(workspace, first));
    split_hidden(workspace, first, last);
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

static void norm_all(struct backend_workspace *workspace, uint32_t layer, enum norm_site site)
{
    struct cpu_step step = {workspace, layer, site, cpu_chunks(workspace, workspace->pass->extent, LEAST_ROWS)};
    cpu_do(&step, norm_chunk);
}

/* ---- in f32 or bf16 ---- */

static struct gemm_job job_of(struct backend_workspace *workspace, uint32_t layer, enum linear_site site)
{
    const struct cpu_weights *weights = workspace->weights;
    const struct cpu_linear *linear = &weights->layers[layer].linear[site];
    const void *from = input_of(workspace, site);
    bool half = cpu_weights_are_half(weights);
    struct gemm_job job = {
        .rows = workspace->pass->extent,
        .weight = &linear->weight,
        .last_output = linear->weight.outputs,
        .from_f32 = half ? NULL : from,
        .from_bf16 = half ? from : NULL,
        .from = ends_in_residual(site) ? workspace->inner_split : workspace->hidden_split,
        .end = site == LINEAR_INTERMEDIATE ? GEMM_ACTIVATION : GEMM_PLAIN,
        .activation = weights->backend.model->activation,
        .bias = linear->bias,
        .to.f32 = ends_in_residual(site) ? workspace->product : workspace->wide,
    };
    if (site == LINEAR_INTERMEDIATE && weights->backend.model->gated) { job.end = GEMM_GATE; }
    if (half && site == LINEAR_INTERMEDIATE) { job.to = (struct activations){.bf16 = workspace->wide16}; }
    if (weights->qkv_half && site == LINEAR_QKV) {
        job.to = (struct activations){.bf16 = workspace->wide16};
        job.end = GEMM_BIAS;
    }
    if (linear->kind == GEMM_BF16) {
        job.from_tiled = site == LINEAR_OUTPUT;
        job.to_tiled = site == LINEAR_INTERMEDIATE;
        job.to.bf16 = workspace->wide16;
    }
    return job;
}

/* A chunk is some panels of outputs. */
static void gemm_chunk(void *context, unsigned thread, unsigned chunk)
{
    (void)thread;
    const struct cpu_step *step = context;
    const struct cpu_weights *weights = step->workspace->weights;
    struct gemm_job job = job_of(step->workspace, step->layer, (enum linear_site)step->site);
    uint32_t panel = weights->kind == GEMM_SPLIT_F32 ? SPLIT_ROWS : GEMM_MULTIPLE;
    uint32_t panels = (job.weight->outputs + panel - 1) / panel;
    uint32_t last = parallel_for_first(panels, chunk + 1, step->chunks) * panel;
    job.first_output = parallel_for_first(panels, chunk, step->chunks) * panel;
    job.last_output = last < job.last_output ? last : job.last_output;
    gemm_run(weights->set, weights->kind, &job);
}

static void gemm_all(struct backend_workspace *workspace, uint32_t layer, enum linear_site site)
{
    uint32_t outputs = workspace->weights->layers[layer].linear[site].weight.outputs;
    struct cpu_step step = {workspace, layer, site, cpu_chunks(workspace, outputs, LEAST_OUTPUTS)};
    cpu_do(&step, gemm_chunk);
}

/* Works strip by strip if the whole weight and a strip fit in the second-level cache: each strip's sums are then
 * normalised while they are in the cache. */
static void amx_strips(struct backend_workspace *workspace, uint32_t layer, enum linear_site site)
{
    struct gemm_job job = job_of(workspace, layer, site);
    const uint16_t *from = job.from_bf16;
    uint32_t outputs = job.weight->outputs, inputs = job.weight->inputs;
    bool stays = (size_t)outputs * inputs * sizeof *from <= gemm_cache() / 4 * 3;
    uint32_t rows = job.rows, strip = stays ? GEMM_MULTIPLE : rows;
    for (uint32_t row = 0; row < rows; row += strip) {
        job.rows = rows - row < strip ? rows - row : strip;
        job.from_bf16 = from + (size_t)row * inputs;
        workspace->weights->set->bf16->run(&job);
        norm_rows(workspace, layer, norm_behind(site), row, row + job.rows, workspace->product);
    }
}

static void amx_gemm(struct backend_workspace *workspace, uint32_t layer, enum linear_site site)
{
    if (ends_in_residual(site) && !workspace->helped) {
        amx_strips(workspace, layer, site);
        return;
    }
    gemm_all(workspace, layer, site);
    if (ends_in_residual(site)) { norm_all(workspace, layer, norm_behind(site)); }
}

static void split_chunk(void *context, unsigned thread, unsigned chunk)
{
    (void)thread;
    const struct cpu_step *step = context;
    struct backend_workspace *workspace = step->workspace;
    const struct cpu_weights *weights = workspace->weights;
    uint32_t rows = workspace->pass->extent, inputs = weights->layers[step->layer].linear[step->site].weight.inputs;
    weights->set->split_f32->split(parallel_for_first(rows, chunk, step->chunks),
                                   parallel_for_first(rows, chunk + 1, step->chunks), inputs,
                                   input_of(workspace, (enum linear_site)step->site), workspace->inner_split);
}

static void split_f32_gemm(struct backend_workspace *workspace, uint32_t layer, enum linear_site site)
{
    if (ends_in_residual(site)) {
        struct cpu_step split = {workspace, layer, site, cpu_chunks(workspace, workspace->pass->extent, LEAST_ROWS)};
        cpu_do(&split, split_chunk);
    }
    gemm_all(workspace, layer, site);
}

/* ---- in int8 and int16 ---- */

static struct int8_work int8_work_of(const struct backend_workspace *workspace, unsigned chunk, unsigned chunks)
{
    bool half = workspace->weights->qkv_half;
    return (struct int8_work){
        .rows = workspace->pass->extent,
        .sum = workspace->sum,
        .hidden = workspace->hidden,
        .qkv = {.f32 = half ? NULL : workspace->wide, .bf16 = half ? workspace->wide16 : NULL},
        .context = workspace->context,
        .intermediate = workspace->wide16,
        .chunk = chunk,
        .chunks = chunks,
    };
}

static void int8_prepare_chunk(void *context, unsigned thread, unsigned chunk)
{
    (void)thread;
    const struct cpu_step *step = context;
    struct int8_work work = int8_work_of(step->workspace, chunk, step->chunks);
    int8_pass_prepare(&step->workspace->int8, step->workspace->weights, &work, step->layer,
                      (enum linear_site)step->site);
}

static void int8_norm_chunk(void *context, unsigned thread, unsigned chunk)
{
    (void)thread;
    const struct cpu_step *step = context;
    struct int8_work work = int8_work_of(step->workspace, chunk, step->chunks);
    int8_pass_norm(&step->workspace->int8, step->workspace->weights, &work, step->layer, (enum norm_site)step->site);
}

static void int8_chunk(void *context, unsigned thread, unsigned chunk)
{
    (void)thread;
    const struct cpu_step *step = context;
    struct int8_work work = int8_work_of(step->workspace, chunk, step->chunks);
    int8_pass_linear(&step->workspace->int8, step->workspace->weights, &work, step->layer,
                     (enum linear_site)step->site);
}

static void int8_gemm(struct backend_workspace *workspace, uint32_t layer, enum linear_site site)
{
    const struct cpu_weights *weights = workspace->weights;
    uint32_t outputs = weights->layers[layer].linear[site].weight.outputs;
    struct cpu_step prepare = {workspace, layer, site, cpu_chunks(workspace, workspace->pass->extent, LEAST_ROWS)};
    struct cpu_step step = {workspace, layer, site, cpu_chunks(workspace, outputs, LEAST_OUTPUTS)};
    if (int8_pass_prepares(weights, layer, site)) { cpu_do(&prepare, int8_prepare_chunk); }
    cpu_do(&step, int8_chunk);
}

static void int8_norm(struct backend_workspace *workspace, uint32_t layer, enum norm_site site)
{
    struct cpu_step step = {workspace, layer, site, cpu_chunks(workspace, workspace->pass->extent, LEAST_ROWS)};
    cpu_do(&step, int8_norm_chunk);
}

/* Quantises the input of the first layer in int8. */
static void int8_embedded(struct backend_workspace *workspace)
{
    struct int8_work work = int8_work_of(workspace, 0, 1);
    int8_pass_embedded(&workspace->int8, workspace->weights, &work);
}

/* ---- what the pass calls ---- */

static enum status cpu_linear(struct backend_workspace *workspace, uint32_t layer, enum linear_site site,
                              struct err *err)
{
    (void)err;
    const struct cpu_weights *weights = workspace->weights;
    if (cpu_weights_are_integers(weights, layer)) {
        int8_gemm(workspace, layer, site);
    } else if (weights->kind == GEMM_BF16) {
        amx_gemm(workspace, layer, site);
    } else if (weights->kind == GEMM_SPLIT_F32) {
        split_f32_gemm(workspace, layer, site);
    } else {
        gemm_all(workspace, layer, site);
    }
    return STATUS_OK;
}

static enum status cpu_norm(struct backend_workspace *workspace, uint32_t layer, enum norm_site site, struct err *err)
{
    (void)err;
    const struct cpu_weights *weights = workspace->weights;
    if (cpu_weights_are_integers(weights, layer)) {
        int8_norm(workspace, layer, site);
        return STATUS_OK;
    }
    if (weights->kind != GEMM_BF16) { norm_all(workspace, layer, site); }
    if (site == NORM_OUTPUT && layer + 1 == weights->first_int8_layer && weights->int8) { int8_embedded(workspace); }
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
    workspace->helped = workspace->parallel &&
                        parallel_for_enter(workspace->parallel, pass->rows == 1 || pass->extent <= HELPED_TOKENS);
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
    if (cpu_weights_is_int8(workspace->weights, 0)) { int8_embedded(workspace); }
    split_hidden(workspace, 0, pass->extent);
    return STATUS_OK;
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
        job.qkv16 = workspace->wide16 + first * layer->linear[LINEAR_QKV].weight.outputs;
        (weights->kind == GEMM_BF16 ? weights->set->bf16->attention : weights->set->int8->attention16)(&job);
    } else {
        job.qkv = workspace->wide + first * layer->linear[LINEAR_QKV].weight.outputs;
        job.bias = layer->linear[LINEAR_QKV].bias;
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
    .linear = cpu_linear,
    .attention = cpu_attention,
    .norm = cpu_norm,
    .pool = cpu_pool,
    .submit = cpu_submit,
    .wait = cpu_wait,
};
