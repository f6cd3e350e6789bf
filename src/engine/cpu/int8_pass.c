#include "engine/cpu/int8_pass.h"

#include "engine/cpu/parallel_for.h"

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

size_t int8_space_lay_out(struct int8_space *space, const struct model *model, size_t rows, char *block)
{
    size_t hidden = round_up(model->hidden, INT8_STEP), inner = round_up(model->intermediate_size, INT8_STEP);
    size_t scales = round_up(rows * sizeof(float), 64), sums = rows * round_up(model->hidden, INT8_PANEL);
    if (hidden > inner)
        inner = hidden;
    if (block != NULL) {
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

static void quantise(const struct cpu_weights *weights, uint32_t rows, uint32_t width, struct activations from,
                     struct int8_rows to)
{
    weights->int8->quantise(rows, width, from, to, round_up(width, INT8_STEP));
}

void int8_pass_embedded(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work)
{
    quantise(weights, work->rows, weights->backend.model->hidden, (struct activations){.f32 = work->hidden},
             space->hidden);
}

void int8_pass_prepare(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                       enum linear_site site)
{
    const struct model *model = weights->backend.model;
    if (site == LINEAR_ATTENTION_OUTPUT && weights->tiles == NULL)
        quantise(weights, work->rows, model->hidden, work->context, space->inner);
    if (site == LINEAR_OUTPUT)
        quantise(weights, work->rows, model->intermediate_size, (struct activations){.bf16 = work->intermediate},
                 space->inner);
}

/* The attention's output in bf16. */
static void half_linear(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                        const struct cpu_linear *linear)
{
    uint32_t width = weights->backend.model->hidden, parts = width / TILES_MULTIPLE;
    struct product_job job = {
        .rows = work->rows,
        .outputs = width,
        .inputs = width,
        .first_output = team_range_first(parts, work->range, work->ranges) * TILES_MULTIPLE,
        .last_output = team_range_first(parts, work->range + 1, work->ranges) * TILES_MULTIPLE,
        .from = work->context.bf16,
        .packed = linear->tiles,
        .to = {.f32 = space->product},
    };
    weights->tiles->product(&job);
}

void int8_pass_linear(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                      uint32_t layer, enum linear_site site)
{
    const struct model *model = weights->backend.model;
    const struct cpu_linear *linear = &weights->layers[layer].linear[site];
    struct int8_job job = {
        .rows = work->rows,
        .weight = &linear->whole,
        .first_panel = team_range_first(linear->whole.panels, work->range, work->ranges),
        .last_panel = team_range_first(linear->whole.panels, work->range + 1, work->ranges),
        .from = space->inner,
        .end = INT8_SUMS,
        .activation = model->activation,
        .bias = linear->bias,
        .sums = space->sums,
    };
    if (linear->tiles != NULL) {
        half_linear(space, weights, work, linear);
        return;
    }
    if (site == LINEAR_QKV) {
        job.from = space->hidden;
        job.end = work->qkv.bf16 == NULL ? INT8_SCALED : INT8_BIAS;
        job.to = work->qkv;
    } else if (site == LINEAR_INTERMEDIATE) {
        job.from = space->hidden;
        job.end = INT8_ACTIVATION;
        job.to = (struct activations){.bf16 = work->intermediate};
    }
    weights->int8->product(&job);
}

void int8_pass_norm(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                    uint32_t layer, enum norm_site site)
{
    const struct cpu_layer *at = &weights->layers[layer];
    const struct cpu_linear *product = &at->linear[site == NORM_ATTENTION ? LINEAR_ATTENTION_OUTPUT : LINEAR_OUTPUT];
    struct int8_norm_job job = {
        .rows = work->rows,
        .outputs = weights->backend.model->hidden,
        .product = product->tiles == NULL ? NULL : space->product,
        .weight = &product->whole,
        .sums = space->sums,
        .from_scale = space->inner.scale,
        .from_offset = space->inner.offset,
        .bias = product->bias,
        .norm = &at->norm[site],
        .x = work->hidden,
        .to = space->hidden,
    };
    weights->int8->add_norm(&job);
}
