/* Rounds of engine and yardstick alternate, and the best of each counts: whatever else the machine does hits both. The
 * share is model operations in a second (products and attention, as papers count them) over the yardstick's. */
#include "bench/engine.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "bench/cost_check.h"
#include "bench/gemm_peak.h"
#include "bench/numbers.h"
#include "bench/passes.h"
#include "bench/process.h"
#include "serve/devices.h"
#include "serve/start.h"

enum { MIXED_ROWS = 32 };

struct bench {
    const struct bench_engine_options *options;
    struct sheet *sheet;
    struct model *model;
    struct engine *engine;
    struct numbers lengths;
    bool cpu;       /* is the backend */
    bool yardstick; /* there is one for this backend and precision */
    struct cost_check cost;
};

static double operations_per_token(const struct model *model, double length)
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
    TRY(start_model(config, &bench->model, err));
    uint64_t opened = clock_now_ns();
    bench->model->read_once = true;
    TRY(engine_open(bench->model, &options, &bench->engine, err));
    uint64_t ready = clock_now_ns();
    model_release_weights(bench->model);
    sheet_text(bench->sheet, "model", bench->model->name);
    sheet_text(bench->sheet, "backend", engine_backend(bench->engine));
    sheet_text(bench->sheet, "precision", precision_name(engine_precision(bench->engine)));
    sheet_number(bench->sheet, "model_open_ms", (double)(opened - begin) / NS_PER_MS, 1);
    sheet_number(bench->sheet, "engine_open_ms", (double)(ready - opened) / NS_PER_MS, 1);
    sheet_number(bench->sheet, "weight_mb", (double)engine_weight_bytes(bench->engine) / 1e6, 1);
    return STATUS_OK;
}

static const struct column batch_columns[] = {
    {"threads", "threads", 0},     {"tokens", "tokens", 0},         {"rows", "rows", 0},
    {"texts_per_s", "texts/s", 1}, {"tokens_per_s", "tokens/s", 0}, {"batch_ms", "batch ms", 3},
    {"gflops", "GF/s", 1},         {"peak_gflops", "GEMM GF/s", 1}, {"share", "share", 3},
};

/* One length on so many threads. */
static enum status measure_batches(struct bench *bench, unsigned threads, uint32_t length, struct err *err)
{
    const struct bench_engine_options *options = bench->options;
    uint64_t round_ns = (uint64_t)options->round_ms * NS_PER_MS;
    uint32_t rows = (uint32_t)options->batch_tokens / length;
    struct passes passes;
    struct gemm_peak yardstick = {bench->model, engine_precision(bench->engine)};
    rows = rows == 0 ? 1 : rows;
    enum status status = passes_open_even(&passes, bench->engine, bench->model, rows, length, err);
    struct turns engine = passes_turns(&passes), bare = gemm_peak_turns(&yardstick);
    double best = 0, peak = 0;
    for (int64_t round = 0; round < options->rounds && status == STATUS_OK; round++) {
        double rate, bare_rate = 0;
        status = turns_measure(&engine, threads, round_ns, &rate, err);
        if (status == STATUS_OK && bench->yardstick)
            status = turns_measure(&bare, threads, round_ns, &bare_rate, err);
        best = fmax(best, rate);
        peak = fmax(peak, bare_rate * gemm_peak_operations(bench->model) / 1e9);
    }
    passes_close(&passes);
    if (status != STATUS_OK)
        return status;
    double texts = best * rows, gflops = texts * length * operations_per_token(bench->model, length) / 1e9;
    double batch_ms = 1000 * threads / best;
    sheet_row(bench->sheet, (struct cell[]){{NULL, threads},
                                            {NULL, length},
                                            {NULL, rows},
                                            {NULL, texts},
                                            {NULL, texts * length},
                                            {NULL, batch_ms},
                                            {NULL, gflops},
                                            {NULL, bench->yardstick ? peak : NAN},
                                            {NULL, bench->yardstick ? gflops / peak : NAN}});
    return STATUS_OK;
}

static enum status batches(struct bench *bench, unsigned most, struct err *err)
{
    sheet_table(bench->sheet, "batches", batch_columns, sizeof batch_columns / sizeof batch_columns[0]);
    for (unsigned threads = 1;; threads = 2 * threads < most ? 2 * threads : most) {
        for (size_t i = 0; i < bench->lengths.count; i++)
            TRY(measure_batches(bench, threads, (uint32_t)bench->lengths.items[i], err));
        if (threads == most)
            return STATUS_OK;
    }
}

static const struct column mixed_columns[] = {{"way", "mixed", SHEET_TEXT},
                                              {"threads", "threads", 0},
                                              {"rows", "rows", 0},
                                              {"padding_share", "padding", 3},
                                              {"texts_per_s", "texts/s", 1}};

/* Lengths from 6 to 200, many short and few long. Returns their sum. */
static uint32_t mixed_lengths(const struct model *model, uint32_t lengths[MIXED_ROWS], uint32_t *longest)
{
    uint64_t seed = 7;
    uint32_t sum = 0, most = model->max_tokens < 200 ? model->max_tokens : 200, least = most < 6 ? 1 : 6;
    *longest = 0;
    for (int i = 0; i < MIXED_ROWS; i++) {
        double share = random_share(&seed);
        lengths[i] = least + (uint32_t)(share * share * share * (most - least + 1));
        sum += lengths[i];
        *longest = lengths[i] > *longest ? lengths[i] : *longest;
    }
    return sum;
}

/* The same texts packed, padded and one by one, in turn, on all threads. */
static enum status mixed(struct bench *bench, unsigned threads, struct err *err)
{
    uint32_t lengths[MIXED_ROWS], longest, sum = mixed_lengths(bench->model, lengths, &longest);
    struct passes packed = {0}, padded = {0};
    double best[3] = {0}, padding = 1 - (double)sum / (longest * MIXED_ROWS);
    enum status status = passes_open(&packed, bench->engine, bench->model, lengths, MIXED_ROWS, false, err);
    if (status == STATUS_OK)
        status = passes_open(&padded, bench->engine, bench->model, lengths, MIXED_ROWS, true, err);
    struct turns ways[] = {passes_turns(&packed), passes_turns(&padded), passes_turns_one_by_one(&packed)};
    for (int64_t i = 0; i < 3 * bench->options->rounds && status == STATUS_OK; i++) {
        double rate;
        status = turns_measure(&ways[i % 3], threads, (uint64_t)bench->options->round_ms * NS_PER_MS, &rate, err);
        best[i % 3] = fmax(best[i % 3], rate * MIXED_ROWS);
    }
    passes_close(&packed);
    passes_close(&padded);
    if (status != STATUS_OK)
        return status;
    static const char *const names[] = {"packed", "padded", "one by one"};
    sheet_table(bench->sheet, "mixed", mixed_columns, sizeof mixed_columns / sizeof mixed_columns[0]);
    for (int i = 0; i < 3; i++)
        sheet_row(
            bench->sheet,
            (struct cell[]){
                {names[i], 0}, {NULL, threads}, {NULL, MIXED_ROWS}, {NULL, i == 1 ? padding : 0}, {NULL, best[i]}});
    return STATUS_OK;
}

static enum status run(struct bench *bench, const struct config *config, struct err *err)
{
    unsigned threads = start_threads(config);
    TRY(numbers_parse("--tokens", bench->options->tokens, 1, 1 << 20, &bench->lengths, err));
    TRY(open_engine(bench, config, err));
    for (size_t i = 0; i < bench->lengths.count; i++)
        if (bench->lengths.items[i] > bench->model->max_tokens)
            return err_set(err, STATUS_BAD_INPUT, "--tokens %lld: %s takes at most %u tokens",
                           (long long)bench->lengths.items[i], bench->model->name, bench->model->max_tokens);
    enum precision precision = engine_precision(bench->engine);
    bench->cpu = strcmp(engine_backend(bench->engine), "cpu") == 0;
    bench->yardstick = bench->cpu && gemm_peak_knows(precision);
    threads = threads < TURNS_THREADS_MAX ? threads : TURNS_THREADS_MAX;
    bench->cost = (struct cost_check){
        .sheet = bench->sheet,
        .engine = bench->engine,
        .model = bench->model,
        .lengths = &bench->lengths,
        .round_ms = bench->options->round_ms,
        .rounds = bench->options->rounds,
        .cpu = bench->cpu,
    };
    TRY(cost_check_open(&bench->cost, threads, err));
    threads = bench->cpu ? threads : 1;
    TRY(batches(bench, threads, err));
    TRY(mixed(bench, threads, err));
    TRY(cost_check_run(&bench->cost, err));
    sheet_number(bench->sheet, "memory_mb", process_memory_mb(getpid(), "VmRSS"), 1);
    sheet_number(bench->sheet, "memory_peak_mb", process_memory_mb(getpid(), "VmHWM"), 1);
    return STATUS_OK;
}

enum status bench_engine(const struct config *config, const struct bench_engine_options *options, struct sheet *sheet,
                         struct err *err)
{
    struct bench bench = {.options = options, .sheet = sheet};
    enum status status = run(&bench, config, err);
    cost_check_close(&bench.cost);
    if (bench.engine != NULL)
        engine_close(bench.engine);
    if (bench.model != NULL)
        model_close(bench.model);
    return status;
}
