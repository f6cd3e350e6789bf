/* Engines and encoders: the forward pass, the same for every backend, over packed or padded rows.
 *
 * A batch is cut at row boundaries into passes that suit the device; on the CPU, passes of so few tokens that the
 * activations stay in a core's cache. Rows are not moved, so the device computes padding, too. A batch is fully checked
 * before anything is computed.
 *
 * A device may have several passes under way. They come back in the order of their submission, so batches and passes
 * are rings. */
#include "engine/encoder.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/version.h"
#include "engine/vector.h"

static enum status check_row(const struct model *model, const struct engine_batch *batch, uint32_t row, struct err *err)
{
    uint32_t start = batch->start[row], length = batch->length[row];
    uint64_t free_from = row == 0 ? 0 : (uint64_t)batch->start[row - 1] + batch->length[row - 1];
    if (length == 0 || length > model->max_tokens) {
        return err_set(err, STATUS_BAD_INPUT, "row %u has %u tokens; the model takes 1 to %u", row, length,
                       model->max_tokens);
    }
    if (start < free_from || (uint64_t)start + length > batch->extent) {
        return err_set(err, STATUS_BAD_INPUT, "row %u at %u overlaps another or leaves the batch", row, start);
    }
    for (uint32_t t = 0; t < length; t++) {
        int32_t id = batch->ids[start + t];
        if (id < 0 || (uint32_t)id >= model->vocabulary) {
            return err_set(err, STATUS_BAD_INPUT, "row %u holds id %d; the vocabulary has %u", row, id,
                           model->vocabulary);
        }
    }
    return STATUS_OK;
}

/* The end of a row's room: the next row's start, so a gap belongs to the row before it. */
static uint32_t place_end(const struct engine_batch *batch, uint32_t row)
{
    return row + 1 < batch->rows ? batch->start[row + 1] : batch->extent;
}

/* The next pass from `first` on: as many rows as fit, or one row alone without the gap after it. */
static struct pass cut_pass(const struct engine *engine, const struct batch_in_flight *in_flight, uint32_t first,
                            struct pass_limits limits)
{
    const struct engine_batch *batch = in_flight->batch;
    const struct model *model = engine->backend->model;
    uint32_t origin = batch->start[first];
    uint32_t rows = 1, extent = batch->length[first];
    if (place_end(batch, first) - origin <= limits.tokens) { extent = place_end(batch, first) - origin; }
    while (rows < limits.rows && first + rows < batch->rows &&
           place_end(batch, first + rows) - origin <= limits.tokens) {
        extent = place_end(batch, first + rows) - origin;
        rows++;
    }
    return (struct pass){
        .rows = rows,
        .extent = extent,
        .origin = origin,
        .ids = batch->ids + origin,
        .start = batch->start + first,
        .length = batch->length + first,
        .second = batch->second ? batch->second + first : NULL,
        .second_row = model_position_rows(model) - model_text_rows(model),
        .position_offset = model->position_offset,
        .normalize = engine->normalize && engine->on_device,
        .output = in_flight->vectors + (size_t)first * model->hidden,
    };
}

/* Copies the input of a layer of this pass to where it is kept, or back. */
static void copy_input(const struct backend *backend, struct backend_workspace *workspace, const struct pass *pass,
                       uint32_t layer)
{
    const struct layer_inputs *inputs = pass->inputs;
    size_t row = (size_t)LAYER_INPUT * backend->model->hidden;
    backend->ops->copy_input(workspace, layer, inputs->rows + ((size_t)layer * inputs->extent + pass->origin) * row,
                             inputs->from > 0);
}

/* Begins one pass: calls all ops from embed to submit, with that pause (NULL: none). Errors: that of the op that
 * failed; the workspace is then ready for the next pass. */
static enum status enqueue_pass(const struct backend *backend, struct backend_workspace *workspace,
                                const struct pass *pass, const struct encoder_pause *pause, struct err *err)
{
    const struct backend_ops *ops = backend->ops;
    atomic_fetch_add(&backend->counters->passes, 1);
    TRY(ops->embed(workspace, pass, err));
    uint32_t first = pass->inputs ? pass->inputs->from : 0;
    for (uint32_t layer = first; layer < backend->model->layer_count; layer++) {
        if (pause && pause->wait) { pause->wait(pause->context); }
        if (pass->inputs && (first == 0 || layer == first)) { copy_input(backend, workspace, pass, layer); }
        TRY(ops->linear(workspace, layer, LINEAR_QKV, err));
        TRY(ops->attention(workspace, layer, err));
        TRY(ops->linear(workspace, layer, LINEAR_ATTENTION_OUTPUT, err));
        TRY(ops->norm(workspace, layer, NORM_ATTENTION, err));
        TRY(ops->linear(workspace, layer, LINEAR_INTERMEDIATE, err));
        TRY(ops->linear(workspace, layer, LINEAR_OUTPUT, err));
        TRY(ops->norm(workspace, layer, NORM_OUTPUT, err));
    }
    TRY(ops->pool(workspace, err));
    return ops->submit(workspace, err);
}

/* Waits for the oldest pass that is out. */
static void land_pass(struct encoder *encoder)
{
    struct batch_in_flight *owner = encoder->owners[encoder->first_pass];
    struct err err = {0};
    const struct backend_ops *ops = encoder->backend->ops;
    enum status status = ops->wait(encoder->workspace, &err);
    owner->suspect = owner->suspect || !ops->finite || !ops->finite(encoder->workspace);
    if (status != STATUS_OK && owner->err.status == STATUS_OK) {
        owner->err = err;
        owner->err.status = status;
    }
    owner->passes--;
    encoder->first_pass = (encoder->first_pass + 1) % BACKEND_SLOTS_MAX;
    encoder->passes_out--;
}

/* Begins all passes of a batch, and keeps the first error in `in_flight`. */
static void begin_batch(struct encoder *encoder, struct batch_in_flight *in_flight)
{
    const struct engine_batch *batch = in_flight->batch;
    const struct backend *backend = encoder->backend;
    for (uint32_t first = 0; first < batch->rows;) {
        if (encoder->passes_out == backend->slots) { land_pass(encoder); }
        if (in_flight->err.status != STATUS_OK) { /* the pass waited for belongs to this batch */
            return;
        }
        unsigned at = (encoder->first_pass + encoder->passes_out) % BACKEND_SLOTS_MAX;
        struct pass *pass = &encoder->passes[at];
        *pass = cut_pass(encoder->engine, in_flight, first, backend->ops->limits(encoder->workspace));
        pass->inputs = encoder->inputs;
        enum status status = enqueue_pass(backend, encoder->workspace, pass, &encoder->pause, &in_flight->err);
        in_flight->err.status = status;
        if (status != STATUS_OK) { return; }
        in_flight->alone = in_flight->alone || !backend->ops->helped || !backend->ops->helped(encoder->workspace);
        encoder->owners[at] = in_flight;
        encoder->passes_out++;
        in_flight->passes++;
        first += pass->rows;
    }
}

/* Makes room for the vectors before the modules, and for the modules to work in. */
static enum status reserve_pooled(struct pooled_rows *pooled, uint32_t rows, uint32_t hidden,
                                  const struct modules *modules, struct err *err)
{
    if (rows <= pooled->rows) { return STATUS_OK; }
    free(pooled->vectors);
    pooled->vectors = malloc(((size_t)rows * hidden + modules_room(modules, rows)) * sizeof *pooled->vectors);
    pooled->rows = pooled->vectors ? rows : 0;
    return pooled->vectors ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for %u vectors", rows);
}

enum status encoder_put(struct encoder *encoder, const struct engine_batch *batch, struct err *err)
{
    assert(encoder->batches_out < encoder->backend->slots);
    for (uint32_t row = 0; row < batch->rows; row++) { TRY(check_row(encoder->backend->model, batch, row, err)); }
    unsigned at = (encoder->first_batch + encoder->batches_out) % BACKEND_SLOTS_MAX;
    struct pooled_rows *pooled = &encoder->pooled[at];
    const struct modules *modules = encoder->engine->modules;
    if (modules) { TRY(reserve_pooled(pooled, batch->rows, encoder->backend->model->hidden, modules, err)); }
    encoder->in_flight[at] =
        (struct batch_in_flight){.batch = batch, .vectors = modules ? pooled->vectors : batch->output};
    encoder->batches_out++;
    begin_batch(encoder, &encoder->in_flight[at]);
    return STATUS_OK;
}

/* --- Rows whose vector is not finite in f16 are run again alone in bf16, and then in f32 ---
 *
 * No state is kept: the next batch runs in f16 again, so a text's vector does not depend on earlier batches. The wider
 * backends are opened from the model's files when they are first needed, and then kept: the same device, with room for
 * one row. */

static const enum precision wider[FALLBACK_STEPS] = {PRECISION_BF16, PRECISION_F32};

static void step_close(struct fallback_step *step)
{
    if (step->backend) { step->backend->ops->close(step->backend); }
    model_close(step->again);
    *step = (struct fallback_step){0};
}

/* The weights are still in the model's memory only if the model is not read_once. */
static enum status step_open(const struct engine *engine, enum precision precision, struct fallback_step *step,
                             struct err *err)
{
    const struct backend *narrow = engine->backend;
    const struct model *model = narrow->model;
    if (model->read_once) {
        TRY(model_read_again(model, &step->again, err));
        model = step->again;
    }
    struct engine_options options = engine->options;
    options.precision = precision;
    options.batch_tokens = model->max_tokens;
    options.batch_rows = 1;
    options.no_graphs = true;
    TRY(narrow->ops->open(model, &options, &step->backend, err));
    step->backend->ops = narrow->ops;
    step->backend->counters = narrow->counters;
    if (step->again) { model_release_weights(step->again); }
    return STATUS_OK;
}

static enum status step_ready(struct engine *engine, int number, struct err *err)
{
    struct fallback_step *step = &engine->steps[number];
    enum status status = STATUS_OK;
    pthread_mutex_lock(&engine->lock);
    if (!step->backend) {
        status = step_open(engine, wider[number], step, err);
        if (status != STATUS_OK) { step_close(step); }
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}

static enum status step_run(struct encoder *encoder, int number, const struct pass *pass, struct err *err)
{
    TRY(step_ready(encoder->engine, number, err));
    struct backend *backend = encoder->engine->steps[number].backend; /* does not change once it is open */
    if (!encoder->wider[number]) { TRY(backend->ops->workspace_open(backend, &encoder->wider[number], err)); }
    TRY(enqueue_pass(backend, encoder->wider[number], pass, NULL, err));
    return backend->ops->wait(encoder->wider[number], err);
}

/* Computes the row's vector alone in each wider precision until it is finite. Errors: STATUS_NON_FINITE (it is finite
 * in none; the message says so, or why a wider one could not be opened), STATUS_NO_MEMORY, STATUS_DEVICE_LOST. */
static enum status run_again(struct encoder *encoder, const struct batch_in_flight *in_flight, uint32_t row,
                             struct err *err)
{
    struct engine *engine = encoder->engine;
    const struct backend *narrow = encoder->backend;
    struct pass pass = cut_pass(engine, in_flight, row, (struct pass_limits){.rows = 1});
    struct err why = {0};
    for (int i = 0; i < FALLBACK_STEPS && narrow->precision == PRECISION_F16; i++) {
        if (narrow->ops->choose(narrow->model, wider[i]) != wider[i]) { continue; }
        enum status status = step_run(encoder, i, &pass, &why);
        if (status == STATUS_NO_MEMORY || status == STATUS_DEVICE_LOST) { /* not the row's fault */
            if (err) { *err = why; }
            return status;
        }
        if (status == STATUS_OK && vector_finite(pass.output, narrow->model->hidden)) {
            atomic_fetch_add(&engine->rescued[i], 1);
            return STATUS_OK;
        }
    }
    atomic_fetch_add(&engine->lost, 1);
    if (why.status != STATUS_OK) {
        return err_set(err, STATUS_NON_FINITE, "the vector is not finite in f16, and a wider precision failed: %s",
                       why.message);
    }
    return err_set(err, STATUS_NON_FINITE, "the vector is not finite");
}

/* Reruns rows that are not finite, then runs all rows through the modules, and finishes those that are finite. The
 * modules could turn a row that is not finite into finite numbers, so such a row becomes NaN. With STATUS_NON_FINITE
 * all other rows are finished. If the device finds all rows finite and no modules follow, nothing is left to do: then
 * no time is spent on each row. */
static enum status finish_rows(struct encoder *encoder, const struct batch_in_flight *in_flight, struct err *err)
{
    const struct model *model = encoder->backend->model;
    const struct modules *modules = encoder->engine->modules;
    const struct engine_batch *batch = in_flight->batch;
    uint32_t hidden = model->hidden, dim = model->dim;
    float *vectors = in_flight->vectors;
    struct err worst = {0};
    if (!in_flight->suspect && encoder->engine->on_device) { return STATUS_OK; }
    for (uint32_t row = 0; row < batch->rows && in_flight->suspect; row++) {
        if (vector_finite(vectors + (size_t)row * hidden, hidden)) { continue; }
        struct err why = {0};
        enum status status = run_again(encoder, in_flight, row, &why);
        if (status == STATUS_OK || (status == STATUS_NON_FINITE && worst.status == status)) { continue; }
        err_prefix(&why, "row %u", row);
        worst = why;
        if (status != STATUS_NON_FINITE) { break; }
    }
    if (worst.status != STATUS_OK && err) { *err = worst; }
    if (worst.status != STATUS_OK && worst.status != STATUS_NON_FINITE) { return worst.status; }
    if (modules && batch->rows > 0) {
        float *room = vectors + (size_t)batch->rows * hidden;
        modules_run(modules, encoder->parallel, batch->rows, vectors, room, batch->output);
    }
    for (uint32_t row = 0; row < batch->rows; row++) {
        float *to = batch->output + (size_t)row * dim;
        bool was_finite = !in_flight->suspect || vector_finite(vectors + (size_t)row * hidden, hidden);
        for (uint32_t i = 0; i < dim && modules && !was_finite; i++) { to[i] = NAN; }
        if (was_finite && vector_finite(to, dim)) {
            if (encoder->engine->normalize && !encoder->engine->on_device) { vector_normalize(to, dim); }
        } else if (worst.status == STATUS_OK) {
            worst.status = err_set(err, STATUS_NON_FINITE, "row %u: the modules' numbers are not finite", row);
        }
    }
    return worst.status;
}

enum status encoder_take(struct encoder *encoder, struct err *err)
{
    assert(encoder->batches_out > 0);
    struct batch_in_flight *in_flight = &encoder->in_flight[encoder->first_batch];
    while (in_flight->passes > 0) { land_pass(encoder); }
    encoder->first_batch = (encoder->first_batch + 1) % BACKEND_SLOTS_MAX;
    encoder->batches_out--;
    encoder->helped = !in_flight->alone;
    if (in_flight->err.status == STATUS_OK) { return finish_rows(encoder, in_flight, err); }
    if (err) { *err = in_flight->err; }
    return in_flight->err.status;
}

enum status encoder_run(struct encoder *encoder, const struct engine_batch *batch, struct err *err)
{
    assert(encoder->batches_out == 0);
    TRY(encoder_put(encoder, batch, err));
    return encoder_take(encoder, err);
}

void encoder_set_pause(struct encoder *encoder, struct encoder_pause pause)
{
    encoder->pause = pause;
}

unsigned encoder_slots(const struct engine *engine)
{
    return engine->backend->slots;
}

bool encoder_helped(const struct encoder *encoder)
{
    return encoder->helped;
}

/* --- Opening and closing --- */

enum status engine_open_with(const struct backend_ops *ops, const struct model *model,
                             const struct engine_options *options, struct engine **out, struct err *err)
{
    struct engine_options chosen = options ? *options : (struct engine_options){0};
    TRY(backend_choose(ops, model, chosen.precision, &chosen.precision, err));
    struct engine *engine = calloc(1, sizeof *engine);
    if (!engine) { return err_set(err, STATUS_NO_MEMORY, "no memory for an engine"); }
    enum status status = ops->open(model, &chosen, &engine->backend, err);
    if (status != STATUS_OK) {
        free(engine);
        return status;
    }
    engine->backend->ops = ops;
    engine->backend->counters = &engine->counters;
    status = modules_open(model, &engine->modules, err);
    if (status != STATUS_OK) {
        ops->close(engine->backend);
        free(engine);
        return status;
    }
    engine->normalize = model->normalize && !chosen.raw;
    engine->on_device = ops->finite && !engine->modules;
    engine->options = chosen;
    pthread_mutex_init(&engine->lock, NULL); /* cannot fail with default attributes on Linux */
    *out = engine;
    return STATUS_OK;
}

void engine_close(struct engine *engine)
{
    if (!engine) { return; }
    for (int i = 0; i < FALLBACK_STEPS; i++) { step_close(&engine->steps[i]); }
    pthread_mutex_destroy(&engine->lock);
    engine->backend->ops->close(engine->backend);
    modules_close(engine->modules);
    free(engine->int8.in_int8);
    free(engine);
}

const char *engine_passed_over(const struct engine *engine)
{
    return engine->passed_over.message;
}

struct engine_counters engine_counters(struct engine *engine)
{
    return (struct engine_counters){
        .passes = atomic_load(&engine->counters.passes),
        .graphs_captured = atomic_load(&engine->counters.graphs_captured),
        .graph_launches = atomic_load(&engine->counters.graph_launches),
        .graph_fallbacks = atomic_load(&engine->counters.graph_fallbacks),
        .halvings = atomic_load(&engine->counters.halvings),
        .rows_bf16 = atomic_load(&engine->rescued[0]),
        .rows_f32 = atomic_load(&engine->rescued[1]),
        .rows_lost = atomic_load(&engine->lost),
    };
}

const char *engine_backend(const struct engine *engine)
{
    return engine->backend->ops->name;
}

struct batch_size engine_batch_size(const struct engine *engine)
{
    return engine->backend->ops->batch;
}

const char *engine_device(const struct engine *engine)
{
    return engine->backend->device;
}

void engine_kind(const struct engine *engine, char out[ENGINE_KIND + 1])
{
    const struct engine_int8 *int8 = engine_int8(engine);
    char set[64], text[512];
    const char *products = engine->backend->products;
    int length = snprintf(text, sizeof text, "%s %s %s %s", sluice_version, engine_backend(engine),
                          products ? engine_instruction_set(set) : engine_device(engine), products ? products : "");
    XXH64_hash_t hash = XXH3_64bits(text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
    if (int8) {
        hash = XXH3_64bits_withSeed(int8->in_int8, int8->layers * sizeof *int8->in_int8, hash + int8->lm_head);
    }
    snprintf(out, ENGINE_KIND + 1, "%016llx", (unsigned long long)hash);
}

enum precision engine_precision(const struct engine *engine)
{
    return engine->backend->precision;
}

const struct engine_int8 *engine_int8(const struct engine *engine)
{
    return engine->int8.in_int8 ? &engine->int8 : NULL;
}

const char *engine_product_name(enum engine_product product)
{
    static const char *const names[ENGINE_PRODUCTS] = {
        [ENGINE_QUERY_KEY] = "query_key",
        [ENGINE_VALUE] = "value",
        [ENGINE_ATTENTION_OUTPUT] = "attention_output",
        [ENGINE_INTERMEDIATE] = "intermediate",
        [ENGINE_OUTPUT] = "output",
    };
    return names[product];
}

size_t engine_weight_bytes(const struct engine *engine)
{
    return engine->backend->weight_bytes;
}

enum status encoder_open(struct engine *engine, struct encoder **out, struct err *err)
{
    struct encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder) { return err_set(err, STATUS_NO_MEMORY, "no memory for an encoder"); }
    encoder->engine = engine;
    encoder->backend = engine->backend;
    enum status status = engine->backend->ops->workspace_open(engine->backend, &encoder->workspace, err);
    if (status != STATUS_OK) {
        free(encoder);
        return status;
    }
    *out = encoder;
    return STATUS_OK;
}

void encoder_close(struct encoder *encoder)
{
    if (!encoder) { return; }
    for (int i = 0; i < FALLBACK_STEPS; i++) {
        if (encoder->wider[i]) { encoder->engine->steps[i].backend->ops->workspace_close(encoder->wider[i]); }
    }
    encoder->backend->ops->workspace_close(encoder->workspace);
    for (int i = 0; i < BACKEND_SLOTS_MAX; i++) { free(encoder->pooled[i].vectors); }
    free(encoder);
}

enum status encoder_join(struct encoder *encoder, struct parallel_for *parallel, struct err *err)
{
    const struct backend_ops *ops = encoder->backend->ops;
    if (!ops->workspace_join) { return STATUS_OK; }
    TRY(ops->workspace_join(encoder->workspace, parallel, err));
    encoder->parallel = parallel;
    return STATUS_OK;
}
