/* Other work on the machine disturbs single rounds. So all passes are measured in rounds, one after the other, and the
 * best round of each length counts. */
#include "bench/engine_rate.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "bench/report.h"
#include "bench/stage.h"
#include "compute/devices.h"
#include "config/config.h"
#include "engine/cost.h"
#include "engine/cpu/parallel_for.h"

/* ---- the same work over and over on several threads ---- */

/* All threads begin to count together, when the slowest is ready. Each divides by its own time, so that its whole last
 * run counts. */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    unsigned missing;
    bool failed; /* a thread could not be started, or is not ready */
};

struct runner {
    pthread_t thread;
    const struct workload *workload;
    struct gate *gate;
    uint64_t for_ns;
    double rate;
    enum status status;
    struct err err;
};

/* Waits for all other threads. Returns whether all are ready. */
static bool pass_gate(struct gate *gate, bool ready)
{
    pthread_mutex_lock(&gate->lock);
    gate->failed |= !ready;
    if (--gate->missing == 0) { pthread_cond_broadcast(&gate->opened); }
    while (gate->missing > 0) { pthread_cond_wait(&gate->opened, &gate->lock); }
    bool all = !gate->failed;
    pthread_mutex_unlock(&gate->lock);
    return all;
}

/* Removes threads that were never started, so that nobody waits for them. */
static void leave_gate(struct gate *gate, unsigned count)
{
    pthread_mutex_lock(&gate->lock);
    gate->failed = true;
    gate->missing -= count;
    if (gate->missing == 0) { pthread_cond_broadcast(&gate->opened); }
    pthread_mutex_unlock(&gate->lock);
}

static void *run_thread(void *argument)
{
    struct runner *runner = argument;
    const struct workload *workload = runner->workload;
    void *state = NULL;
    runner->status = workload->open(workload->context, &state, &runner->err);
    if (runner->status == STATUS_OK) { runner->status = workload->run(state, &runner->err); }
    if (pass_gate(runner->gate, runner->status == STATUS_OK)) {
        double done = 0;
        uint64_t begin = clock_now_ns(), now = begin;
        for (; runner->status == STATUS_OK && now - begin < runner->for_ns; now = clock_now_ns(), done++) {
            runner->status = workload->run(state, &runner->err);
        }
        runner->rate = done * 1e9 / (double)(now - begin);
    }
    workload->close(state);
    return NULL;
}

enum status workload_measure(const struct workload *workload, unsigned threads, uint64_t for_ns, double *rate,
                             struct err *err)
{
    struct runner runners[WORKLOAD_THREADS_MAX];
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, threads, false};
    enum status status = STATUS_OK;
    unsigned started = 0;
    for (; started < threads; started++) {
        runners[started] = (struct runner){.workload = workload, .gate = &gate, .for_ns = for_ns};
        if (pthread_create(&runners[started].thread, NULL, run_thread, &runners[started]) != 0) { break; }
    }
    if (started < threads) {
        status = err_set(err, STATUS_IO, "cannot start %u threads", threads);
        leave_gate(&gate, threads - started);
    }
    *rate = 0;
    for (unsigned i = 0; i < started; i++) {
        pthread_join(runners[i].thread, NULL);
        *rate += runners[i].rate;
        if (status == STATUS_OK && runners[i].status != STATUS_OK) {
            status = err_set(err, runners[i].status, "%s", runners[i].err.message);
        }
    }
    return status;
}

/* ---- passes ---- */

struct pass_state {
    struct encoder *encoder;
    struct engine_batch *batches; /* [count], of one output */
    uint32_t count;
    unsigned slots, out; /* out: batches put and not yet taken */
};

/* How texts are put into batches. */
struct cutting {
    uint32_t tokens; /* of a batch, with padding, unless a single text has more */
    bool padded;     /* to the longest of a batch */
};

/* The number of texts of the next batch, at least 1, and what it takes up. Shapes: lengths [texts]. */
static uint32_t cut_one(const struct cutting *cutting, const uint32_t *lengths, uint32_t texts, uint32_t *longest,
                        size_t *extent)
{
    uint32_t rows = 0;
    *longest = 0;
    *extent = 0;
    for (; rows < texts; rows++) {
        uint32_t widest = lengths[rows] > *longest ? lengths[rows] : *longest;
        size_t next = cutting->padded ? (size_t)widest * (rows + 1) : *extent + lengths[rows];
        if (rows > 0 && next > cutting->tokens) { break; }
        *longest = widest;
        *extent = next;
    }
    return rows;
}

/* Makes batches of texts of these lengths, in order. Shapes: lengths [texts]. */
static enum status open_passes(struct passes *passes, struct engine *engine, const struct model *model,
                               const uint32_t *lengths, uint32_t texts, const struct cutting *cutting, struct err *err)
{
    size_t all = 0, extent;
    uint32_t longest, count = 0;
    for (uint32_t at = 0; at < texts; at += cut_one(cutting, lengths + at, texts - at, &longest, &extent), count++) {
        (void)cut_one(cutting, lengths + at, texts - at, &longest, &extent);
        all += extent;
    }
    *passes = (struct passes){.engine = engine, .model = model, .count = count, .extent = all};
    passes->batches = malloc(count * sizeof *passes->batches + (all + 2 * (size_t)texts) * sizeof(int32_t));
    if (!passes->batches) { return err_set(err, STATUS_NO_MEMORY, "no memory for batches of %zu tokens", all); }
    uint32_t *start = (uint32_t *)(passes->batches + count), *length = start + texts;
    int32_t *ids = (int32_t *)(length + texts);
    for (size_t i = 0; i < all; i++) { ids[i] = (int32_t)((i + 1) * 2654435761u % model->vocabulary); }
    for (uint32_t i = 0, text = 0; i < count; i++) {
        uint32_t rows = cut_one(cutting, lengths + text, texts - text, &longest, &extent), at = 0;
        passes->batches[i] =
            (struct engine_batch){rows, (uint32_t)extent, ids, start + text, length + text, NULL, NULL};
        passes->most_rows = rows > passes->most_rows ? rows : passes->most_rows;
        for (uint32_t row = 0; row < rows; row++, text++) {
            start[text] = at;
            length[text] = lengths[text];
            at += cutting->padded ? longest : lengths[text];
        }
        ids += extent;
    }
    return STATUS_OK;
}

enum status passes_open_even(struct passes *passes, struct engine *engine, const struct model *model, uint32_t rows,
                             uint32_t length, struct err *err)
{
    uint32_t *lengths = malloc(rows * sizeof *lengths);
    *passes = (struct passes){0};
    if (!lengths) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u lengths", rows); }
    for (uint32_t row = 0; row < rows; row++) { lengths[row] = length; }
    enum status status =
        open_passes(passes, engine, model, lengths, rows, &(struct cutting){.tokens = UINT32_MAX}, err);
    free(lengths);
    return status;
}

void passes_close(struct passes *passes)
{
    free(passes->batches);
}

/* Batches that are out write to the same output; no thread but this one does, and the vectors do not matter here. */
static enum status open_state(void *context, void **out, struct err *err)
{
    struct passes *passes = context;
    struct pass_state *state = calloc(1, sizeof *state);
    *out = state;
    if (!state) { return err_set(err, STATUS_NO_MEMORY, "no memory for an encoder"); }
    state->count = passes->count;
    state->slots = encoder_slots(passes->engine);
    size_t batches = passes->count * sizeof *state->batches;
    state->batches = malloc(batches + (size_t)passes->most_rows * passes->model->dim * sizeof(float));
    if (!state->batches) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u vectors", passes->most_rows); }
    memcpy(state->batches, passes->batches, batches);
    float *output = (float *)(state->batches + passes->count);
    for (uint32_t i = 0; i < passes->count; i++) { state->batches[i].output = output; }
    TRY(encoder_open(passes->engine, &state->encoder, err));
    return passes->parallel ? encoder_join(state->encoder, passes->parallel, err) : STATUS_OK;
}

static enum status take_oldest(struct pass_state *state, struct err *err)
{
    enum status status = encoder_take(state->encoder, err);
    state->out--;
    return status == STATUS_NON_FINITE ? STATUS_OK : status;
}

/* Keeps the device's slots full, as a daemon does: the host's share of a batch counts only where the device waits for
 * it. */
static enum status run_all(void *of, struct err *err)
{
    struct pass_state *state = of;
    for (uint32_t i = 0; i < state->count; i++) {
        if (state->out == state->slots) { TRY(take_oldest(state, err)); }
        TRY(encoder_put(state->encoder, &state->batches[i], err));
        state->out++;
    }
    return STATUS_OK;
}

/* Runs one batch from its beginning to its end. */
static enum status run_alone(struct pass_state *state, struct err *err)
{
    enum status status = encoder_run(state->encoder, &state->batches[0], err);
    return status == STATUS_NON_FINITE ? STATUS_OK : status;
}

static void close_state(void *of)
{
    struct pass_state *state = of;
    if (!state) { return; }
    while (state->out > 0) { (void)take_oldest(state, NULL); }
    encoder_close(state->encoder);
    free(state->batches);
    free(state);
}

struct workload passes_workload(struct passes *passes)
{
    return (struct workload){open_state, run_all, close_state, passes};
}

/* Runs the batch on one thread for at least `for_ns` and at least `times` times. Adds the wall time of each pass, and
 * its processor time (0 where a device computes). Units: ms. Errors: those of the engine, STATUS_NO_MEMORY. */
static enum status time_passes(struct passes *passes, uint64_t for_ns, unsigned times, struct sample *took_ms,
                               struct sample *cpu_ms, struct err *err)
{
    void *state = NULL;
    enum status status = open_state(passes, &state, err);
    if (status == STATUS_OK) { status = run_alone(state, err); /* to warm up */ }
    uint64_t now = clock_now_ns(), ends = now + for_ns;
    for (unsigned count = 0; status == STATUS_OK && (now < ends || count < times); count++) {
        uint64_t begin = now, begin_cpu = clock_thread_ns();
        status = run_alone(state, err);
        sample_add(cpu_ms, (double)(clock_thread_ns() - begin_cpu) / NS_PER_MS);
        now = clock_now_ns();
        sample_add(took_ms, (double)(now - begin) / NS_PER_MS);
    }
    close_state(state);
    if (status == STATUS_OK && (took_ms->broken || cpu_ms->broken)) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the times of passes");
    }
    return status;
}

/* ---- the command ---- */

enum {
    MIXED_TEXTS = 32,
    MIXED_BATCHES = 4,
    POINTS = 3 * NUMBERS_MAX,
    PASS_TOKENS = 1024,
    HELPED_TOKENS = 256,
    TIMES = 10
};

struct bench {
    const struct bench_engine_options *options;
    struct report *report;
    struct model *model;
    struct engine *engine;
    struct numbers lengths;
    bool cpu;                      /* the backend is the CPU */
    struct parallel_for *parallel; /* helpers for short passes; NULL: none */
    struct cost calibrated;
};

double bench_engine_operations(const struct model *model, double length)
{
    double hidden = model->hidden, inner = model->intermediate_size;
    return model->layer_count * (2 * (4 * hidden * hidden + 2 * hidden * inner) + 4 * length * hidden);
}

static enum status open_engine(struct bench *bench, const struct config *config, struct err *err)
{
    struct engine_options options = devices_options(config, false);
    options.no_graphs = !bench->options->graphs;
    options.exact_gelu = bench->options->gelu == 1;
    uint64_t begin = clock_now_ns();
    TRY(config_model(config, &bench->model, err));
    uint64_t opened = clock_now_ns();
    bench->model->read_once = true;
    TRY(engine_open(bench->model, &options, &bench->engine, err));
    uint64_t ready = clock_now_ns();
    model_release_weights(bench->model);
    report_text(bench->report, "model", bench->model->name);
    report_text(bench->report, "backend", engine_backend(bench->engine));
    report_text(bench->report, "precision", precision_name(engine_precision(bench->engine)));
    report_number(bench->report, "model_open_ms", (double)(opened - begin) / NS_PER_MS, 1);
    report_number(bench->report, "engine_open_ms", (double)(ready - opened) / NS_PER_MS, 1);
    report_number(bench->report, "weight_mb", (double)engine_weight_bytes(bench->engine) / 1e6, 1);
    return STATUS_OK;
}

static const struct column batch_columns[] = {
    {"threads", "threads", 0},       {"tokens", "tokens", 0},     {"rows", "rows", 0},   {"texts_per_s", "texts/s", 1},
    {"tokens_per_s", "tokens/s", 0}, {"batch_ms", "batch ms", 3}, {"gflops", "GF/s", 1},
};

/* Measures one length on this many threads. */
static enum status measure_batches(struct bench *bench, unsigned threads, uint32_t length, struct err *err)
{
    const struct bench_engine_options *options = bench->options;
    uint64_t round_ns = (uint64_t)options->round_ms * NS_PER_MS;
    uint32_t rows = (uint32_t)options->batch_tokens / length;
    struct passes passes;
    rows = rows == 0 ? 1 : rows;
    enum status status = passes_open_even(&passes, bench->engine, bench->model, rows, length, err);
    struct workload engine = passes_workload(&passes);
    double best = 0;
    for (int64_t round = 0; round < options->rounds && status == STATUS_OK; round++) {
        double rate;
        status = workload_measure(&engine, threads, round_ns, &rate, err);
        best = fmax(best, rate);
    }
    passes_close(&passes);
    if (status != STATUS_OK) { return status; }
    double texts = best * rows, gflops = texts * length * bench_engine_operations(bench->model, length) / 1e9;
    double batch_ms = 1000 * threads / best;
    report_row(bench->report, NULL, (const double[]){threads, length, rows, texts, texts * length, batch_ms, gflops});
    return STATUS_OK;
}

static enum status batches(struct bench *bench, unsigned most, struct err *err)
{
    report_table(bench->report, "batches", batch_columns, sizeof batch_columns / sizeof batch_columns[0]);
    for (unsigned threads = 1;; threads = 2 * threads < most ? 2 * threads : most) {
        for (size_t i = 0; i < bench->lengths.count; i++) {
            TRY(measure_batches(bench, threads, (uint32_t)bench->lengths.items[i], err));
        }
        if (threads == most) { return STATUS_OK; }
    }
}

static const struct column mixed_columns[] = {{"way", "mixed", REPORT_TEXT},   {"threads", "threads", 0},
                                              {"texts", "texts", 0},           {"batches", "batches", 0},
                                              {"padding_share", "padding", 3}, {"texts_per_s", "texts/s", 1}};

/* Lengths from 6 to 200, many short and few long. Shapes: lengths [texts]. Returns their sum. */
static uint64_t mixed_lengths(const struct model *model, uint32_t *lengths, uint32_t texts)
{
    uint64_t seed = 7, sum = 0;
    uint32_t most = model->max_tokens < 200 ? model->max_tokens : 200, least = most < 6 ? 1 : 6;
    for (uint32_t i = 0; i < texts; i++) {
        double share = random_share(&seed);
        lengths[i] = least + (uint32_t)(share * share * share * (most - least + 1));
        sum += lengths[i];
    }
    return sum;
}

static int longer_first(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a < b) - (a > b);
}

/* A way of making batches of the mixed texts. */
struct way {
    const char *name;
    bool sorted, padded;
    uint32_t batches; /* about how many; 0: each text is one */
    struct passes passes;
    double best; /* runs/s */
};

static enum status measure_ways(struct bench *bench, struct way *ways, size_t count, uint32_t *lengths, uint32_t texts,
                                unsigned threads, struct err *err)
{
    uint64_t sum = mixed_lengths(bench->model, lengths, texts);
    memcpy(lengths + texts, lengths, texts * sizeof *lengths);
    qsort(lengths + texts, texts, sizeof *lengths, longer_first);
    for (size_t i = 0; i < count; i++) {
        struct way *way = &ways[i];
        struct cutting cutting = {.padded = way->padded};
        if (way->batches > 0) { cutting.tokens = (uint32_t)((sum + way->batches - 1) / way->batches); }
        const uint32_t *of = lengths + (way->sorted ? texts : 0);
        TRY(open_passes(&way->passes, bench->engine, bench->model, of, texts, &cutting, err));
    }
    for (size_t i = 0; i < count * (size_t)bench->options->rounds; i++) {
        struct way *way = &ways[i % count];
        struct workload workload = passes_workload(&way->passes);
        double rate;
        TRY(workload_measure(&workload, threads, (uint64_t)bench->options->round_ms * NS_PER_MS, &rate, err));
        way->best = fmax(way->best, rate);
    }
    report_table(bench->report, "mixed", mixed_columns, sizeof mixed_columns / sizeof mixed_columns[0]);
    for (size_t i = 0; i < count; i++) {
        report_row(bench->report, &ways[i].name,
                   (const double[]){threads, texts, ways[i].passes.count,
                                    1 - (double)sum / (double)ways[i].passes.extent, ways[i].best * texts});
    }
    return STATUS_OK;
}

/* Measures the same texts in each way, in turn, on all threads. A device with several slots gets full batches. */
static enum status mixed(struct bench *bench, unsigned threads, struct err *err)
{
    enum { MEAN_TOKENS = 55 };
    struct way ways[] = {{"packed", false, false, MIXED_BATCHES, {0}, 0},
                         {"padded, by length", true, true, MIXED_BATCHES, {0}, 0},
                         {"padded, in order", false, true, MIXED_BATCHES, {0}, 0},
                         {"one by one", false, false, 0, {0}, 0}};
    enum { WAYS = sizeof ways / sizeof ways[0] };
    uint32_t full = MIXED_BATCHES * (uint32_t)bench->options->batch_tokens / MEAN_TOKENS, texts = MIXED_TEXTS;
    if (encoder_slots(bench->engine) > 1 && full > texts) { texts = full; }
    uint32_t *lengths = malloc(2 * (size_t)texts * sizeof *lengths);
    enum status status = lengths ? measure_ways(bench, ways, WAYS, lengths, texts, threads, err)
                                 : err_set(err, STATUS_NO_MEMORY, "no memory for %u lengths", texts);
    for (int i = 0; i < WAYS; i++) { passes_close(&ways[i].passes); }
    free(lengths);
    return status;
}

/* A pass that is repeated. */
struct point {
    uint32_t length, rows;
    struct parallel_for *parallel; /* helpers; NULL: one thread */
    struct sample took, cpu;
    struct cost_shape shape;
    double median_ns;
};

static unsigned add_points(const struct bench *bench, struct point points[POINTS])
{
    unsigned count = 0;
    for (size_t i = 0; i < bench->lengths.count; i++) {
        points[count++] = (struct point){.length = (uint32_t)bench->lengths.items[i], .rows = 1};
    }
    for (size_t i = 0; i < bench->lengths.count; i++) {
        uint32_t length = (uint32_t)bench->lengths.items[i];
        points[count++] = (struct point){.length = length, .rows = length < PASS_TOKENS / 2 ? PASS_TOKENS / length : 2};
    }
    for (size_t i = 0; i < bench->lengths.count; i++) {
        if (bench->parallel && bench->lengths.items[i] <= HELPED_TOKENS) {
            points[count++] =
                (struct point){.length = (uint32_t)bench->lengths.items[i], .rows = 1, .parallel = bench->parallel};
        }
    }
    return count;
}

static enum status measure_point(const struct bench *bench, struct point *point, struct err *err)
{
    struct passes passes;
    unsigned times = (unsigned)(TIMES / bench->options->rounds) + 1; /* in a round */
    enum status status = passes_open_even(&passes, bench->engine, bench->model, point->rows, point->length, err);
    passes.parallel = point->parallel;
    if (status == STATUS_OK) {
        status =
            time_passes(&passes, (uint64_t)bench->options->round_ms * NS_PER_MS, times, &point->took, &point->cpu, err);
    }
    if (status == STATUS_OK) { point->shape = cost_shape_of(&passes.batches[0]); }
    passes_close(&passes);
    return status;
}

static const struct column pass_columns[] = {
    {"tokens", "tokens", 0}, {"rows", "rows", 0},     {"threads", "threads", 0},   {"passes", "passes", 0},
    {"p50_ms", "p50 ms", 3}, {"p99_ms", "p99 ms", 3}, {"least_ms", "least ms", 3}, {"least_cpu_ms", "least CPU", 3}};

static const struct column cost_columns[] = {{"tokens", "tokens", 0},          {"squares", "squares", 0},
                                             {"helped", "helped", 0},          {"median_ms", "median ms", 3},
                                             {"predicted_ms", "predicted", 3}, {"prediction_error", "error", 3}};

/* Reports how well a daemon's calibration at startup would have predicted the median pass. */
static void explain(const struct bench *bench, const struct point *points, unsigned count)
{
    const struct cost *cost = &bench->calibrated;
    double worst = 0;
    report_table(bench->report, "cost", cost_columns, sizeof cost_columns / sizeof cost_columns[0]);
    for (unsigned i = 0; i < count; i++) {
        double predicted_ns = cost_predict_ns(cost, points[i].shape), error = predicted_ns / points[i].median_ns - 1;
        worst = fmax(worst, points[i].rows > 1 ? fabs(error) : 0);
        report_row(bench->report, NULL,
                   (const double[]){points[i].shape.tokens, points[i].shape.squares, points[i].shape.helped,
                                    points[i].median_ns / NS_PER_MS, predicted_ns / NS_PER_MS, error});
    }
    report_number(bench->report, "worst_batch_error", worst, 3);
    report_number(bench->report, "cost_batch_us", cost->terms[0] / 1e3, 2);
    report_number(bench->report, "cost_token_ns", cost->terms[1], 2);
    report_number(bench->report, "cost_square_ps", cost->terms[2] * 1e3, 3);
    report_number(bench->report, "cost_help", cost->help, 3);
}

/* Measures passes of one text and of about 1,024 tokens on one thread, short texts with helpers, too, and how well a
 * daemon would have predicted them. */
static enum status single_passes(struct bench *bench, struct err *err)
{
    struct point points[POINTS];
    unsigned count = add_points(bench, points);
    enum status status = STATUS_OK;
    for (int64_t round = 0; round < bench->options->rounds; round++) {
        for (unsigned i = 0; i < count && status == STATUS_OK; i++) { status = measure_point(bench, &points[i], err); }
    }
    if (status == STATUS_OK) {
        report_table(bench->report, "passes", pass_columns, sizeof pass_columns / sizeof pass_columns[0]);
        for (unsigned i = 0; i < count; i++) {
            /* A single CPU thread is measured by its processor time; helped passes and other devices by wall time. */
            struct point *point = &points[i];
            struct sample *sample = bench->cpu && !point->parallel ? &point->cpu : &point->took;
            point->shape.helped = point->parallel;
            point->median_ns = sample_quantile(sample, 0.5) * NS_PER_MS + 1; /* the null engine may take no time */
            double threads = point->parallel ? parallel_for_threads(point->parallel) : 1;
            report_row(bench->report, NULL,
                       (const double[]){point->length, point->rows, threads, (double)point->took.count,
                                        sample_quantile(&point->took, 0.5), sample_quantile(&point->took, 0.99),
                                        sample_quantile(&point->took, 0),
                                        bench->cpu ? sample_quantile(&point->cpu, 0) : NAN});
        }
        explain(bench, points, count);
    }
    for (unsigned i = 0; i < count; i++) {
        sample_free(&points[i].took);
        sample_free(&points[i].cpu);
    }
    return status;
}

static enum status run(struct bench *bench, const struct config *config, struct err *err)
{
    unsigned threads = config_threads(config);
    TRY(numbers_parse("--tokens", bench->options->tokens, 1, 1 << 20, &bench->lengths, err));
    TRY(open_engine(bench, config, err));
    for (size_t i = 0; i < bench->lengths.count; i++) {
        if (bench->lengths.items[i] > bench->model->max_tokens) {
            return err_set(err, STATUS_BAD_INPUT, "--tokens %lld: %s takes at most %u tokens",
                           (long long)bench->lengths.items[i], bench->model->name, bench->model->max_tokens);
        }
    }
    bench->cpu = strcmp(engine_backend(bench->engine), "cpu") == 0;
    threads = threads < WORKLOAD_THREADS_MAX ? threads : WORKLOAD_THREADS_MAX;
    const struct cost_source of = {bench->engine, bench->model, threads};
    TRY(cost_calibrate(&of, COST_CALIBRATE_NS, &bench->calibrated, err));
    if (threads > 1 && bench->cpu) { TRY(parallel_for_open(threads, &bench->parallel, err)); }
    threads = bench->cpu ? threads : 1;
    TRY(batches(bench, threads, err));
    TRY(mixed(bench, threads, err));
    TRY(single_passes(bench, err));
    report_number(bench->report, "memory_mb", process_memory_mb(getpid(), "VmRSS"), 1);
    report_number(bench->report, "memory_peak_mb", process_memory_mb(getpid(), "VmHWM"), 1);
    return STATUS_OK;
}

enum status bench_engine(const struct config *config, const struct bench_engine_options *options, struct report *report,
                         struct err *err)
{
    struct bench bench = {.options = options, .report = report};
    enum status status = run(&bench, config, err);
    parallel_for_close(bench.parallel);
    if (bench.engine) { engine_close(bench.engine); }
    if (bench.model) { model_close(bench.model); }
    return status;
}
