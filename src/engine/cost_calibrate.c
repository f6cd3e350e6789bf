/* The calibration: a few made-up batches, cheap ones first, on the encoder that will do the work. */
#include <stdlib.h>

#include "base/clock.h"
#include "engine/cost.h"

/* From what a single query is to full passes, with short and with long rows: the terms must be told apart. */
static const struct {
    uint32_t rows, length;
} batches[] = {{1, 8}, {4, 8}, {1, 64}, {16, 16}, {1, 256}, {4, 128}, {1, 512}, {32, 32}, {2, 512}};

enum { BATCHES = sizeof batches / sizeof batches[0], TRIES = 3 };

/* Rows of equal length, packed, of ids that are all over the vocabulary. */
static struct engine_batch *make_batch(const struct model *model, uint32_t rows, uint32_t length)
{
    size_t extent = (size_t)rows * length;
    size_t words = extent + 2 * (size_t)rows + (size_t)rows * model->dim;
    struct engine_batch *batch = malloc(sizeof *batch + words * sizeof(uint32_t));
    if (batch == NULL)
        return NULL;
    uint32_t *start = (uint32_t *)(batch + 1), *lengths = start + rows;
    int32_t *ids = (int32_t *)(lengths + rows);
    for (uint32_t row = 0; row < rows; row++) {
        start[row] = row * length;
        lengths[row] = length;
    }
    for (size_t i = 0; i < extent; i++)
        ids[i] = (int32_t)(i * 2654435761u % model->vocabulary);
    *batch = (struct engine_batch){.rows = rows,
                                   .extent = (uint32_t)extent,
                                   .ids = ids,
                                   .start = start,
                                   .length = lengths,
                                   .output = (float *)(ids + extent)};
    return batch;
}

static int smaller_first(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* Runs a batch. What the vectors are does not matter here, so they may be not finite. */
static enum status run_once(struct encoder *encoder, const struct engine_batch *batch, double *took_ns, struct err *err)
{
    uint64_t begin = clock_now_ns();
    enum status status = encoder_run(encoder, batch, err);
    *took_ns = (double)(clock_now_ns() - begin) + 1; /* a clock may stand still, the null engine may be that fast */
    return status == STATUS_NON_FINITE ? STATUS_OK : status;
}

/* The median of a few runs after one to warm up. A GPU does more in that one, once for a size (it times products), and
 * a little more in the next one (it captures a graph), which the median passes over. */
static enum status measure(struct encoder *encoder, const struct engine_batch *batch, double *first_ns, double *took_ns,
                           struct err *err)
{
    double took[TRIES];
    TRY(run_once(encoder, batch, first_ns, err));
    for (int i = 0; i < TRIES; i++)
        TRY(run_once(encoder, batch, &took[i], err));
    qsort(took, TRIES, sizeof took[0], smaller_first);
    *took_ns = took[TRIES / 2];
    return STATUS_OK;
}

enum status cost_calibrate(struct encoder *encoder, const struct model *model, uint64_t budget_ns, struct cost *out,
                           struct err *err)
{
    struct cost_shape shapes[BATCHES];
    double took_ns[BATCHES];
    unsigned count = 0;
    double first_ns, ends = (double)(clock_now_ns() + budget_ns);
    *out = cost_from(0, 0, 0);
    for (unsigned i = 0; i < BATCHES; i++) {
        uint32_t length = batches[i].length < model->max_tokens ? batches[i].length : model->max_tokens;
        double tokens = (double)batches[i].rows * length;
        struct cost_shape shape = {tokens, tokens * length};
        double left_ns = ends - (double)clock_now_ns();
        if (count > 0 && cost_predict_ns(out, shape) * (TRIES + 1) > left_ns)
            continue;
        struct engine_batch *batch = make_batch(model, batches[i].rows, length);
        if (batch == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for a batch of %.0f tokens", tokens);
        enum status status = measure(encoder, batch, &first_ns, &took_ns[count], err);
        free(batch);
        if (status != STATUS_OK)
            return status;
        if (first_ns > took_ns[count])
            ends += first_ns - took_ns[count]; /* what is done once is not paid for */
        shapes[count++] = shape;
        *out = cost_fit(shapes, took_ns, count);
    }
    return STATUS_OK;
}
