/* The parts of a bulk job, with one document: what is asked is computed exactly like what is searched. */
#include "cli/query_vector.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/utf8.h"
#include "bulk/local.h"
#include "bulk/slice.h"

static enum status compute(struct executor *executor, int wake_fd, struct piece *piece, uint32_t dim, struct err *err)
{
    struct bulk_batch batch = {.pieces = &piece, .count = 1, .dim = dim, .limit = INFINITY};
    struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
    executor->ops->put(executor, &batch);
    while (executor->ops->take(executor) == NULL)
        poll(&wake, 1, -1);
    if (batch.status != STATUS_OK)
        *err = batch.err;
    else if (batch.failed > 0)
        return err_set(err, STATUS_NON_FINITE, "the vector of the query is not finite");
    return batch.status;
}

static enum status embed(struct slice *slice, const struct model *model, const struct devices *devices,
                         struct query_vector *out, struct err *err)
{
    struct executor *executor;
    struct local_options options = {.devices = devices, .threads = 1, .queued = 1};
    out->dim = model->dim;
    out->values = slice->pieces->vector = malloc(model->dim * sizeof *out->values);
    if (out->values == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a vector");
    options.wake_fd = eventfd(0, EFD_CLOEXEC);
    if (options.wake_fd < 0)
        return err_set_errno(err, "cannot make an eventfd");
    enum status status = local_open(&options, &executor, err);
    if (status == STATUS_OK) {
        status = compute(executor, options.wake_fd, slice->pieces, model->dim, err);
        executor->ops->close(executor);
    }
    close(options.wake_fd);
    return status;
}

/* The one document of a slice, with its token ids. */
static enum status prepare(struct slice *slice, const char *text, const struct model *model, struct err *err)
{
    struct document document = {.file = "query", .line = 1, .text = text, .text_bytes = strlen(text)};
    struct preparer preparer = {.model = model, .ids = true};
    struct buffer scratch = {0};
    bool added;
    if (text[0] == '\0')
        return err_set(err, STATUS_BAD_INPUT, "--query is empty: there is nothing to look for");
    if (!utf8_valid(text, strlen(text)))
        return err_set(err, STATUS_BAD_INPUT, "the query is not UTF-8");
    TRY(slice_add(slice, &document, &added, err));
    slice_prepare(slice, &preparer, &scratch);
    buffer_free(&scratch);
    if (slice->status != STATUS_OK)
        *err = slice->err;
    return slice->status;
}

enum status query_vector(const char *text, const struct config *config, struct model *model, struct query_vector *out,
                         struct err *err)
{
    *out = (struct query_vector){0};
    struct slice *slice = slice_new();
    if (slice == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the query");
    enum status status = prepare(slice, text, model, err);
    struct devices devices = {0};
    if (status == STATUS_OK) {
        out->truncated = slice->pieces[0].row.truncated;
        status = devices_open(&devices, config, 1, err);
        if (status == STATUS_OK)
            status = devices_load(&devices, config, model, false, 0, err);
        if (status == STATUS_OK)
            status = embed(slice, model, &devices, out, err);
        devices_close(&devices);
    }
    slice_free(slice);
    return status;
}
