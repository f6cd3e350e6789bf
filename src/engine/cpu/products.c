/* The four products of a layer on the CPU, each with what its kernels do on the way. */
#include "engine/cpu/workspace.h"

/* The largest weight, in elements, that stays in a second-level cache beside a strip of rows. */
enum { STRIP_WEIGHTS = 3 << 18 };

/* What a range has at least: of a product on tiles that many outputs, of a normalisation that many rows. */
enum { LEAST_OUTPUTS = 64, LEAST_ROWS = 8 };

static bool ends_in_residual(enum linear_site site)
{
    return site == LINEAR_ATTENTION_OUTPUT || site == LINEAR_OUTPUT;
}

static enum norm_site norm_behind(enum linear_site site)
{
    return site == LINEAR_OUTPUT ? NORM_OUTPUT : NORM_ATTENTION;
}

/* What a product reads that is not in int8. */
static const void *input_of(const struct backend_stream *stream, enum linear_site site)
{
    bool half = stream->context.bf16 != NULL;
    if (site == LINEAR_ATTENTION_OUTPUT)
        return half ? (const void *)stream->context.bf16 : stream->context.f32;
    if (site == LINEAR_OUTPUT)
        return half ? (const void *)stream->wide16 : stream->wide;
    return half ? (const void *)stream->hidden16 : stream->hidden;
}

/* The rows of `hidden` as the next product wants them. */
static void split_hidden(struct backend_stream *stream, uint32_t first, uint32_t last)
{
    const struct cpu_weights *weights = stream->weights;
    if (weights->digits != NULL)
        weights->digits->split(first, last, weights->backend.model->hidden, stream->hidden, stream->hidden_digits);
}

/* ---- normalisation of f32 products ---- */

static void norm_rows(struct backend_stream *stream, uint32_t layer, enum norm_site site, uint32_t first, uint32_t last,
                      const float *product)
{
    const struct cpu_weights *weights = stream->weights;
    const struct cpu_layer *at = &weights->layers[layer];
    enum linear_site behind = site == NORM_ATTENTION ? LINEAR_ATTENTION_OUTPUT : LINEAR_OUTPUT;
    weights->kernels->add_norm(last - first, weights->backend.model->hidden, product, at->linear[behind].bias,
                               &at->norm[site], cpu_hidden_row(stream, first));
    split_hidden(stream, first, last);
}

static void norm_range(void *context, unsigned hand, unsigned range)
{
    (void)hand;
    const struct cpu_step *step = context;
    struct backend_stream *stream = step->stream;
    uint32_t rows = stream->pass->extent, first = team_range_first(rows, range, step->ranges);
    norm_rows(stream, step->layer, (enum norm_site)step->site, first, team_range_first(rows, range + 1, step->ranges),
              stream->product + (size_t)first * stream->weights->backend.model->hidden);
}

static enum status norm_all(struct backend_stream *stream, uint32_t layer, enum norm_site site, struct err *err)
{
    struct cpu_step step = {stream, layer, site, cpu_ranges(stream, stream->pass->extent, LEAST_ROWS)};
    return cpu_do(&step, norm_range, err);
}

/* ---- on tiles ---- */

static struct product_job tiles_job(struct backend_stream *stream, uint32_t layer, enum linear_site site)
{
    const struct cpu_weights *weights = stream->weights;
    const struct cpu_linear *linear = &weights->layers[layer].linear[site];
    struct product_job job = {
        .rows = stream->pass->extent,
        .from = input_of(stream, site),
        .from_tiled = site == LINEAR_OUTPUT,
        .to_tiled = site == LINEAR_INTERMEDIATE,
        .packed = linear->tiles,
        .activation = weights->backend.model->activation,
        .bias = linear->bias,
    };
    backend_linear_shape(weights->backend.model, site, &job.outputs, &job.inputs);
    job.last_output = job.outputs;
    if (ends_in_residual(site)) {
        job.end = END_NOTHING;
        job.to.f32 = stream->product;
    } else {
        job.end = site == LINEAR_QKV ? END_BIAS : END_BIAS_ACTIVATION;
        job.to.bf16 = stream->wide16;
    }
    return job;
}

static void tiles_range(void *context, unsigned hand, unsigned range)
{
    (void)hand;
    const struct cpu_step *step = context;
    struct product_job job = tiles_job(step->stream, step->layer, (enum linear_site)step->site);
    uint32_t parts = job.outputs / TILES_MULTIPLE;
    job.first_output = team_range_first(parts, range, step->ranges) * TILES_MULTIPLE;
    job.last_output = team_range_first(parts, range + 1, step->ranges) * TILES_MULTIPLE;
    step->stream->weights->tiles->product(&job);
}

/* Strip by strip where a strip can pass the whole weight in the second-level cache: then its sums are normalised while
 * they are there. */
static void tiles_strips(struct backend_stream *stream, uint32_t layer, enum linear_site site)
{
    struct product_job job = tiles_job(stream, layer, site);
    const uint16_t *from = job.from;
    bool stays = (size_t)job.outputs * job.inputs <= STRIP_WEIGHTS;
    uint32_t rows = job.rows, strip = stays ? TILES_MULTIPLE : rows;
    for (uint32_t row = 0; row < rows; row += strip) {
        job.rows = rows - row < strip ? rows - row : strip;
        job.from = from + (size_t)row * job.inputs;
        stream->weights->tiles->product(&job);
        norm_rows(stream, layer, norm_behind(site), row, row + job.rows, stream->product);
    }
}

static enum status tiles_product(struct backend_stream *stream, uint32_t layer, enum linear_site site, struct err *err)
{
    if (ends_in_residual(site) && !stream->helped) {
        tiles_strips(stream, layer, site);
        return STATUS_OK;
    }
    uint32_t outputs, inputs;
    backend_linear_shape(stream->weights->backend.model, site, &outputs, &inputs);
    struct cpu_step step = {stream, layer, site, cpu_ranges(stream, outputs, LEAST_OUTPUTS)};
    TRY(cpu_do(&step, tiles_range, err));
    return ends_in_residual(site) ? norm_all(stream, layer, norm_behind(site), err) : STATUS_OK;
}

/* ---- by digits ---- */

static void digits_range(void *context, unsigned hand, unsigned range)
{
    (void)hand;
    const struct cpu_step *step = context;
    struct backend_stream *stream = step->stream;
    const struct cpu_weights *weights = stream->weights;
    const struct cpu_linear *linear = &weights->layers[step->layer].linear[step->site];
    enum linear_site site = (enum linear_site)step->site;
    bool inner = ends_in_residual(site);
    struct digits_job job = {
        .rows = stream->pass->extent,
        .from = inner ? stream->inner_digits : stream->hidden_digits,
        .weight = linear->digits,
        .end = site == LINEAR_INTERMEDIATE ? END_BIAS_ACTIVATION : END_NOTHING,
        .activation = weights->backend.model->activation,
        .bias = linear->bias,
        .to = inner ? stream->product : stream->wide,
    };
    backend_linear_shape(weights->backend.model, site, &job.outputs, &job.inputs);
    uint32_t panels = job.outputs / DIGITS_ROWS;
    job.first_output = team_range_first(panels, range, step->ranges) * DIGITS_ROWS;
    job.last_output = team_range_first(panels, range + 1, step->ranges) * DIGITS_ROWS;
    weights->digits->product(&job);
}

static void split_range(void *context, unsigned hand, unsigned range)
{
    (void)hand;
    const struct cpu_step *step = context;
    struct backend_stream *stream = step->stream;
    uint32_t rows = stream->pass->extent, outputs, inputs;
    backend_linear_shape(stream->weights->backend.model, (enum linear_site)step->site, &outputs, &inputs);
    stream->weights->digits->split(team_range_first(rows, range, step->ranges),
                                   team_range_first(rows, range + 1, step->ranges), inputs,
                                   input_of(stream, (enum linear_site)step->site), stream->inner_digits);
}

static enum status digits_product(struct backend_stream *stream, uint32_t layer, enum linear_site site, struct err *err)
{
    uint32_t outputs, inputs;
    backend_linear_shape(stream->weights->backend.model, site, &outputs, &inputs);
    if (ends_in_residual(site)) {
        struct cpu_step split = {stream, layer, site, cpu_ranges(stream, stream->pass->extent, LEAST_ROWS)};
        TRY(cpu_do(&split, split_range, err));
    }
    struct cpu_step step = {stream, layer, site, cpu_ranges(stream, outputs, LEAST_OUTPUTS)};
    return cpu_do(&step, digits_range, err);
}

/* ---- by oneDNN ---- */

/* The product that comes next, if it is oneDNN's too. */
static struct matmul_way way_behind(const struct cpu_weights *weights, uint32_t layer, enum linear_site site,
                                    unsigned hand)
{
    struct matmul_way way = {.down = team_goes_down(hand)};
    layer += site == LINEAR_OUTPUT;
    enum linear_site next = site == LINEAR_OUTPUT ? LINEAR_QKV : (enum linear_site)(site + 1);
    if (layer < weights->first_whole) {
        way.next = weights->shapes[next];
        way.next_weights = weights->layers[layer].linear[next].packed;
    }
    return way;
}

/* The intermediate product goes through its activation block by block, while a block is in the cache. */
static enum status matmul_block(struct backend_stream *stream, uint32_t layer, enum linear_site site, unsigned number,
                                uint32_t block)
{
    struct cpu_hand *hand = &stream->hand[number];
    const struct cpu_weights *weights = stream->weights;
    const struct cpu_linear *linear = &weights->layers[layer].linear[site];
    const struct model *model = weights->backend.model;
    const struct matmul *shape = weights->shapes[site];
    struct matmul_way way = way_behind(weights, layer, site, number);
    float *to = site == LINEAR_QKV ? stream->wide : site == LINEAR_INTERMEDIATE ? hand->block : stream->product;
    TRY(matmul_run(hand->runner, shape, linear->packed, block, &way, stream->pass->extent, input_of(stream, site), to,
                   &hand->err));
    if (site != LINEAR_INTERMEDIATE)
        return STATUS_OK;
    uint32_t outputs = matmul_cut(shape, stream->pass->extent).outputs;
    size_t first = (size_t)block * outputs;
    struct activations activated = {.f32 = stream->wide + first};
    if (stream->context.bf16 != NULL)
        activated = (struct activations){.bf16 = stream->wide16 + first};
    weights->kernels->activate(stream->pass->extent, outputs, model->activation, to, linear->bias + first, activated,
                               model->intermediate_size);
    return STATUS_OK;
}

/* A range is a block. */
static void matmul_range(void *context, unsigned hand, unsigned range)
{
    const struct cpu_step *step = context;
    struct cpu_hand *own = &step->stream->hand[hand];
    if (own->err.status == STATUS_OK)
        own->err.status = matmul_block(step->stream, step->layer, (enum linear_site)step->site, hand, range);
}

/* ---- in int8 ---- */

static struct int8_work int8_work_of(const struct backend_stream *stream)
{
    bool tiles = stream->weights->tiles != NULL;
    return (struct int8_work){
        .rows = stream->pass->extent,
        .hidden = stream->hidden,
        .qkv = {.f32 = tiles ? NULL : stream->wide, .bf16 = tiles ? stream->wide16 : NULL},
        .context = stream->context,
        .intermediate = stream->wide16,
        .ranges = 1,
    };
}

static void int8_range(void *context, unsigned hand, unsigned range)
{
    (void)hand;
    const struct cpu_step *step = context;
    struct int8_work work = int8_work_of(step->stream);
    work.range = range;
    work.ranges = step->ranges;
    int8_pass_linear(&step->stream->whole, step->stream->weights, &work, step->layer, (enum linear_site)step->site);
}

static enum status int8_product(struct backend_stream *stream, uint32_t layer, enum linear_site site, struct err *err)
{
    const struct cpu_weights *weights = stream->weights;
    struct int8_work work = int8_work_of(stream);
    uint32_t outputs, inputs;
    backend_linear_shape(weights->backend.model, site, &outputs, &inputs);
    struct cpu_step step = {stream, layer, site, cpu_ranges(stream, outputs, LEAST_OUTPUTS)};
    int8_pass_prepare(&stream->whole, weights, &work, site);
    return cpu_do(&step, int8_range, err);
}

/* ---- what the pass calls ---- */

void cpu_product_prepare(struct backend_stream *stream)
{
    struct int8_work work = int8_work_of(stream);
    if (cpu_weights_whole(stream->weights, 0))
        int8_pass_embedded(&stream->whole, stream->weights, &work);
    split_hidden(stream, 0, stream->pass->extent);
}

enum status cpu_product(struct backend_stream *stream, uint32_t layer, enum linear_site site, struct err *err)
{
    const struct cpu_weights *weights = stream->weights;
    if (cpu_weights_whole(weights, layer))
        return int8_product(stream, layer, site, err);
    if (weights->tiles != NULL)
        return tiles_product(stream, layer, site, err);
    if (weights->digits != NULL)
        return digits_product(stream, layer, site, err);
    struct cpu_step step = {stream, layer, site, matmul_cut(weights->shapes[site], stream->pass->extent).blocks};
    return cpu_do(&step, matmul_range, err);
}

enum status cpu_product_norm(struct backend_stream *stream, uint32_t layer, enum norm_site site, struct err *err)
{
    const struct cpu_weights *weights = stream->weights;
    struct int8_work work = int8_work_of(stream);
    if (cpu_weights_whole(weights, layer)) {
        int8_pass_norm(&stream->whole, weights, &work, layer, site);
        return STATUS_OK;
    }
    if (weights->tiles == NULL)
        TRY(norm_all(stream, layer, site, err));
    if (site == NORM_OUTPUT && layer + 1 == weights->first_whole && weights->int8 != NULL)
        int8_pass_embedded(&stream->whole, weights, &work);
    return STATUS_OK;
}
