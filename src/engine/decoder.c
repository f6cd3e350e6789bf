/* A step is one pass over all new tokens. It is checked as a whole before anything is computed. */
#include "engine/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "engine/encoder.h"

struct decoder {
    const struct model *model;
    const struct backend_ops *ops;
    struct backend_workspace *workspace;
    struct decoder_options options;            /* its numbers are not 0 */
    struct pass pass;                          /* points into the arrays below */
    int32_t *ids;                              /* [step_tokens] */
    uint32_t *start, *length, *first, *asking; /* [step_rows] */
    const uint32_t **blocks;                   /* [step_rows] */
};

size_t decoder_block_bytes(const struct engine *engine)
{
    return engine->backend->ops->decoder->block_bytes(engine->backend);
}

uint32_t decoder_step_tokens(const struct engine *engine)
{
    return engine->backend->ops->decoder->step_tokens;
}

static enum status allocate(struct decoder *decoder, struct err *err)
{
    size_t tokens = decoder->options.step_tokens, rows = decoder->options.step_rows;
    decoder->ids = calloc(tokens, sizeof *decoder->ids);
    decoder->start = calloc(4 * rows, sizeof *decoder->start);
    decoder->blocks = calloc(rows, sizeof *decoder->blocks);
    if (!decoder->ids || !decoder->start || !decoder->blocks) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a step of %zu tokens", tokens);
    }
    decoder->length = decoder->start + rows;
    decoder->first = decoder->length + rows;
    decoder->asking = decoder->first + rows;
    return STATUS_OK;
}

enum status decoder_open(struct engine *engine, const struct decoder_options *options, struct decoder **out,
                         struct err *err)
{
    const struct backend_ops *ops = engine->backend->ops;
    const struct model *model = engine->backend->model;
    if (!ops->decoder || !model->generates) {
        return err_set(err, STATUS_UNSUPPORTED, "%s does not generate text",
                       ops->decoder ? "the model" : "this backend");
    }
    struct decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder) { return err_set(err, STATUS_NO_MEMORY, "no memory for a decoder"); }
    *decoder = (struct decoder){.model = model, .ops = ops, .options = *options};
    struct decoder_options *own = &decoder->options;
    if (own->step_tokens == 0) { own->step_tokens = ops->decoder->step_tokens; }
    if (own->step_rows == 0 || own->step_rows > own->step_tokens) { own->step_rows = own->step_tokens; }
    enum status status = allocate(decoder, err);
    if (status == STATUS_OK) { status = ops->decoder->open(engine->backend, own, &decoder->workspace, err); }
    if (status == STATUS_OK) {
        *out = decoder;
    } else {
        decoder_close(decoder);
    }
    return status;
}

void decoder_close(struct decoder *decoder)
{
    if (!decoder) { return; }
    decoder->ops->workspace_close(decoder->workspace);
    free(decoder->ids);
    free(decoder->start);
    free(decoder->blocks);
    free(decoder);
}

enum status decoder_join(struct decoder *decoder, struct parallel_for *parallel, struct err *err)
{
    const struct backend_ops *ops = decoder->ops;
    return ops->workspace_join ? ops->workspace_join(decoder->workspace, parallel, err) : STATUS_OK;
}

static enum status check_row(const struct decoder *decoder, const struct decoder_row *row, uint32_t at, struct err *err)
{
    const struct model *model = decoder->model;
    if (row->count == 0 || row->position >= model->max_tokens || row->count > model->max_tokens - row->position) {
        return err_set(err, STATUS_BAD_INPUT, "row %u: %u tokens from position %u on; the model has %u positions", at,
                       row->count, row->position, model->max_tokens);
    }
    for (uint32_t i = 0; i < row->count; i++) {
        if ((uint32_t)row->ids[i] >= model->vocabulary) {
            return err_set(err, STATUS_BAD_INPUT, "row %u: token %d is none of %u", at, row->ids[i], model->vocabulary);
        }
    }
    for (uint32_t i = 0; i <= (row->position + row->count - 1) / DECODER_BLOCK; i++) {
        if (row->blocks[i] >= decoder->options.blocks) {
            return err_set(err, STATUS_BAD_INPUT, "row %u: block %u is none of %u", at, row->blocks[i],
                           decoder->options.blocks);
        }
    }
    return STATUS_OK;
}

/* Makes the step a pass. Writes the number of rows that ask for logits. */
static enum status lay_out(struct decoder *decoder, const struct decoder_row *rows, uint32_t row_count,
                           uint32_t *asking, struct err *err)
{
    uint32_t tokens = 0;
    *asking = 0;
    if (row_count == 0 || row_count > decoder->options.step_rows) {
        return err_set(err, STATUS_BAD_INPUT, "%u rows in a step, not 1 to %u", row_count, decoder->options.step_rows);
    }
    for (uint32_t r = 0; r < row_count; r++) {
        TRY(check_row(decoder, &rows[r], r, err));
        if (rows[r].count > decoder->options.step_tokens - tokens) {
            return err_set(err, STATUS_BAD_INPUT, "more than %u tokens in a step", decoder->options.step_tokens);
        }
        memcpy(decoder->ids + tokens, rows[r].ids, rows[r].count * sizeof *decoder->ids);
        decoder->start[r] = tokens;
        decoder->length[r] = rows[r].count;
        decoder->first[r] = rows[r].position;
        decoder->blocks[r] = rows[r].blocks;
        if (rows[r].logits) { decoder->asking[(*asking)++] = r; }
        tokens += rows[r].count;
    }
    decoder->pass = (struct pass){
        .rows = row_count,
        .extent = tokens,
        .ids = decoder->ids,
        .start = decoder->start,
        .length = decoder->length,
        .first = decoder->first,
        .blocks = decoder->blocks,
    };
    return STATUS_OK;
}

static enum status run_layer(struct decoder *decoder, uint32_t layer, struct err *err)
{
    const struct backend_ops *ops = decoder->ops;
    struct backend_workspace *workspace = decoder->workspace;
    TRY(ops->linear(workspace, layer, LINEAR_QKV, err));
    TRY(ops->decoder->attention(workspace, layer, err));
    TRY(ops->linear(workspace, layer, LINEAR_ATTENTION_OUTPUT, err));
    TRY(ops->norm(workspace, layer, NORM_ATTENTION, err));
    TRY(ops->linear(workspace, layer, LINEAR_INTERMEDIATE, err));
    TRY(ops->linear(workspace, layer, LINEAR_OUTPUT, err));
    return ops->norm(workspace, layer, NORM_OUTPUT, err);
}

enum status decoder_step(struct decoder *decoder, const struct decoder_row *rows, uint32_t row_count, float **logits,
                         struct err *err)
{
    const struct backend_ops *ops = decoder->ops;
    uint32_t asking;
    *logits = NULL;
    TRY(lay_out(decoder, rows, row_count, &asking, err));
    TRY(ops->embed(decoder->workspace, &decoder->pass, err));
    for (uint32_t layer = 0; layer < decoder->model->layer_count; layer++) { TRY(run_layer(decoder, layer, err)); }
    if (asking > 0) { TRY(ops->decoder->logits(decoder->workspace, decoder->asking, asking, logits, err)); }
    TRY(ops->submit(decoder->workspace, err));
    return ops->wait(decoder->workspace, err);
}

void decoder_copy_block(struct decoder *decoder, uint32_t from, uint32_t to)
{
    decoder->ops->decoder->copy_block(decoder->workspace, from, to);
}
