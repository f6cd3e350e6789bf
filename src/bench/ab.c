/* Compares ways to batch at the same loads. Loads are percent of the capacity of the daemon's own way (packed, no
 * window): 80 means the same requests at the same rate for all ways. A way that cannot keep up has latencies that grow
 * until the arrivals end, and fewer texts/s than were offered. */
#include "bench/benchmarks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/load.h"
#include "bench/report.h"
#include "config/config.h"

static const char *const way_names[] = {"off", "fifo", "sorted", "packed", NULL};
enum way { OFF, FIFO, SORTED, PACKED };

struct bench {
    const struct bench_ab_options *options;
    struct report *report;
    struct stage stage;
    struct model *model;
    struct texts texts;
    struct numbers ways, windows, loads;
    unsigned threads;
    double price_per_hour;
    double capacity; /* texts/s */
};

static const struct column columns[] = {
    {"way", "batches", REPORT_TEXT}, {"window_ms", "window", 0},        {"arrivals", "arrivals", REPORT_TEXT},
    {"load", "load %", 0},           {"offered_per_s", "offered/s", 1}, {"requests", "requests", 0},
    {"errors", "errors", 0},         {"doubled", "doubled", 0},         {"texts_per_s", "texts/s", 1},
    {"p50_ms", "p50 ms", 2},         {"p99_ms", "p99 ms", 2},           {"batch_rows", "a batch", 2},
    {"padding_share", "padding", 3}, {"busy_share", "busy", 3},         {"cost_per_1000", "per 1000", 6},
};

/* A run; load NAN: as many requests as the daemon takes. */
struct point {
    enum way way;
    int64_t window_ms;
    double load;
    bool burst;
};

static void add_row(struct bench *bench, const struct point *point, const struct trial *trial,
                    struct trial_result *result)
{
    struct load_result *load = &result->load;
    const struct daemon_counts *counts = &result->counts;
    report_row(bench->report,
               (const char *const[]){way_names[point->way], isnan(point->load) ? "full"
                                                            : point->burst     ? "bursts"
                                                                               : "random"},
               (const double[]){(double)point->window_ms, point->load, trial->offered, (double)load->sent,
                                (double)load->failed, (double)load->doubled, load->texts_per_s,
                                sample_quantile(&load->latency_ms, 0.5), sample_quantile(&load->latency_ms, 0.99),
                                counts->rows / counts->batches, 1 - counts->tokens / counts->computed_tokens,
                                counts->busy_ms / 1000 / bench->threads / load->seconds,
                                bench->price_per_hour / 3600 / load->texts_per_s * 1000});
}

/* The daemon's flags for a point. Fixed batches end only by their number of rows. */
struct flags {
    const char *items[20];
    size_t count;
    char rows[24], tokens[24], window[24];
};

static void add_flag(struct flags *flags, const char *name, const char *value)
{
    flags->items[flags->count++] = name;
    flags->items[flags->count++] = value;
    flags->items[flags->count] = NULL;
}

static void make_flags(const struct bench *bench, const struct point *point, struct flags *flags)
{
    enum { TOKENS_MOST = 1 << 20 }; /* the largest value that a daemon takes */
    int64_t rows = bench->options->fixed_rows, tokens = rows * bench->model->max_tokens;
    flags->count = 0;
    snprintf(flags->rows, sizeof flags->rows, "%lld", (long long)rows);
    snprintf(flags->tokens, sizeof flags->tokens, "%lld", (long long)(tokens < TOKENS_MOST ? tokens : TOKENS_MOST));
    snprintf(flags->window, sizeof flags->window, "%lld", (long long)point->window_ms);
    add_flag(flags, "--window-ms", flags->window);
    add_flag(flags, "--window", point->window_ms > 0 ? "fixed" : "idle");
    if (point->way == OFF) { add_flag(flags, "--max-batch-rows", "1"); }
    if (point->way == PACKED || point->way == OFF) { add_flag(flags, "--layout", "packed"); }
    if (point->way != FIFO && point->way != SORTED) { return; }
    add_flag(flags, "--layout", point->way == FIFO ? "padded_fifo" : "padded");
    add_flag(flags, "--max-batch-rows", flags->rows);
    add_flag(flags, "--max-batch-tokens", flags->tokens);
    add_flag(flags, "--max-batch-ms", "0");
}

static enum status measure(struct bench *bench, const struct point *point, double *texts_per_s, struct err *err)
{
    struct flags flags;
    make_flags(bench, point, &flags);
    struct trial trial = {.stage = &bench->stage,
                          .texts = &bench->texts,
                          .flags = flags.items,
                          .offered = point->load / 100 * bench->capacity,
                          .burst = point->burst ? (uint32_t)bench->options->burst : 1,
                          .for_ns = (uint64_t)bench->options->duration_ms * NS_PER_MS};
    struct trial_result result;
    enum status status = trial_run(&trial, &result, err);
    if (status == STATUS_OK) { add_row(bench, point, &trial, &result); }
    if (status == STATUS_OK && texts_per_s) { *texts_per_s = result.load.texts_per_s; }
    trial_free(&result);
    return status;
}

/* Runs one way and window: at full load, at each load with random arrivals, and in bursts. */
static enum status measure_way(struct bench *bench, enum way way, int64_t window_ms, struct err *err)
{
    struct point point = {.way = way, .window_ms = window_ms, .load = NAN};
    TRY(measure(bench, &point, NULL, err));
    for (size_t i = 0; i < bench->loads.count; i++) {
        point.load = (double)bench->loads.items[i];
        TRY(measure(bench, &point, NULL, err));
    }
    point.load = (double)bench->options->burst_load;
    point.burst = true;
    return point.load > 0 ? measure(bench, &point, NULL, err) : STATUS_OK;
}

static enum status parse(struct bench *bench, struct err *err)
{
    const struct bench_ab_options *options = bench->options;
    TRY(price_parse(options->price_per_hour, &bench->price_per_hour, err));
    TRY(numbers_parse_words("--ways", options->ways, way_names, &bench->ways, err));
    TRY(numbers_parse("--windows", options->windows, 0, 60000, &bench->windows, err));
    return numbers_parse("--loads", options->loads, 1, 1000, &bench->loads, err);
}

static enum status run(struct bench *bench, const struct config *config, const volatile sig_atomic_t *stop,
                       struct err *err)
{
    const struct bench_ab_options *options = bench->options;
    static const struct point best = {.way = PACKED, .window_ms = 0, .load = NAN};
    TRY(parse(bench, err));
    TRY(config_model(config, &bench->model, err));
    model_release_weights(bench->model);
    if (options->input) {
        TRY(texts_read(options->input, &bench->texts, err));
    } else {
        TRY(texts_open(bench->model, (uint32_t)options->tokens, &bench->texts, err));
    }
    TRY(stage_open(&bench->stage, config, false, stop, err));
    report_text(bench->report, "model", bench->model->name);
    report_number(bench->report, "threads", bench->threads, 0);
    report_number(bench->report, "tokens", (double)options->tokens, 0);
    report_number(bench->report, "price_per_hour", bench->price_per_hour, 4);
    report_table(bench->report, "runs", columns, sizeof columns / sizeof columns[0]);
    TRY(measure(bench, &best, &bench->capacity, err));
    for (size_t i = 0; i < bench->ways.count; i++) {
        enum way way = (enum way)bench->ways.items[i];
        size_t windows = way == OFF ? 1 : bench->windows.count; /* a batch of one text waits for nobody */
        for (size_t k = 0; k < windows; k++) {
            TRY(measure_way(bench, way, way == OFF ? 0 : bench->windows.items[k], err));
        }
    }
    return STATUS_OK;
}

enum status bench_ab(const struct config *config, const struct bench_ab_options *options,
                     const volatile sig_atomic_t *stop, struct report *report, struct err *err)
{
    struct bench bench = {.options = options, .report = report, .threads = config_threads(config)};
    enum status status = run(&bench, config, stop, err);
    stage_close(&bench.stage);
    texts_close(&bench.texts);
    if (bench.model) { model_close(bench.model); }
    return status;
}
