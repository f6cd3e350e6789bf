/* A batch of work/ is laid out for each batch here, as the daemon does it, and run by serve/compute. */
#include "bulk/local.h"

#include <stdlib.h>

#include "serve/compute.h"

struct local {
    struct executor executor; /* first */
    const struct model *model;
    struct compute *compute;
    struct bulk_batch *refused; /* a batch that could not be laid out, until it is taken */
};

static struct local *local_of(struct executor *executor)
{
    return (struct local *)executor;
}

static bool local_has_room(const struct executor *executor)
{
    const struct local *local = (const struct local *)executor;
    return local->refused == NULL && compute_has_room(local->compute);
}

static void local_put(struct executor *executor, struct bulk_batch *batch)
{
    struct local *local = local_of(executor);
    struct row **rows = malloc(batch->count * sizeof *rows);
    struct batch *own = NULL;
    for (uint32_t i = 0; rows != NULL && i < batch->count; i++)
        rows[i] = &batch->pieces[i]->row;
    if (rows != NULL)
        own = batch_build(rows, batch->count, LAYOUT_PACKED, local->model->dim);
    free(rows);
    batch->own = own;
    if (own == NULL) {
        batch->status = err_set(&batch->err, STATUS_NO_MEMORY, "no memory for a batch of %u texts", batch->count);
        local->refused = batch;
        return;
    }
    compute_put(local->compute, 0, batch, own);
}

static struct bulk_batch *local_take(struct executor *executor)
{
    struct local *local = local_of(executor);
    if (local->refused != NULL) {
        struct bulk_batch *batch = local->refused;
        local->refused = NULL;
        return batch;
    }
    void *owner;
    struct batch *own = compute_take(local->compute, &owner);
    if (own == NULL)
        return NULL;
    struct bulk_batch *batch = owner;
    batch->vectors = own->engine.output;
    batch->tokens = own->tokens;
    batch->status = own->status == STATUS_NON_FINITE ? STATUS_OK : own->status; /* the job looks at each vector */
    batch->err = own->err;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->pieces[i] = (struct piece *)own->rows[i]; /* laid out by length */
    return batch;
}

static void local_done(struct executor *executor, struct bulk_batch *batch)
{
    (void)executor;
    batch_free(batch->own);
    batch->own = NULL;
    batch->vectors = NULL;
}

static void local_close(struct executor *executor)
{
    struct local *local = local_of(executor);
    for (struct batch *own; (own = compute_wait(local->compute, NULL)) != NULL;)
        batch_free(own);
    compute_close(local->compute);
    free(local);
}

static const struct executor_ops local_ops = {local_has_room, local_put, local_take, local_done, local_close};

enum status local_open(const struct local_options *options, struct executor **out, struct err *err)
{
    struct local *local = calloc(1, sizeof *local);
    if (local == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the executor");
    local->executor.ops = &local_ops;
    local->model = options->model;
    struct compute_options compute = {.devices = options->devices->items,
                                      .device_count = options->devices->count,
                                      .engine_count = 1,
                                      .threads = options->threads,
                                      .queued = options->queued,
                                      .wake_fd = options->wake_fd};
    enum status status = compute_open(&compute, &local->compute, err);
    if (status != STATUS_OK) {
        free(local);
        return status;
    }
    local->executor.batches = compute_state(local->compute).batches;
    *out = &local->executor;
    return STATUS_OK;
}
