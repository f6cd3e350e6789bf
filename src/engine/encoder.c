/* The forward pass: one for every backend, over rows packed or padded.
 *
 * A batch is cut at row bounds into passes that suit the device: on the CPU, few enough tokens for the activations to
 * stay in the cache of a core. Rows are handed on as they lie, so that padding, where a planner asks for it, costs what
 * padding costs. Everything that a batch could have wrong is checked before anything is computed. */
#include "engine/encoder.h"

#include <math.h>
#include <stdlib.h>

#include "engine/vector.h"

struct encoder {
    const struct engine *engine;
    const struct backend *backend;
    struct backend_stream *stream;
};

enum status encoder_open(struct engine *engine, struct encoder **out, struct err *err)
{
    struct encoder *encoder = calloc(1, sizeof *encoder);
    if (encoder == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for an encoder");
    encoder->engine = engine;
    encoder->backend = engine->backend;
    enum status status = engine->backend->ops->stream_open(engine->backend, &encoder->stream, err);
    if (status != STATUS_OK) {
        free(encoder);
        return status;
    }
    *out = encoder;
    return STATUS_OK;
}

void encoder_close(struct encoder *encoder)
{
    if (encoder == NULL)
        return;
    encoder->backend->ops->stream_close(encoder->stream);
    free(encoder);
}

static enum status check_row(const struct model *model, const struct engine_batch *batch, uint32_t row, struct err *err)
{
    uint32_t start = batch->start[row], length = batch->length[row];
    uint64_t free_from = row == 0 ? 0 : (uint64_t)batch->start[row - 1] + batch->length[row - 1];
    if (length == 0 || length > model->max_tokens)
        return err_set(err, STATUS_BAD_INPUT, "row %u has %u tokens; the model takes 1 to %u", row, length,
                       model->max_tokens);
    if (start < free_from || (uint64_t)start + length > batch->extent)
        return err_set(err, STATUS_BAD_INPUT, "row %u at %u overlaps another or leaves the batch", row, start);
    for (uint32_t t = 0; t < length; t++) {
        int32_t id = batch->ids[start + t];
        if (id < 0 || (uint32_t)id >= model->vocabulary)
            return err_set(err, STATUS_BAD_INPUT, "row %u holds id %d; the vocabulary has %u", row, id,
                           model->vocabulary);
    }
    return STATUS_OK;
}

static enum status check_batch(const struct model *model, const struct engine_batch *batch, struct err *err)
{
    for (uint32_t row = 0; row < batch->rows; row++) {
        enum status status = check_row(model, batch, row, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* Where the place of a row ends: at the next row's start, so that a gap belongs to the row before it. */
static uint32_t place_end(const struct engine_batch *batch, uint32_t row)
{
    return row + 1 < batch->rows ? batch->start[row + 1] : batch->extent;
}

/* The next pass from `first` on: as many rows as fit, or one row alone without the gap behind it. */
static struct pass cut_pass(const struct backend *backend, const struct engine_batch *batch, uint32_t first)
{
    uint32_t origin = batch->start[first];
    uint32_t rows = 1, extent = batch->length[first];
    if (place_end(batch, first) - origin <= backend->pass_tokens)
        extent = place_end(batch, first) - origin;
    while (first + rows < batch->rows && place_end(batch, first + rows) - origin <= backend->pass_tokens) {
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
        .output = batch->output + (size_t)first * backend->model->dim,
    };
}

static enum status run_pass(const struct encoder *encoder, const struct pass *pass, struct err *err)
{
    const struct backend_ops *ops = encoder->backend->ops;
    struct backend_stream *stream = encoder->stream;
    TRY(ops->embed(stream, pass, err));
    for (uint32_t layer = 0; layer < encoder->backend->model->layer_count; layer++) {
        TRY(ops->linear(stream, layer, LINEAR_QKV, err));
        TRY(ops->attention(stream, layer, err));
        TRY(ops->linear(stream, layer, LINEAR_ATTENTION_OUTPUT, err));
        TRY(ops->norm(stream, layer, NORM_ATTENTION, err));
        TRY(ops->linear(stream, layer, LINEAR_INTERMEDIATE, err));
        TRY(ops->linear(stream, layer, LINEAR_OUTPUT, err));
        TRY(ops->norm(stream, layer, NORM_OUTPUT, err));
    }
    TRY(ops->pool(stream, err));
    return ops->finish(stream, err);
}

static enum status check_finite(const struct engine_batch *batch, uint32_t dim, struct err *err)
{
    for (uint32_t row = 0; row < batch->rows; row++)
        for (uint32_t i = 0; i < dim; i++)
            if (!isfinite(batch->output[(size_t)row * dim + i]))
                return err_set(err, STATUS_NON_FINITE, "row %u: the vector is not finite", row);
    return STATUS_OK;
}

enum status encoder_run(struct encoder *encoder, const struct engine_batch *batch, struct err *err)
{
    TRY(check_batch(encoder->backend->model, batch, err));
    for (uint32_t first = 0; first < batch->rows;) {
        struct pass pass = cut_pass(encoder->backend, batch, first);
        TRY(run_pass(encoder, &pass, err));
        first += pass.rows;
    }
    uint32_t dim = encoder->backend->model->dim;
    for (uint32_t row = 0; row < batch->rows && encoder->engine->normalize; row++)
        vector_normalize(batch->output + (size_t)row * dim, dim);
    return check_finite(batch, dim, err);
}
