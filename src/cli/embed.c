/* Texts are read ahead in windows of a few thousand, sorted by length, cut into batches, and written in input order
 * when the whole window is done. Two windows take turns: while the compute threads work on one, this thread reads and
 * tokenises the next.
 *
 *   read+tokenise A | submit A | read+tokenise B | submit B | write A | read+tokenise A' | submit A' | write B ... */
#include "cli/embed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/texts.h"

enum { WINDOW_ROWS = 4096, WINDOW_TOKENS = 1 << 18 };

/* A window stands in for the request that its rows belong to, so that a row leads back to it. */
struct window {
    struct request request; /* first */
    uint32_t count, batches_out;
    uint64_t first_line;
    uint64_t end_bytes; /* of the input, behind its last line */
    struct row rows[WINDOW_ROWS];
    int32_t *ids;  /* [WINDOW_TOKENS + max_tokens] */
    float *output; /* [WINDOW_ROWS, dim] */
};

struct embedder {
    const struct embed_job *job;
    struct window *windows[2];
    struct row *sorted[WINDOW_ROWS];
    struct buffer scratch;
    uint32_t out; /* batches that are computed */
};

static struct window *window_open(const struct model *model)
{
    struct window *window = calloc(1, sizeof *window);
    if (window == NULL)
        return NULL;
    window->ids = malloc((WINDOW_TOKENS + (size_t)model->max_tokens) * sizeof(int32_t));
    window->output = malloc((size_t)WINDOW_ROWS * model->dim * sizeof(float));
    return window;
}

static void window_close(struct window *window)
{
    if (window == NULL)
        return;
    free(window->ids);
    free(window->output);
    free(window);
}

/* Reads and tokenises lines until the window is full or the file ends. */
static enum status fill(struct embedder *embedder, struct window *window, struct err *err)
{
    const struct model *model = embedder->job->model;
    struct lines *lines = embedder->job->lines;
    size_t tokens = 0;
    window->count = 0;
    window->first_line = lines->number + 1;
    while (window->count < WINDOW_ROWS && tokens < WINDOW_TOKENS) {
        struct line line;
        enum status status = lines_next(lines, &line, err);
        if (status != STATUS_OK)
            return status;
        if (line.text == NULL)
            break;
        struct row *row = &window->rows[window->count];
        *row = (struct row){.request = &window->request,
                            .ids = window->ids + tokens,
                            .output = window->output + (size_t)window->count * model->dim};
        status = texts_encode(model, &line, &embedder->scratch, row->ids, &row->tokens, err);
        if (status != STATUS_OK)
            return err_prefix(err, "%s line %llu", lines->name, (unsigned long long)lines->number);
        tokens += row->tokens;
        window->count++;
    }
    window->end_bytes = lines->read_bytes;
    return STATUS_OK;
}

static struct window *window_of(const struct row *row)
{
    return (struct window *)row->request;
}

static enum status check_finite(struct embedder *embedder, const struct row *row, struct err *err)
{
    const struct window *window = window_of(row);
    for (uint32_t i = 0; i < embedder->job->model->dim; i++)
        if (!isfinite(row->output[i]))
            return err_set(err, STATUS_NON_FINITE, "%s line %llu: its vector is not finite; try --precision f32",
                           embedder->job->lines->name,
                           (unsigned long long)window->first_line + (size_t)(row - window->rows));
    return STATUS_OK;
}

/* Waits for one batch and takes its vectors. */
static enum status collect(struct embedder *embedder, struct err *err)
{
    struct batch *batch = compute_wait(embedder->job->compute, NULL);
    uint32_t dim = embedder->job->model->dim;
    enum status status = batch->status;
    embedder->out--;
    window_of(batch->rows[0])->batches_out--;
    if (status != STATUS_OK && status != STATUS_NON_FINITE) {
        *err = batch->err;
        batch_free(batch);
        return status;
    }
    status = STATUS_OK;
    for (uint32_t i = 0; i < batch->engine.rows && status == STATUS_OK; i++) {
        memcpy(batch->rows[i]->output, batch->engine.output + (size_t)i * dim, dim * sizeof(float));
        status = check_finite(embedder, batch->rows[i], err);
    }
    batch_free(batch);
    return status;
}

static int by_length(const void *a, const void *b)
{
    uint32_t left = (*(struct row *const *)a)->tokens, right = (*(struct row *const *)b)->tokens;
    return (left < right) - (left > right);
}

/* How many of the sorted rows fit into one batch; at least one. */
static uint32_t batch_rows(const struct embed_job *job, struct row *const *rows, uint32_t count)
{
    uint32_t taken = 1;
    uint64_t tokens = rows[0]->tokens;
    while (taken < count && taken < job->max_batch_rows && tokens + rows[taken]->tokens <= job->max_batch_tokens)
        tokens += rows[taken++]->tokens;
    return taken;
}

static enum status submit(struct embedder *embedder, struct window *window, struct err *err)
{
    const struct embed_job *job = embedder->job;
    for (uint32_t i = 0; i < window->count; i++)
        embedder->sorted[i] = &window->rows[i];
    qsort(embedder->sorted, window->count, sizeof(struct row *), by_length);
    for (uint32_t at = 0; at < window->count;) {
        uint32_t rows = batch_rows(job, embedder->sorted + at, window->count - at);
        struct batch *batch = batch_build(embedder->sorted + at, rows, LAYOUT_PACKED, job->model->dim);
        if (batch == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for a batch of %u texts", rows);
        while (!compute_has_room(job->compute)) {
            enum status status = collect(embedder, err);
            if (status != STATUS_OK) {
                batch_free(batch);
                return status;
            }
        }
        compute_put(job->compute, 0, NULL, batch);
        embedder->out++;
        window->batches_out++;
        at += rows;
    }
    return STATUS_OK;
}

/* Waits for the rest of a window and writes it. */
static enum status finish(struct embedder *embedder, struct window *window, struct err *err)
{
    const struct embed_job *job = embedder->job;
    while (window->batches_out > 0) {
        enum status status = collect(embedder, err);
        if (status != STATUS_OK)
            return status;
    }
    enum status status = vectors_put(job->vectors, window->output, window->count, err);
    uint64_t size = job->lines->size_bytes;
    progress_draw(job->progress, job->vectors->count, size == 0 ? -1 : (double)window->end_bytes / (double)size);
    window->count = 0;
    return status;
}

static enum status run_windows(struct embedder *embedder, struct err *err)
{
    enum status status = STATUS_OK;
    unsigned turn = 0;
    for (;; turn++) {
        struct window *window = embedder->windows[turn % 2];
        status = window->count > 0 ? finish(embedder, window, err) : STATUS_OK;
        if (status == STATUS_OK)
            status = fill(embedder, window, err);
        if (status != STATUS_OK || window->count == 0)
            break;
        status = submit(embedder, window, err);
        if (status != STATUS_OK)
            break;
    }
    struct window *last = embedder->windows[(turn + 1) % 2];
    return status == STATUS_OK && last->count > 0 ? finish(embedder, last, err) : status;
}

enum status embed_run(const struct embed_job *job, struct err *err)
{
    struct embedder *embedder = calloc(1, sizeof *embedder);
    if (embedder == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory to embed");
    embedder->job = job;
    bool ready = true;
    for (int i = 0; i < 2; i++) {
        struct window *window = embedder->windows[i] = window_open(job->model);
        ready = ready && window != NULL && window->ids != NULL && window->output != NULL;
    }
    enum status status = ready ? run_windows(embedder, err)
                               : err_set(err, STATUS_NO_MEMORY, "no memory for windows of %d texts", WINDOW_ROWS);
    /* Batches that are still computed after an error refer to rows: let them end first. */
    for (; embedder->out > 0; embedder->out--)
        batch_free(compute_wait(job->compute, NULL));
    window_close(embedder->windows[0]);
    window_close(embedder->windows[1]);
    buffer_free(&embedder->scratch);
    free(embedder);
    return status;
}
