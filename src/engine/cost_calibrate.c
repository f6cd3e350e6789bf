/* The calibration: a few made-up batches on the encoder that will do the work.
 *
 * Each runs several times in a row, as batches of a kind come in a row at work: behind a larger one, the next two or
 * three take a millisecond more each, until the third-level cache has all weights again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/cost.h"
#include "engine/encoder.h"
#include "engine/team.h"

/* From what a single query is to a full pass, with short and with long rows; a slow device does not come to the last
 * ones. */
static const struct {
    uint32_t rows, length;
} batches[] = {{1, 16}, {1, 32}, {1, 64}, {1, 128}, {1, 512}, {16, 16}, {16, 32}, {4, 128}, {1, 256}};

/* What helpers are tried with. */
static const uint32_t helped_lengths[] = {16, 128};

enum { BATCHES = sizeof batches / sizeof batches[0], ROUNDS = 4 };
enum { HELPED = sizeof helped_lengths / sizeof helped_lengths[0] };

/* A batch is in turn for so long, but for two runs at least; one run is enough if it is a long one. */
enum { TURN_NS = 8000000, LONG_NS = 20000000 };

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

static enum status begin_trial(struct encoder *encoder, const struct model *model, struct cost_shape shape,
                               struct trial *trial, struct err *err)
{
    *trial = (struct trial){make_batch(model, (uint32_t)shape.rows, (uint32_t)(shape.tokens / shape.rows)), shape};
    if (trial->batch == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a batch of %.0f tokens", shape.tokens);
    trial->took_ns = INFINITY;
    return warm_up(encoder, trial->batch, err);
}

/* Runs the batch in a row; adds to what was spent. */
static enum status take_turn(struct encoder *encoder, struct trial *trial, double *spent_ns, struct err *err)
{
    double took_ns = 0, turn_ns = 0;
    for (int runs = 0; runs < 2 ? took_ns < LONG_NS : turn_ns < TURN_NS; runs++) {
        TRY(run_once(encoder, trial->batch, &took_ns, err));
        trial->took_ns = fmin(trial->took_ns, took_ns);
        turn_ns += took_ns;
    }
    *spent_ns += turn_ns;
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
            took_ns[count++] = trials[i].took_ns;
        }
    return cost_fit(device, shapes, took_ns, count);
}

/* The first round takes three quarters of the time at most and decides which batches there is time for. */
static enum status run_trials(struct encoder *encoder, const struct model *model, double budget_ns,
                              struct trial *trials, struct cost *out, struct err *err)
{
    struct cost_device device = device_of(encoder);
    double spent_ns = 0;
    for (unsigned i = 0; i < BATCHES; i++) {
        struct cost_shape shape = shape_of(model, batches[i].rows, batches[i].length);
        double expected_ns = cost_predict_ns(out, shape);
        if (i > 0 && spent_ns + expected_ns * (expected_ns < LONG_NS ? 2 : 1) > 0.75 * budget_ns)
            continue;
        TRY(begin_trial(encoder, model, shape, &trials[i], err));
        TRY(take_turn(encoder, &trials[i], &spent_ns, err));
        *out = fit(device, trials);
    }
    for (unsigned round = 1; round < ROUNDS; round++)
        for (unsigned i = 0; i < BATCHES; i++)
            if (trials[i].batch != NULL && spent_ns + 2 * trials[i].took_ns <= budget_ns)
                TRY(take_turn(encoder, &trials[i], &spent_ns, err));
    *out = fit(device, trials);
    return STATUS_OK;
}

/* What help is worth, in a tenth of the time and more where even that is too short for one batch. */
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
        if (i > 0 && spent_ns + 2 * cost_predict_ns(out, shape) > 0.1 * budget_ns)
            break;
        enum status status = begin_trial(encoder, model, shape, &trial, err);
        if (status == STATUS_OK)
            status = take_turn(encoder, &trial, &spent_ns, err);
        free(trial.batch);
        if (status != STATUS_OK)
            return status;
        shape.helped = encoder_helped(encoder);
        shapes[count] = shape;
        took_ns[count++] = trial.took_ns;
    }
    cost_fit_help(out, shapes, took_ns, count);
    return STATUS_OK;
}

enum status cost_calibrate(struct encoder *encoder, struct team *team, const struct model *model, uint64_t budget_ns,
                           struct cost *out, struct err *err)
{
    struct trial trials[BATCHES] = {0};
    *out = cost_from(0, 0, 0);
    enum status status = run_trials(encoder, model, (double)budget_ns, trials, out, err);
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
