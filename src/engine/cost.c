#include "engine/cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/version.h"
#include "engine/backend.h"
#include "engine/cpu/parallel_for.h"
#include "engine/encoder.h"
#include "model/sentence_transformers.h"

enum { SWEEPS = 10000, TURN_NS = 15000000, TURN_RUNS = 32, HELPED_RUNS = 8, NAME_BYTES = 32, FILE_MAX_BYTES = 4096 };

static const double weigh = 0.05; /* the weight of the last batch in the moving scale, error and help */

/* The batches of the calibration: from a single query to a full pass, of long and of short rows. */
static const struct {
    uint32_t rows, length;
} batches[] = {{1, 16}, {1, 32}, {1, 64}, {1, 256}, {16, 16}, {1, 512}, {16, 32}};
static const uint32_t helped_lengths[] = {16, 128};

enum { BATCHES = sizeof batches / sizeof batches[0], HELPED = sizeof helped_lengths / sizeof helped_lengths[0] };

struct cost_shape cost_shape_of(const struct engine_batch *batch)
{
    struct cost_shape shape = {.tokens = batch->extent};
    for (uint32_t row = 0; row < batch->rows; row++) {
        shape.squares += (double)batch->length[row] * batch->length[row];
    }
    return shape;
}

struct cost cost_from(double batch_ns, double token_ns, double square_ns)
{
    return (struct cost){.terms = {batch_ns, token_ns, square_ns}, .help = 1, .scale = 1};
}

bool cost_known(const struct cost *cost)
{
    return cost->terms[0] > 0 || cost->terms[1] > 0 || cost->terms[2] > 0;
}

double cost_predict_ns(const struct cost *cost, struct cost_shape shape)
{
    double ns = cost->terms[0] + cost->terms[1] * shape.tokens + cost->terms[2] * shape.squares;
    return ns * cost->scale * (shape.helped ? cost->help : 1);
}

/* A batch that took far longer, because the process was stopped, counts as one that took twice as long. */
void cost_observe(struct cost *cost, struct cost_shape shape, double took_ns)
{
    if (!(took_ns > 0) || !(shape.tokens > 0)) { return; }
    if (!cost_known(cost)) { *cost = cost_from(0, took_ns / shape.tokens, 0); }
    double predicted = cost_predict_ns(cost, shape), part = fmax(weigh, 1.0 / (double)(cost->batches + 1));
    cost->error += part * (fabs(predicted - took_ns) / took_ns - cost->error);
    cost->batches++;
    double *factor = shape.helped ? &cost->help : &cost->scale;
    *factor *= pow(fmin(2, fmax(0.5, took_ns / predicted)), weigh);
}

/* Sets each term in turn to the best value given the others, over and over, which converges to the overall best. The
 * price of a token goes first, so that a single batch sets it. */
struct cost cost_fit(const struct cost_shape *shapes, const double *took_ns, unsigned count)
{
    static const int order[COST_TERMS] = {1, 0, 2};
    double a[COST_TERMS][COST_TERMS] = {0}, b[COST_TERMS] = {0}, x[COST_TERMS] = {0};
    for (unsigned k = 0; k < count; k++) {
        const double u[COST_TERMS] = {1 / took_ns[k], shapes[k].tokens / took_ns[k], shapes[k].squares / took_ns[k]};
        for (int i = 0; i < COST_TERMS; i++) {
            b[i] += u[i];
            for (int j = 0; j < COST_TERMS; j++) { a[i][j] += u[i] * u[j]; }
        }
    }
    int terms = count > COST_TERMS ? COST_TERMS : COST_TERMS - 1;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int at = 0; at < terms; at++) {
            int i = order[at];
            double left = b[i];
            for (int j = 0; j < COST_TERMS; j++) { left -= j == i ? 0 : a[i][j] * x[j]; }
            x[i] = a[i][i] > 0 ? fmax(0, left / a[i][i]) : 0;
        }
    }
    struct cost cost = cost_from(x[0], x[1], x[2]);
    for (unsigned k = 0; k < count; k++) {
        cost.error += fabs(cost_predict_ns(&cost, shapes[k]) / took_ns[k] - 1) / count;
    }
    return cost;
}

/* Runs rows of equal length, with ids from all over the vocabulary, several times in a row and keeps the least time. On
 * a thread that computes alone that is processor time, which other programs do not change. A GPU times products in the
 * first pass of a size and captures a graph in the second, so those two do not count. The vectors themselves are not
 * used. */
static enum status measure_batch(struct encoder *encoder, const struct model *model, bool alone, uint32_t rows,
                                 uint32_t length, struct cost_shape *shape, double *least_ns, double *spent_ns,
                                 struct err *err)
{
    length = length < model->max_tokens ? length : model->max_tokens;
    uint32_t extent = rows * length, device = encoder_slots(encoder->engine) > 1, warm = device ? 2 : 0;
    uint32_t least_runs = warm + (alone ? 1 : HELPED_RUNS);
    uint64_t (*now_ns)(void) = alone && !device ? clock_thread_ns : clock_now_ns;
    int32_t *ids = malloc((extent + 2 * (size_t)rows + (size_t)rows * model->dim) * sizeof *ids);
    if (!ids) { return err_set(err, STATUS_NO_MEMORY, "no memory for a batch of %u tokens", extent); }
    uint32_t *start = (uint32_t *)(ids + extent), *lengths = start + rows;
    for (uint32_t i = 0; i < extent; i++) { ids[i] = (int32_t)(i * 2654435761u % model->vocabulary); }
    for (uint32_t row = 0; row < rows; row++) {
        start[row] = row * length;
        lengths[row] = length;
    }
    struct engine_batch batch = {rows, extent, ids, start, lengths, (float *)(lengths + rows), NULL};
    enum status status = STATUS_OK;
    double all_ns = 0;
    *least_ns = INFINITY;
    for (uint32_t run = 0; status == STATUS_OK && (run < least_runs || (all_ns < TURN_NS && run < TURN_RUNS)); run++) {
        uint64_t begin = now_ns();
        status = encoder_run(encoder, &batch, err);
        status = status == STATUS_NON_FINITE ? STATUS_OK : status;
        double took_ns = fmax(1, (double)(now_ns() - begin)); /* a clock may stand still */
        if (run >= warm) {
            *least_ns = fmin(*least_ns, took_ns);
            all_ns += took_ns;
        }
    }
    *shape = cost_shape_of(&batch);
    *spent_ns += all_ns;
    free(ids);
    return status;
}

static enum status measure_help(struct encoder *encoder, const struct model *model, double budget_ns, struct cost *cost,
                                struct err *err)
{
    double least_ns, spent_ns = 0, sum = 0, count = 0;
    for (int i = 0; i < HELPED && (i == 0 || spent_ns < 0.2 * budget_ns); i++) {
        struct cost_shape shape;
        TRY(measure_batch(encoder, model, false, 1, helped_lengths[i], &shape, &least_ns, &spent_ns, err));
        if (encoder_helped(encoder)) {
            sum += least_ns / cost_predict_ns(cost, shape);
            count++;
        }
    }
    cost->help = count > 0 ? sum / count : 1;
    return STATUS_OK;
}

static enum status calibrate_cost(struct encoder *encoder, struct parallel_for *parallel, const struct model *model,
                                  double budget_ns, struct cost *cost, struct err *err)
{
    struct cost_shape shapes[BATCHES];
    double took_ns[BATCHES], spent_ns = 0, token_ns = 0;
    unsigned count = 0;
    for (unsigned i = 0; i < BATCHES; i++) {
        double expected_ns = token_ns * batches[i].rows * batches[i].length;
        if (i == 0 || spent_ns + expected_ns <= budget_ns) {
            TRY(measure_batch(encoder, model, true, batches[i].rows, batches[i].length, &shapes[count], &took_ns[count],
                              &spent_ns, err));
            token_ns = took_ns[count] / shapes[count].tokens;
            count++;
        }
    }
    *cost = cost_fit(shapes, took_ns, count);
    if (!parallel) { return STATUS_OK; }
    TRY(encoder_join(encoder, parallel, err));
    return measure_help(encoder, model, budget_ns, cost, err);
}

enum status cost_calibrate(const struct cost_source *of, uint64_t budget_ns, struct cost *out, struct err *err)
{
    struct encoder *encoder = NULL;
    struct parallel_for *parallel = NULL;
    struct cost cost;
    enum status status = STATUS_OK;
    *out = cost_from(0, 0, 0);
    if (of->threads > 1 && encoder_slots(of->engine) == 1) { status = parallel_for_open(of->threads, &parallel, err); }
    if (status == STATUS_OK) { status = encoder_open(of->engine, &encoder, err); }
    if (status == STATUS_OK) {
        status = calibrate_cost(encoder, parallel, of->model, (double)budget_ns, &cost, err);
        encoder_close(encoder);
    }
    parallel_for_close(parallel);
    *out = status == STATUS_OK ? cost : *out;
    return status;
}

static void print_head(const struct cost_source *of, struct buffer *out)
{
    const struct model *model = of->model;
    buffer_format(out, "sluice cost 9\nversion %s\nbackend %s\ndevice %s\nthreads %u\nprecision %s\n", sluice_version,
                  engine_backend(of->engine), engine_device(of->engine), of->threads,
                  precision_name(engine_precision(of->engine)));
    char layer[BACKEND_LAYER_TEXT];
    buffer_format(out, "shape layers %" PRIu32 " of %s", model->layer_count, backend_print_layer(model, layer));
    buffer_format(out, " tokens %" PRIu32 " pooling %s\n", model->max_tokens, pooling_name(model->pooling));
}

/* 17 digits are enough to read a number back as it was. */
void cost_print(const struct cost_source *of, const struct cost *cost, struct buffer *out)
{
    print_head(of, out);
    buffer_format(out, "terms %.17g %.17g %.17g help %.17g\n", cost->terms[0], cost->terms[1], cost->terms[2],
                  cost->help);
    if (buffer_ok(out)) { buffer_format(out, "checksum %016" PRIx64 "\n", (uint64_t)XXH64(out->data, out->length, 0)); }
}

/* Accepts only numbers that a fit can produce, and only if the rest of the text is byte for byte what cost_print
 * writes. */
enum status cost_parse(const char *text, size_t length, const struct cost_source *of, struct cost *out, struct err *err)
{
    struct buffer same = {0};
    struct cost cost = cost_from(0, 0, 0);
    double *t = cost.terms;
    const char *at = strstr(text, "\nterms ");
    *out = cost;
    bool good = at && sscanf(at, "\nterms %lf %lf %lf help %lf", &t[0], &t[1], &t[2], &cost.help) == 4;
    good = good && cost_known(&cost) && t[0] >= 0 && t[1] >= 0 && t[2] >= 0 && isfinite(t[0] + t[1] + t[2]) &&
           cost.help > 0 && isfinite(cost.help);
    if (good) { cost_print(of, &cost, &same); }
    bool complete = buffer_ok(&same);
    good = good && complete && same.length == length && memcmp(same.data, text, length) == 0;
    buffer_free(&same);
    if (!complete) { return err_set(err, STATUS_NO_MEMORY, "no memory to read a calibration"); }
    if (!good) { return err_set(err, STATUS_BAD_INPUT, "a calibration that is damaged"); }
    *out = cost;
    return STATUS_OK;
}

/* One file for each head, so that calibrations do not overwrite each other. */
static enum status file_name(const struct cost_source *of, char out[NAME_BYTES], struct err *err)
{
    struct buffer head = {0};
    print_head(of, &head);
    bool complete = buffer_ok(&head);
    if (complete) { snprintf(out, NAME_BYTES, "cost-%016" PRIx64 ".txt", (uint64_t)XXH64(head.data, head.length, 0)); }
    buffer_free(&head);
    return complete ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the name of a file");
}

enum status cost_recall(const char *directory, const struct cost_source *of, struct cost *out, struct err *err)
{
    char name[NAME_BYTES], path[FILE_PATH_BYTES];
    struct buffer text = {0};
    struct err why = {0};
    *out = cost_from(0, 0, 0);
    TRY(file_name(of, name, err));
    TRY(file_path(directory, name, path, err));
    TRY(file_read(path, FILE_MAX_BYTES, &text, err));
    enum status status = cost_parse(text.data, text.length, of, out, &why);
    buffer_free(&text);
    return status == STATUS_OK ? status : err_set(err, status, "%s: %s", path, why.message);
}

enum status cost_remember(const char *directory, const struct cost_source *of, const struct cost *cost, struct err *err)
{
    char name[NAME_BYTES];
    struct buffer text = {0};
    TRY(file_name(of, name, err));
    cost_print(of, cost, &text);
    enum status status = cache_write(directory, name, &text, err);
    buffer_free(&text);
    return status;
}
