/* The prep and compute threads. A row's only token identifies its item and text, and so does its vector: a vector that
 * went to the wrong row is seen when it is settled. */
#include "world.h"

int text_token(const struct item *item, uint32_t row)
{
    return item->text * ROWS_MAX + (int)row + 1;
}

static void run_prepare(struct request *request)
{
    const struct item *item = item_of(request);
    assert_int_equal(request->row_count, item->rows);
    request->work = malloc(item->rows * (DIM * sizeof(float) + item->tokens * sizeof(int32_t)));
    assert_non_null(request->work);
    float *output = request->work;
    int32_t *ids = (int32_t *)(output + (size_t)item->rows * DIM);
    for (uint32_t i = 0; i < item->rows; i++) {
        struct row *row = &request->rows[i];
        row->output = output + (size_t)i * DIM;
        row->ids = ids + (size_t)i * item->tokens;
        row->tokens = item->tokens;
        for (uint32_t token = 0; token < item->tokens; token++) { row->ids[token] = text_token(item, i); }
        row->hash = (uint64_t)text_token(item, i) * 0x9e3779b97f4a7c15u;
    }
}

static struct item *item_of_row(const struct batch *batch, uint32_t row)
{
    return item_of(batch->rows[row]->request);
}

uint32_t index_of_row(const struct row *row)
{
    return (uint32_t)(row - row->request->rows);
}

static bool fails(const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        const struct item *item = item_of_row(batch, i);
        bool bad = index_of_row(batch->rows[i]) == item->bad_row;
        if (bad && (item->kind == GUILTY || (item->kind == FLAKY && batch->rows[i]->request->retry.attempt < 3))) {
            return true;
        }
    }
    return false;
}

static void run_batch(struct batch *batch)
{
    batch->started_ns = world.now;
    batch->finished_ns = world.now + 1000;
    bool infinite = false;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        const struct item *item = item_of_row(batch, i);
        int token = batch->engine.ids[batch->engine.start[i]];
        assert_int_equal(token, text_token(item, index_of_row(batch->rows[i])));
        assert_int_equal(batch->engine.length[i], item->tokens);
        bool bad = item->kind == INFINITE && index_of_row(batch->rows[i]) == item->bad_row;
        infinite |= bad;
        batch->engine.output[i * DIM] = bad ? 1e30f * 1e30f : (float)token;
        batch->engine.output[i * DIM + 1] = (float)token + 0.5f;
    }
    if (happens(world.faults.device_lost)) {
        batch->status = STATUS_DEVICE_LOST;
    } else if (batch->engine.rows > 1 && batch->engine.extent > world.memory) {
        batch->status = STATUS_NO_MEMORY;
    } else if (fails(batch)) {
        batch->status = STATUS_INTERNAL;
    } else {
        batch->status = infinite ? STATUS_NON_FINITE : STATUS_OK;
    }
}

static void run_format(struct request *request)
{
    static const char more[2 * BULK_BYTES];
    enum kind kind = item_of(request)->kind;
    for (uint32_t i = 0; i < request->row_count; i++) {
        if (request->rows[i].output[0] > 1e30f) {
            request->retry.failed_index = i;
            request_fail(request, CODE_NON_FINITE, "not finite");
            return;
        }
    }
    buffer_append(&request->output.reply, request->rows[0].output, request->row_count * DIM * sizeof(float));
    if (kind == BULKY) { buffer_append(&request->output.reply, more, BULK_BYTES); }
    if (kind == UNSENDABLE) { buffer_append(&request->output.reply, more, 2 * BULK_BYTES); }
}

void run_work(struct call *call)
{
    if (call->kind == ACTION_SUBMIT) {
        run_batch(call->action.batch);
        return;
    }
    for (struct request *request = call->action.requests.first; request != NULL; request = request->next) {
        (call->kind == ACTION_PREPARE ? run_prepare : run_format)(request);
    }
}

struct request *request_of_kind(const struct batch *batch, enum kind kind)
{
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        if (item_of_row(batch, i)->kind == kind) { return batch->rows[i]->request; }
    }
    return NULL;
}
