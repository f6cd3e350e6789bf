#include "bench/e2e.h"

#include <math.h>

#include "base/clock.h"
#include "bench/load.h"
#include "bench/report.h"
#include "config/config.h"

struct bench {
    const struct bench_e2e_options *options;
    struct report *report;
    struct stage stage;
    struct model *model;
    unsigned threads;
    struct numbers lengths;
    double on[NUMBERS_MAX], off[NUMBERS_MAX]; /* texts/s when saturated; off: with batches of one text */
};

static const struct column run_columns[] = {
    {"tokens", "tokens", 0},         {"batching", "batching", REPORT_TEXT},
    {"load", "load", REPORT_TEXT},   {"offered_per_s", "offered/s", 1},
    {"requests", "requests", 0},     {"errors", "errors", 0},
    {"doubled", "doubled", 0},       {"texts_per_s", "texts/s", 1},
    {"tokens_per_s", "tokens/s", 0}, {"p50_ms", "p50 ms", 2},
    {"p99_ms", "p99 ms", 2},         {"batch_rows", "a batch", 1},
    {"busy_share", "busy", 3},       {"cpu_us_per_text", "CPU us", 0},
    {"peak_mb", "peak MB", 1},
};

static void add_row(struct bench *bench, uint32_t tokens, bool batching, const struct trial *trial,
                    struct trial_result *result)
{
    struct load_result *load = &result->load;
    const struct daemon_counts *counts = &result->counts;
    report_row(bench->report, (const char *const[]){batching ? "on" : "off", isnan(trial->offered) ? "full" : "random"},
               (const double[]){tokens > 0 ? tokens : result->mean_tokens, trial->offered, (double)load->sent,
                                (double)load->failed, (double)load->doubled, load->texts_per_s,
                                load->texts_per_s * result->mean_tokens, sample_quantile(&load->latency_ms, 0.5),
                                sample_quantile(&load->latency_ms, 0.99), counts->rows / counts->batches,
                                counts->busy_ms / 1000 / bench->threads / load->seconds,
                                1e6 * result->cpu_s / (double)load->sent, result->peak_mb});
}

static enum status measure_point(struct bench *bench, const struct texts *texts, bool batching, double offered,
                                 double *texts_per_s, struct err *err)
{
    static const char *const one_by_one[] = {"--max-batch-rows", "1", NULL}, *const as_configured[] = {NULL};
    struct trial trial = {.stage = &bench->stage,
                          .texts = texts,
                          .flags = batching ? as_configured : one_by_one,
                          .offered = offered,
                          .outstanding = (uint32_t)bench->options->outstanding,
                          .for_ns = (uint64_t)bench->options->duration_ms * NS_PER_MS};
    struct trial_result result;
    enum status status = trial_run(&trial, &result, err);
    if (status == STATUS_OK) {
        add_row(bench, texts->tokens, batching, &trial, &result);
        *texts_per_s = result.load.texts_per_s;
    }
    trial_free(&result);
    return status;
}

static enum status measure_length(struct bench *bench, size_t at, struct err *err)
{
    struct texts texts = {0};
    const char *input = bench->options->input;
    enum status status = input ? texts_read(input, &texts, err)
                               : texts_open(bench->model, (uint32_t)bench->lengths.items[at], &texts, err);
    double rate = (double)bench->options->rate, at_rate;
    if (status == STATUS_OK && bench->options->full) {
        status = measure_point(bench, &texts, true, NAN, &bench->on[at], err);
    }
    if (status == STATUS_OK && bench->options->full && bench->options->alone) {
        status = measure_point(bench, &texts, false, NAN, &bench->off[at], err);
    }
    if (status == STATUS_OK && rate > 0) { status = measure_point(bench, &texts, true, rate, &at_rate, err); }
    texts_close(&texts);
    return status;
}

static const struct column ratio_columns[] = {
    {"tokens", "tokens", 0}, {"on_per_s", "on/s", 1}, {"off_per_s", "off/s", 1}, {"ratio", "on/off", 2}};

static void compare_batching(struct bench *bench)
{
    report_table(bench->report, "batching", ratio_columns, sizeof ratio_columns / sizeof ratio_columns[0]);
    for (size_t i = 0; i < bench->lengths.count; i++) {
        report_row(bench->report, NULL,
                   (const double[]){(double)bench->lengths.items[i], bench->on[i], bench->off[i],
                                    bench->on[i] / bench->off[i]});
    }
}

static enum status run_points(struct bench *bench, const struct config *config, const volatile sig_atomic_t *stop,
                              struct err *err)
{
    const struct bench_e2e_options *options = bench->options;
    TRY(numbers_parse("--tokens", options->input ? "0" : options->tokens, 0, 1 << 20, &bench->lengths, err));
    TRY(config_model(config, &bench->model, err));
    model_release_weights(bench->model);
    TRY(stage_open(&bench->stage, config, false, stop, err));
    report_text(bench->report, "model", bench->model->name);
    report_number(bench->report, "threads", bench->threads, 0);
    report_table(bench->report, "runs", run_columns, sizeof run_columns / sizeof run_columns[0]);
    for (size_t i = 0; i < bench->lengths.count; i++) { TRY(measure_length(bench, i, err)); }
    if (options->full && options->alone) { compare_batching(bench); }
    return STATUS_OK;
}

enum status bench_e2e(const struct config *config, const struct bench_e2e_options *options,
                      const volatile sig_atomic_t *stop, struct report *report, struct err *err)
{
    struct bench bench = {.options = options, .report = report, .threads = config_threads(config)};
    if (!options->full && options->rate == 0) { return err_set(err, STATUS_BAD_INPUT, "--no-full needs --rate"); }
    enum status status = run_points(&bench, config, stop, err);
    stage_close(&bench.stage);
    if (bench.model) { model_close(bench.model); }
    return status;
}
