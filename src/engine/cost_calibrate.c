/* The calibration: a few made-up batches on the encoder that will do the work.
 *
 * Each runs several times in a row, as batches of a kind come in a row at work, the small ones first: behind a pass of
 * 512 tokens, whose activations took the caches, smaller ones are up to 15 % slower for a tenth of a second, until the
 * weights are back. For the same reason the first one runs for a while before it is measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/cost.h"
#include "engine/encoder.h"
#include "engine/team.h"

/* From what a single query is to a full pass, of long and of short rows; a slow device does not come to the last ones.
 * The first two have prices of their own where products take 32 rows at a time. */
static const struct {
    uint32_t rows, length;
} batches[] = {{1, 16}, {1, 32}, {1, 64}, {1, 256}, {16, 16}, {1, 512}, {16, 32}};

/* What helpers are tried with. */
static const uint32_t helped_lengths[] = {16, 128};

enum { BATCHES = sizeof batches / sizeof batches[0] };
enum { HELPED = sizeof helped_lengths / sizeof helped_lengths[0] };

/* A batch runs for so long, and twice at least; once is enough if that is long. */
enum { TURN_NS = 15000000, LONG_NS = 10000000, TURN_RUNS = 32 };

/* A batch that is tried. */
struct trial {
    struct engine_batch *batch; /* NULL: there is no time for it */
    struct cost_shape shape;
    double runs_ns[TURN_RUNS]; /* the shortest first */
    unsigned runs;
};

static void add_run(struct trial *trial, double took_ns)
{
    unsigned at = trial->runs++;
    for (; at > 0 && trial->runs_ns[at - 1] > took_ns; at--)
        trial->runs_ns[at] = trial->runs_ns[at - 1];
    trial->runs_ns[at] = took_ns;
}

/* The lower quartile: what is much slower waited for something else. */
static double typical_ns(const struct trial *trial)
{
    return trial->runs_ns[(trial->runs - 1) / 4];
}

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

static enum status begin_trial(struct encoder *encoder, const struct model *model, struct cost_shape shape,
                               struct trial *trial, struct err *err)
{
    trial->batch = make_batch(model, (uint32_t)shape.rows, (uint32_t)(shape.tokens / shape.rows));
    trial->shape = shape;
    trial->runs = 0;
    if (trial->batch == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a batch of %.0f tokens", shape.tokens);
    return warm_up(encoder, trial->batch, err);
}

/* Runs the batch in a row; adds to what was spent. */
static enum status run_trial(struct encoder *encoder, struct trial *trial, double *spent_ns, struct err *err)
{
    double took_ns = 0, all_ns = 0;
    while (trial->runs < 2 ? took_ns < LONG_NS : all_ns < TURN_NS && trial->runs < TURN_RUNS) {
        TRY(run_once(encoder, trial->batch, &took_ns, err));
        add_run(trial, took_ns);
        all_ns += took_ns;
    }
    *spent_ns += all_ns;
    return STATUS_OK;
}

static struct cost_shape shape_of(const struct model *model, double rows, uint32_t length)
{
    length = length < model->max_tokens ? length : model->max_tokens;
    return (struct cost_shape){rows * length, rows * length * length, rows, false};
}

static struct cost_device device_of(const struct encoder *encoder)
{
    struct stream_limits limits = encoder->backend->ops->limits(encoder->stream);
    return (struct cost_device){.pass = limits.tokens,
                                .strip = limits.strip,
                                .half = limits.half_strip,
                                .keys = limits.keys,
                                .room = limits.room,
                                .helped = limits.helped};
}

static struct cost fit(struct cost_device device, const struct trial *trials)
{
    struct cost_shape shapes[BATCHES];
    double took_ns[BATCHES];
    unsigned count = 0;
    for (unsigned i = 0; i < BATCHES; i++)
        if (trials[i].batch != NULL) {
            shapes[count] = trials[i].shape;
            took_ns[count++] = typical_ns(&trials[i]);
        }
    return cost_fit(device, shapes, took_ns, count);
}

/* Whether there is time for a batch that takes as much for each token as the one before it did. */
static bool has_time(struct cost_shape shape, const struct trial *before, double left_ns)
{
    double expected_ns = typical_ns(before) / before->shape.tokens * shape.tokens;
    return expected_ns * (expected_ns < LONG_NS ? 2 : 1) <= left_ns;
}

static enum status run_trials(struct encoder *encoder, const struct model *model, double budget_ns,
                              struct trial *trials, struct err *err)
{
    const struct trial *before = NULL;
    double spent_ns = 0;
    for (unsigned i = 0; i < BATCHES; i++) {
        struct trial *trial = &trials[i];
        struct cost_shape shape = shape_of(model, batches[i].rows, batches[i].length);
        if (before != NULL && !has_time(shape, before, budget_ns - spent_ns))
            continue;
        TRY(begin_trial(encoder, model, shape, trial, err));
        TRY(run_trial(encoder, trial, &spent_ns, err));
        if (before == NULL && trial->runs > 2) { /* so far it brought the weights into the caches */
            trial->runs = 0;
            TRY(run_trial(encoder, trial, &spent_ns, err));
        }
        before = trial;
    }
    return STATUS_OK;
}

/* What help is worth, in a fifth of the time and more where even that is too short for one batch. */
static enum status run_helped(struct encoder *encoder, const struct model *model, double budget_ns, struct cost *out,
                              struct err *err)
{
    struct cost_shape shapes[HELPED];
    double took_ns[HELPED], spent_ns = 0;
    unsigned count = 0;
    out->device.helped = device_of(encoder).helped;
    for (unsigned i = 0; i < HELPED; i++) {
        struct trial trial = {.batch = NULL};
        struct cost_shape shape = shape_of(model, 1, helped_lengths[i]);
        if (i > 0 && spent_ns + 2 * cost_predict_ns(out, shape) > 0.2 * budget_ns)
            break;
        enum status status = begin_trial(encoder, model, shape, &trial, err);
        if (status == STATUS_OK)
            status = run_trial(encoder, &trial, &spent_ns, err);
        free(trial.batch);
        if (status != STATUS_OK)
            return status;
        shape.helped = encoder_helped(encoder);
        shapes[count] = shape;
        took_ns[count++] = typical_ns(&trial);
    }
    cost_fit_help(out, shapes, took_ns, count);
    return STATUS_OK;
}

enum status cost_calibrate(struct encoder *encoder, struct team *team, const struct model *model, uint64_t budget_ns,
                           struct cost *out, struct err *err)
{
    struct trial trials[BATCHES] = {0};
    *out = cost_from(0, 0, 0);
    enum status status = run_trials(encoder, model, (double)budget_ns, trials, err);
    if (status == STATUS_OK)
        *out = fit(device_of(encoder), trials);
    for (unsigned i = 0; i < BATCHES; i++)
        free(trials[i].batch);
    if (status == STATUS_OK && team != NULL)
        status = encoder_join(encoder, team, err);
    if (status == STATUS_OK && team != NULL)
        status = run_helped(encoder, model, (double)budget_ns, out, err);
    if (status != STATUS_OK)
        *out = cost_from(0, 0, 0);
    return status;
}

enum status cost_calibrate_engine(struct engine *engine, const struct model *model, unsigned threads,
                                  struct team **team, struct cost *out, struct err *err)
{
    struct encoder *encoder = NULL;
    *team = NULL;
    if (threads > 1 && encoder_slots(engine) == 1)
        TRY(team_open(threads, team, err));
    TRY(encoder_open(engine, &encoder, err));
    enum status status = cost_calibrate(encoder, *team, model, COST_CALIBRATE_NS, out, err);
    encoder_close(encoder);
    return status;
}
