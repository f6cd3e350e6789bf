/* See int8_layers.h. */
#include "engine/cpu/int8_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "engine/cpu/parallel_for.h"

/* --- the ops of a layer --- */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

size_t int8_space_lay_out(struct int8_space *space, const struct model *model, size_t rows, char *block)
{
    size_t hidden = round_up(model->hidden, INT8_STEP), inner = round_up(model->intermediate_size, INT8_STEP);
    size_t scales = round_up(rows * sizeof(float), 64), sums = rows * round_up(model->hidden, INT8_PANEL);
    inner = 2 * (hidden > inner ? hidden : inner); /* in int16 */
    if (block) {
        space->sums = (int32_t *)block;
        space->product = (float *)block;
        space->hidden.scale = (float *)(block + sums * sizeof *space->sums);
        space->hidden.offset = NULL;
        space->inner.scale = (float *)(block + sums * sizeof *space->sums + scales);
        space->inner.offset = (float *)(block + sums * sizeof *space->sums + 2 * scales);
        space->hidden.value = (int8_t *)(block + sums * sizeof *space->sums + 3 * scales);
        space->inner.value = space->hidden.value + rows * hidden;
    }
    return sums * sizeof *space->sums + 3 * scales + rows * (hidden + inner);
}

/* The rows of an op's part: from `first` to before `last`. */
struct rows {
    uint32_t first, last;
};

static struct rows rows_of(const struct int8_work *work)
{
    return (struct rows){parallel_for_first(work->rows, work->chunk, work->chunks),
                         parallel_for_first(work->rows, work->chunk + 1, work->chunks)};
}

static struct activations activations_from(struct activations all, size_t at)
{
    return (struct activations){all.f32 ? all.f32 + at : NULL, all.bf16 ? all.bf16 + at : NULL};
}

/* Shapes: all [rows, row_bytes]. */
static struct scaled_rows scaled_from(struct scaled_rows all, size_t first, size_t row_bytes)
{
    return (struct scaled_rows){all.value + first * row_bytes, all.scale + first,
                                all.offset ? all.offset + first : NULL};
}

static void quantise_rows(const struct cpu_weights *weights, uint32_t rows, uint32_t width, struct activations from,
                          struct scaled_rows to)
{
    weights->set->int8->quantise(rows, width, from, to, round_up(width, INT8_STEP));
}

void int8_pass_embedded(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work)
{
    quantise_rows(weights, work->rows, weights->backend.model->hidden, (struct activations){.f32 = work->hidden},
                  space->hidden);
}

bool int8_pass_prepares(const struct cpu_weights *weights, uint32_t layer, enum linear_site site)
{
    enum gemm_kind kind = weights->layers[layer].linear[site].kind;
    return kind == GEMM_INT16 || (kind == GEMM_INT8 && site == LINEAR_OUTPUT);
}

void int8_pass_prepare(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                       uint32_t layer, enum linear_site site)
{
    const struct cpu_linear *linear = &weights->layers[layer].linear[site];
    struct activations from = {.f32 = work->hidden};
    struct rows rows = rows_of(work);
    uint32_t width = linear->weight.inputs, count = rows.last - rows.first;
    if (!int8_pass_prepares(weights, layer, site)) { return; }
    if (site == LINEAR_ATTENTION_OUTPUT) { from = work->context; }
    if (site == LINEAR_OUTPUT) { from = (struct activations){.bf16 = work->intermediate}; }
    from = activations_from(from, (size_t)rows.first * width);
    struct scaled_rows to =
        scaled_from(space->inner, rows.first, round_up(linear->kind == GEMM_INT16 ? 2 * width : width, INT8_STEP));
    if (linear->kind == GEMM_INT16) {
        weights->set->int8->quantise16(count, width, from, to);
    } else {
        quantise_rows(weights, count, width, from, to);
    }
}

void int8_pass_linear(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                      uint32_t layer, enum linear_site site)
{
    const struct cpu_linear *linear = &weights->layers[layer].linear[site];
    uint32_t outputs = linear->weight.outputs, panels = (outputs + INT8_PANEL - 1) / INT8_PANEL;
    uint32_t last = parallel_for_first(panels, work->chunk + 1, work->chunks) * INT8_PANEL;
    struct gemm_job job = {
        .rows = work->rows,
        .weight = &linear->weight,
        .first_output = parallel_for_first(panels, work->chunk, work->chunks) * INT8_PANEL,
        .last_output = last < outputs ? last : outputs,
        .from = linear->kind == GEMM_INT16 || site == LINEAR_OUTPUT ? space->inner : space->hidden,
        .end = linear->kind == GEMM_INT8 ? GEMM_SUMS : GEMM_PLAIN,
        .activation = weights->backend.model->activation,
        .bias = linear->bias,
        .sums = space->sums,
        .to.f32 = space->product,
    };
    if (site == LINEAR_ATTENTION_OUTPUT) {
        job.from_f32 = work->context.f32;
        job.from_bf16 = work->context.bf16;
    } else if (site == LINEAR_QKV) {
        job.end = work->qkv.bf16 ? GEMM_BIAS : GEMM_PLAIN;
        job.to = work->qkv;
    } else if (site == LINEAR_INTERMEDIATE) {
        job.end = weights->backend.model->gated ? GEMM_GATE : GEMM_ACTIVATION;
        job.to = (struct activations){.bf16 = work->intermediate};
    }
    gemm_run(weights->set, linear->kind, &job);
}

/* True if the product after a norm reads its rows in int8. */
static bool next_is_int8(const struct cpu_weights *weights, uint32_t layer, enum norm_site site)
{
    uint32_t next = site == NORM_OUTPUT ? layer + 1 : layer;
    return next < weights->backend.model->layer_count && cpu_weights_is_int8(weights, next);
}

void int8_pass_norm(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                    uint32_t layer, enum norm_site site)
{
    const struct cpu_layer *at = &weights->layers[layer];
    const struct cpu_linear *product = &at->linear[site == NORM_ATTENTION ? LINEAR_ATTENTION_OUTPUT : LINEAR_OUTPUT];
    struct rows rows = rows_of(work);
    size_t hidden = weights->backend.model->hidden, first = rows.first, begin = first * hidden;
    struct int8_norm_job job = {
        .rows = rows.last - rows.first,
        .outputs = (uint32_t)hidden,
        .product = product->kind == GEMM_INT8 ? NULL : space->product + begin,
        .weight = &product->weight,
        .sums = space->sums + first * product->weight.panels * INT8_PANEL,
        .from_scale = space->inner.scale + first,
        .from_offset = space->inner.offset + first,
        .bias = product->bias,
        .norm = &at->norm[site],
        .sum = work->sum + begin,
        .x = work->hidden + begin,
    };
    if (next_is_int8(weights, layer, site)) { job.to = scaled_from(space->hidden, first, round_up(hidden, INT8_STEP)); }
    weights->set->int8->add_norm(&job);
}

/* --- choosing the layers --- */

enum {
    TRIAL_ROWS = INT8_BLOCK,              /* tokens */
    PLAIN_OUTPUTS = 64,                   /* of a weight, read at once */
    MEAN_TOKENS = 2,                      /* of a text, if its vector is their mean */
    TRIAL_ROOM = TRIAL_ROWS + INT8_BLOCK, /* rows of an int8 buffer */
};

/* The largest mean of 1 - cosine that passes. The worst of the texts measured (docs/measurements/engine.md) were up to
 * 1.7 times as far off; their cosine should be 0.9995 or better. */
static const double ERROR_MOST = 2.8e-4;

struct int8_trial {
    const struct cpu_weights *weights;
    void *memory;   /* holds all buffers below */
    float *states;  /* [layer_count + 1, TRIAL_ROWS, hidden]: exact, before each layer and after the last */
    float *sums;    /* the same before the normalisation, with pre_norm; else `states` */
    float *product; /* [TRIAL_ROWS, hidden] */
    float *wide;    /* [TRIAL_ROOM, intermediate] */
    float *up;      /* the same, of a gated model */
    float *plain;   /* [PLAIN_OUTPUTS, longest input] */
    void *packed;   /* the same, packed */
    float *some;    /* [TRIAL_ROOM, PLAIN_OUTPUTS] of a product */
    struct int8_space space;
    struct int8_work work;
};

static size_t state_at(const struct int8_trial *trial, uint32_t layer)
{
    return (size_t)layer * TRIAL_ROWS * trial->weights->backend.model->hidden;
}

static float *state_of_layer(const struct int8_trial *trial, uint32_t layer)
{
    return trial->states + state_at(trial, layer);
}

/* Lays the buffers out in `block`, or nowhere (NULL); returns their size. */
static size_t lay_out(struct int8_trial *trial, char *block)
{
    const struct cpu_weights *weights = trial->weights;
    const struct model *model = weights->backend.model;
    size_t hidden = model->hidden, inner = model->intermediate_size, used = 0;
    size_t wide = 3 * hidden > inner ? 3 * hidden : inner, longest = hidden > inner ? hidden : inner;
    struct int8_work *work = &trial->work;
    size_t states = ((model->layer_count + 1) * TRIAL_ROWS + INT8_BLOCK) * hidden * sizeof(float);
    trial->states = memory_part(block, &used, states);
    trial->sums = model->pre_norm ? memory_part(block, &used, states) : trial->states;
    trial->product = memory_part(block, &used, TRIAL_ROWS * hidden * sizeof(float));
    trial->wide = memory_part(block, &used, TRIAL_ROOM * longest * sizeof(float));
    if (model->gated) { trial->up = memory_part(block, &used, TRIAL_ROOM * longest * sizeof(float)); }
    trial->plain = memory_part(block, &used, PLAIN_OUTPUTS * longest * sizeof(float));
    trial->packed = memory_part(block, &used, gemm_weight_bytes(GEMM_F32, PLAIN_OUTPUTS, (uint32_t)longest));
    trial->some = memory_part(block, &used, TRIAL_ROOM * PLAIN_OUTPUTS * sizeof(float));
    work->hidden = memory_part(block, &used, TRIAL_ROOM * hidden * sizeof(float));
    work->sum = model->pre_norm ? memory_part(block, &used, TRIAL_ROWS * hidden * sizeof(float)) : work->hidden;
    work->intermediate = memory_part(block, &used, TRIAL_ROOM * wide * sizeof(uint16_t));
    if (weights->qkv_half) {
        work->qkv.bf16 = work->intermediate;
    } else {
        work->qkv.f32 = memory_part(block, &used, TRIAL_ROOM * 3 * hidden * sizeof(float));
    }
    if (cpu_weights_are_half(weights)) {
        work->context.bf16 = memory_part(block, &used, TRIAL_ROOM * hidden * sizeof(uint16_t));
    } else {
        work->context.f32 = memory_part(block, &used, TRIAL_ROOM * hidden * sizeof(float));
    }
    return used + int8_space_lay_out(&trial->space, model, TRIAL_ROOM, memory_part(block, &used, 0));
}

/* --- in f32 --- */

/* Embeds tokens from all over the vocabulary. At this point the sums equal the normalised states, too. */
static void embed_trial(struct int8_trial *trial)
{
    const struct cpu_weights *weights = trial->weights;
    const struct model *model = weights->backend.model;
    const float *position = weights->position + (size_t)model_first_row(model) * model->hidden;
    for (uint32_t row = 0; row < TRIAL_ROWS; row++) {
        uint32_t id = (uint32_t)((uint64_t)model->vocabulary * (2 * row + 1) / (2 * TRIAL_ROWS));
        struct activations x = {.f32 = state_of_layer(trial, 0) + (size_t)row * model->hidden};
        weights->set->kernels->embed(model->hidden, cpu_weights_word(weights, id), weights->word_dtype,
                                     weights->word_scale, position, &weights->embedding_norm, x.f32, x);
    }
    memmove(trial->sums, trial->states, TRIAL_ROWS * model->hidden * sizeof *trial->sums);
}

static void multiply_trial(struct int8_trial *trial, const struct linear *linear, uint32_t outputs, uint32_t inputs,
                           const float *from, float *to)
{
    for (uint32_t first = 0; first < outputs; first += PLAIN_OUTPUTS) {
        uint32_t some = outputs - first < PLAIN_OUTPUTS ? outputs - first : PLAIN_OUTPUTS;
        struct gemm_weight weight;
        tensor_read_f32(&linear->weight, (size_t)first * inputs, (size_t)some * inputs, trial->plain);
        gemm_pack(trial->weights->set, GEMM_F32, some, inputs, trial->plain, false, trial->packed, &weight);
        gemm_run(trial->weights->set, GEMM_F32,
                 &(struct gemm_job){.rows = TRIAL_ROWS,
                                    .weight = &weight,
                                    .last_output = some,
                                    .from_f32 = from,
                                    .end = GEMM_PLAIN,
                                    .to.f32 = trial->some});
        for (size_t row = 0; row < TRIAL_ROWS; row++) {
            memcpy(to + row * outputs + first, trial->some + row * some, some * sizeof *to);
        }
    }
}

/* The activated intermediate product, in `wide`; for a gated model GATE_WIDTH outputs at a time, because its two parts
 * alternate. */
static void feed_forward(struct int8_trial *trial, uint32_t layer, const float *x)
{
    const struct cpu_weights *weights = trial->weights;
    const struct kernels *kernels = weights->set->kernels;
    const struct model *model = weights->backend.model;
    const struct model_layer *from = &model->layers[layer];
    const float *bias = weights->layers[layer].linear[LINEAR_INTERMEDIATE].bias;
    uint32_t inner = model->intermediate_size;
    struct activations to = {.f32 = trial->wide};
    multiply_trial(trial, &from->intermediate, inner, model->hidden, x, trial->wide);
    if (!model->gated) {
        kernels->activate(TRIAL_ROWS, inner, model->activation, trial->wide, bias, to, inner);
        return;
    }
    multiply_trial(trial, &from->up, inner, model->hidden, x, trial->up);
    for (uint32_t i = 0; i < inner; i += GATE_WIDTH, to.f32 += GATE_WIDTH, bias += 2 * GATE_WIDTH) {
        float both[TRIAL_ROWS][2][GATE_WIDTH];
        for (size_t row = 0; row < TRIAL_ROWS; row++) {
            memcpy(both[row][0], trial->wide + row * inner + i, sizeof both[row][0]);
            memcpy(both[row][1], trial->up + row * inner + i, sizeof both[row][1]);
        }
        kernels->gate(TRIAL_ROWS, GATE_WIDTH, model->activation, both[0][0], bias, to, inner);
    }
}

/* Runs one layer in f32. Each token attends only to itself, so its context is its value. */
static void run_exact(struct int8_trial *trial, uint32_t layer)
{
    const struct cpu_weights *weights = trial->weights;
    const struct kernels *kernels = weights->set->kernels;
    const struct model *model = weights->backend.model;
    const struct model_layer *from = &model->layers[layer];
    const struct cpu_layer *at = &weights->layers[layer];
    uint32_t hidden = model->hidden;
    struct activations x = {.f32 = state_of_layer(trial, layer + 1)};
    float *sum = trial->sums + state_at(trial, layer + 1);
    memcpy(x.f32, state_of_layer(trial, layer), TRIAL_ROWS * hidden * sizeof *x.f32);
    memcpy(sum, trial->sums + state_at(trial, layer), TRIAL_ROWS * hidden * sizeof *sum);
    multiply_trial(trial, &from->value, hidden, hidden, x.f32, trial->wide);
    for (size_t i = 0; i < (size_t)TRIAL_ROWS * hidden; i++) {
        trial->wide[i] += at->linear[LINEAR_QKV].bias[2 * hidden + i % hidden];
    }
    multiply_trial(trial, &from->attention_output, hidden, hidden, trial->wide, trial->product);
    kernels->add_norm(TRIAL_ROWS, hidden, trial->product, at->linear[LINEAR_ATTENTION_OUTPUT].bias,
                      &at->norm[NORM_ATTENTION], sum, x);
    feed_forward(trial, layer, x.f32);
    multiply_trial(trial, &from->output, hidden, model->intermediate_size, trial->wide, trial->product);
    kernels->add_norm(TRIAL_ROWS, hidden, trial->product, at->linear[LINEAR_OUTPUT].bias, &at->norm[NORM_OUTPUT], sum,
                      x);
}

static enum status prepare_trial(struct int8_trial *trial, struct err *err)
{
    size_t bytes = lay_out(trial, NULL);
    trial->memory = memory_aligned(bytes);
    if (!trial->memory) { return err_set(err, STATUS_NO_MEMORY, "no memory to try int8 (%zu bytes)", bytes); }
    memset(trial->memory, 0, bytes); /* memory past the last row is read, too */
    lay_out(trial, trial->memory);
    embed_trial(trial);
    for (uint32_t layer = 0; layer < trial->weights->backend.model->layer_count; layer++) { run_exact(trial, layer); }
    return STATUS_OK;
}

enum status int8_trial_open(const struct cpu_weights *weights, struct int8_trial **out, struct err *err)
{
    struct int8_trial *trial = calloc(1, sizeof *trial);
    if (!trial) { return err_set(err, STATUS_NO_MEMORY, "no memory to try int8"); }
    trial->weights = weights;
    trial->work.rows = TRIAL_ROWS;
    trial->work.chunks = 1;
    enum status status = prepare_trial(trial, err);
    if (status != STATUS_OK) {
        int8_trial_close(trial);
        return status;
    }
    *out = trial;
    return STATUS_OK;
}

void int8_trial_close(struct int8_trial *trial)
{
    if (!trial) { return; }
    free(trial->memory);
    free(trial);
}

/* --- in int8 --- */

static void run_linear(struct int8_trial *trial, uint32_t layer, enum linear_site site)
{
    int8_pass_prepare(&trial->space, trial->weights, &trial->work, layer, site);
    int8_pass_linear(&trial->space, trial->weights, &trial->work, layer, site);
}

/* Attention of each token to itself only. */
static void keep_values(struct int8_trial *trial, uint32_t layer)
{
    const struct int8_work *work = &trial->work;
    size_t hidden = trial->weights->backend.model->hidden;
    const float *bias = trial->weights->layers[layer].linear[LINEAR_QKV].bias + 2 * hidden;
    for (size_t row = 0; row < TRIAL_ROWS; row++) {
        size_t from = (3 * row + 2) * hidden, to = row * hidden;
        for (size_t i = 0; i < hidden; i++) {
            uint32_t bits = work->qkv.bf16 ? (uint32_t)work->qkv.bf16[from + i] << 16 : 0;
            float value;
            memcpy(&value, &bits, sizeof value);
            if (work->qkv.f32) { value = work->qkv.f32[from + i] + bias[i]; }
            if (work->context.f32) {
                work->context.f32[to + i] = value;
            } else {
                work->context.bf16[to + i] = bf16_of(value);
            }
        }
    }
}

static void run_int8(struct int8_trial *trial, uint32_t layer)
{
    run_linear(trial, layer, LINEAR_QKV);
    keep_values(trial, layer);
    run_linear(trial, layer, LINEAR_ATTENTION_OUTPUT);
    int8_pass_norm(&trial->space, trial->weights, &trial->work, layer, NORM_ATTENTION);
    run_linear(trial, layer, LINEAR_INTERMEDIATE);
    run_linear(trial, layer, LINEAR_OUTPUT);
    int8_pass_norm(&trial->space, trial->weights, &trial->work, layer, NORM_OUTPUT);
}

static double one_less_cosine(const float *a, const float *b, size_t count)
{
    double aa = 0, bb = 0, ab = 0;
    for (size_t i = 0; i < count; i++) {
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
        ab += (double)a[i] * (double)b[i];
    }
    return 1 - ab / sqrt(aa * bb);
}

bool int8_trial_passes(struct int8_trial *trial, uint32_t first)
{
    const struct cpu_weights *weights = trial->weights;
    const struct model *model = weights->backend.model;
    uint32_t tokens = model->pooling == POOLING_CLS || model->pooling == POOLING_LAST ? 1 : MEAN_TOKENS;
    const float *exact = state_of_layer(trial, model->layer_count), *near = trial->work.hidden;
    float *vector = trial->product;
    double error = 0;
    memcpy(trial->work.hidden, state_of_layer(trial, first), TRIAL_ROWS * model->hidden * sizeof(float));
    memcpy(trial->work.sum, trial->sums + state_at(trial, first), TRIAL_ROWS * model->hidden * sizeof(float));
    int8_pass_embedded(&trial->space, weights, &trial->work);
    for (uint32_t layer = first; layer < model->layer_count; layer++) { run_int8(trial, layer); }
    for (size_t row = 0; row < TRIAL_ROWS; row += tokens) {
        weights->set->kernels->pool(POOLING_MEAN, tokens, model->hidden, exact + row * model->hidden, vector);
        weights->set->kernels->pool(POOLING_MEAN, tokens, model->hidden, near + row * model->hidden,
                                    vector + model->hidden);
        error += one_less_cosine(vector, vector + model->hidden, model->hidden);
    }
    return error <= ERROR_MOST * TRIAL_ROWS / tokens; /* false for NaN */
}
