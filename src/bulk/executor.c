#include "bulk/executor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute/compute.h"
#include "engine/vector.h"

enum row_code piece_check(const void *vector, uint32_t dim, float limit)
{
    if (vector_below(vector, dim, limit)) { return ROW_OK; }
    return vector_below(vector, dim, INFINITY) ? ROW_F16_RANGE : ROW_NON_FINITE;
}

void piece_fail(struct bulk_batch *batch, struct piece *piece, enum row_code code)
{
    piece->code = code;
    batch->failed++;
}

void piece_put_vector(struct bulk_batch *batch, struct piece *piece, const void *vector, bool finite)
{
    bool fits = finite && isinf(batch->limit);
    enum row_code code = fits ? ROW_OK : piece_check(vector, batch->dim, batch->limit);
    if (code == ROW_OK) {
        memcpy(piece->vector, vector, batch->dim * sizeof(float));
    } else {
        piece_fail(batch, piece, code);
    }
}

/* --- The local executor. The compute thread lays a batch out, as in the daemon, computes it and copies its vectors, so
 * that ids and vectors stay in that core's cache and each batch reuses the memory of the last one. --- */

struct local {
    struct executor executor; /* first */
    struct compute *compute;
};

static bool local_has_room(const struct executor *executor)
{
    return compute_has_room(((const struct local *)executor)->compute, false);
}

/* Lays the batch out. Pieces without a token are left out. Thread: the compute thread. */
static enum status begin_batch(void *owner, struct batch *batch)
{
    struct bulk_batch *bulk = owner;
    struct row **rows = malloc(bulk->count * sizeof *rows);
    uint32_t count = 0;
    for (uint32_t i = 0; rows != NULL && i < bulk->count; i++) {
        if (bulk->pieces[i].piece->row.tokens > 0) { rows[count++] = &bulk->pieces[i].piece->row; }
    }
    bulk->laid_out = rows ? batch_build(rows, count, LAYOUT_PACKED, bulk->dim) : NULL;
    free(rows);
    if (!bulk->laid_out) {
        return err_set(&batch->err, STATUS_NO_MEMORY, "no memory for a batch of %u texts", bulk->count);
    }
    batch->engine = bulk->laid_out->engine;
    return STATUS_OK;
}

/* Copies the vectors. If some are not finite, each is checked alone. Thread: the compute thread. */
static void end_batch(void *owner, struct batch *batch)
{
    struct bulk_batch *bulk = owner;
    const struct batch *laid_out = bulk->laid_out;
    bool finite = batch->status == STATUS_OK, computed = finite || batch->status == STATUS_NON_FINITE;
    for (uint32_t i = 0; computed && i < bulk->count; i++) {
        if (bulk->pieces[i].piece->row.tokens == 0) { piece_fail(bulk, bulk->pieces[i].piece, ROW_NO_TOKENS); }
    }
    for (uint32_t i = 0; computed && i < laid_out->engine.rows; i++) { /* in layout order, which is by length */
        piece_put_vector(bulk, (struct piece *)laid_out->rows[i], batch->engine.output + (size_t)i * bulk->dim, finite);
    }
    bulk->tokens = computed ? laid_out->tokens : 0;
    batch_free(bulk->laid_out);
    bulk->laid_out = NULL;
}

static void local_put(struct executor *executor, struct bulk_batch *batch)
{
    compute_put(((struct local *)executor)->compute, 0, batch, &batch->batch);
}

static struct bulk_batch *local_take(struct executor *executor)
{
    void *owner;
    const struct batch *batch = compute_take(((struct local *)executor)->compute, &owner);
    if (!batch) { return NULL; }
    struct bulk_batch *bulk = owner;
    bulk->status = batch->status == STATUS_NON_FINITE ? STATUS_OK : batch->status;
    bulk->err = batch->err;
    return bulk;
}

static void local_close(struct executor *executor)
{
    struct local *local = (struct local *)executor;
    compute_close(local->compute);
    free(local);
}

static const struct executor_ops local_ops = {local_has_room, local_put, local_take, local_close};

enum status local_open(const struct local_options *options, struct executor **out, struct err *err)
{
    struct local *local = calloc(1, sizeof *local);
    if (!local) { return err_set(err, STATUS_NO_MEMORY, "no memory for the executor"); }
    local->executor.ops = &local_ops;
    struct compute_options compute = {.devices = options->devices->items,
                                      .device_count = options->devices->count,
                                      .engine_count = 1,
                                      .threads = options->threads,
                                      .queued = options->queued,
                                      .wake_fd = options->wake_fd,
                                      .wake_below = options->threads * (1 + options->queued / 2),
                                      .begin = begin_batch,
                                      .end = end_batch};
    enum status status = compute_open(&compute, &local->compute, err);
    if (status != STATUS_OK) {
        free(local);
        return status;
    }
    local->executor.batches = compute_state(local->compute).batches;
    *out = &local->executor;
    return STATUS_OK;
}

/* --- The executor of a dry run --- */

enum { BATCHES = sizeof((struct dry *)0)->done / sizeof((struct dry *)0)->done[0] };

static bool dry_has_room(const struct executor *executor)
{
    return ((const struct dry *)executor)->done_count < BATCHES;
}

/* Gives each piece zeros. A piece without tokens fails, except in a queue's job, where no piece has token ids. */
static void dry_put(struct executor *executor, struct bulk_batch *batch)
{
    struct dry *dry = (struct dry *)executor;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct piece *piece = batch->pieces[i].piece;
        double tokens = piece->row.tokens;
        memset(piece->vector, 0, batch->dim * sizeof(float));
        if (piece->row.ids && piece->row.tokens == 0) { piece_fail(batch, piece, ROW_NO_TOKENS); }
        batch->tokens += piece->row.tokens;
        dry->tokens += tokens;
        dry->squares += tokens * tokens;
    }
    dry->batches++;
    dry->done[dry->done_count++] = batch;
}

static struct bulk_batch *dry_take(struct executor *executor)
{
    struct dry *dry = (struct dry *)executor;
    return dry->done_count > 0 ? dry->done[--dry->done_count] : NULL;
}

static void dry_close(struct executor *executor)
{
    (void)executor;
}

void dry_open(struct dry *dry)
{
    static const struct executor_ops ops = {dry_has_room, dry_put, dry_take, dry_close};
    *dry = (struct dry){.executor = {&ops, BATCHES}};
}
