/* The calibration: a few made-up batches, cheap ones first, on the encoder that will do the work. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/cost.h"
#include "engine/encoder.h"

/* From what a single query is to several passes, with short and with long rows, those first that tell the terms apart:
 * a slow device gets through few of them. */
static const struct {
    uint32_t rows, length;
} batches[] = {{1, 16}, {1, 128}, {1, 256}, {16, 16}, {1, 512}, {4, 128}, {1, 64}, {32, 32}, {2, 512}};

enum { BATCHES = sizeof batches / sizeof batches[0], ROUNDS = 4 };

/* A batch that is tried. */
struct trial {
    struct engine_batch *batch; /* NULL: there is no time for it */
    struct cost_shape shape;
    double took_ns; /* the shortest run */
};

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

/* How long this thread has waited for a processor that others had: no part of what a batch takes. 0 where Linux does
 * not count it. */
static double waited_ns(void)
{
    unsigned long long ran, waited = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    if (file != NULL && fscanf(file, "%llu %llu", &ran, &waited) != 2)
        waited = 0;
    if (file != NULL)
        fclose(file);
    return (double)waited;
}

/* Runs a batch. What the vectors are does not matter here, so they may be not finite. The wait may have been before or
 * behind the run, which therefore took at least what it used of the processor. */
static enum status run_once(struct encoder *encoder, const struct engine_batch *batch, double *took_ns, struct err *err)
{
    double waited = waited_ns();
    uint64_t begin = clock_now_ns(), used = clock_thread_ns();
    enum status status = encoder_run(encoder, batch, err);
    double used_ns = (double)(clock_thread_ns() - used), wall_ns = (double)(clock_now_ns() - begin);
    *took_ns = fmax(fmax(1, used_ns), wall_ns - (waited_ns() - waited)); /* a clock may stand still */
    return status == STATUS_NON_FINITE ? STATUS_OK : status;
}

/* A GPU does more in the first pass of a size (it times products) and in the next one (it captures a graph). */
static enum status warm_up(struct encoder *encoder, const struct engine_batch *batch, struct err *err)
{
    double ignored;
    for (int i = 0; i < 2 && encoder_slots(encoder->engine) > 1; i++)
        TRY(run_once(encoder, batch, &ignored, err));
    return STATUS_OK;
}

static enum status begin_trial(struct encoder *encoder, const struct model *model, struct trial *trial, struct err *err)
{
    trial->batch = make_batch(model, (uint32_t)trial->shape.rows, (uint32_t)(trial->shape.tokens / trial->shape.rows));
    if (trial->batch == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a batch of %.0f tokens", trial->shape.tokens);
    TRY(warm_up(encoder, trial->batch, err));
    return run_once(encoder, trial->batch, &trial->took_ns, err);
}

static struct cost fit(struct cost_device device, const struct trial *trials)
{
    struct cost_shape shapes[BATCHES];
    double took_ns[BATCHES];
    unsigned count = 0;
    for (unsigned i = 0; i < BATCHES; i++)
        if (trials[i].batch != NULL) {
            shapes[count] = trials[i].shape;
            took_ns[count++] = trials[i].took_ns;
        }
    return cost_fit(device, shapes, took_ns, count);
}

/* Rounds over all batches, as at work one comes after another: a batch that runs again and again finds its weights in
 * the cache. The first round takes half of the time at most and decides which batches there is time for. */
static enum status run_trials(struct encoder *encoder, const struct model *model, double budget_ns,
                              struct trial *trials, struct cost *out, struct err *err)
{
    struct stream_limits limits = encoder->backend->ops->limits(encoder->stream);
    struct cost_device device = {limits.tokens, limits.strip, limits.fade};
    double spent_ns = 0, took_ns;
    for (unsigned i = 0; i < BATCHES; i++) {
        uint32_t length = batches[i].length < model->max_tokens ? batches[i].length : model->max_tokens;
        double rows = batches[i].rows, tokens = rows * length;
        trials[i].shape = (struct cost_shape){tokens, tokens * length, rows};
        if (i > 0 && spent_ns + cost_predict_ns(out, trials[i].shape) > budget_ns / 2)
            continue;
        TRY(begin_trial(encoder, model, &trials[i], err));
        spent_ns += trials[i].took_ns;
        *out = fit(device, trials);
    }
    for (unsigned round = 1; round < ROUNDS; round++)
        for (unsigned i = 0; i < BATCHES; i++) {
            if (trials[i].batch == NULL || spent_ns + trials[i].took_ns > budget_ns)
                continue;
            TRY(run_once(encoder, trials[i].batch, &took_ns, err));
            trials[i].took_ns = fmin(trials[i].took_ns, took_ns);
            spent_ns += took_ns;
        }
    *out = fit(device, trials);
    return STATUS_OK;
}

enum status cost_calibrate(struct encoder *encoder, const struct model *model, uint64_t budget_ns, struct cost *out,
                           struct err *err)
{
    struct trial trials[BATCHES] = {0};
    *out = cost_from(0, 0, 0);
    enum status status = run_trials(encoder, model, (double)budget_ns, trials, out, err);
    for (unsigned i = 0; i < BATCHES; i++)
        free(trials[i].batch);
    if (status != STATUS_OK)
        *out = cost_from(0, 0, 0);
    return status;
}
