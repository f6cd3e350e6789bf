/* Texts that begin together and write the same number of tokens each. Their prompts are made up of ids from all over
 * the vocabulary, and a model's end of a text does not end them. */
#include "bench/generation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/stage.h"
#include "compute/devices.h"
#include "compute/writer.h"
#include "engine/cpu/parallel_for.h"
#include "engine/decoder.h"
#include "generate/generator.h"

enum { TEXTS_MOST = 4096 };

struct bench {
    const struct bench_generate_options *options;
    struct report *report;
    struct model *model;
    struct devices devices;
    struct parallel_for *parallel;
    struct generator *generator;
    struct numbers texts;
    uint64_t prompts; /* made so far: no two are equal */
};

/* A text that is written. */
struct text {
    struct generation *generation;
    uint32_t tokens;    /* drawn so far */
    uint64_t latest_ns; /* when the latest of them was drawn */
};

/* The results for one number of texts. */
struct point {
    double prefill_per_s, decode_per_s, tokens_per_s; /* tokens: of prompts; drawn while no prompt was read; drawn */
    struct sample first_ms, gap_ms;                   /* to the first token of a text; between two of its tokens */
    double pool_share, prefix_share;
    uint64_t preemptions;
};

static enum status begin_text(struct bench *bench, struct text *text, uint32_t new_tokens, struct err *err)
{
    uint32_t count = (uint32_t)bench->options->prompt_tokens, shared = (uint32_t)bench->options->shared_tokens;
    int32_t *ids = malloc(count * sizeof *ids);
    if (!ids) { return err_set(err, STATUS_NO_MEMORY, "no memory for a prompt of %u tokens", count); }
    uint64_t number = ++bench->prompts;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t from = (i < shared ? 0 : number << 32) + i + 1;
        ids[i] = (int32_t)(from * 0x9E3779B97F4A7C15u >> 33) % (int32_t)bench->model->vocabulary;
    }
    struct generate_request request = {.prompt = ids, .prompt_tokens = count, .max_tokens = new_tokens, .inside = true};
    *text = (struct text){.latest_ns = clock_now_ns()};
    enum status status = generator_add(bench->generator, &request, &text->generation, err);
    free(ids);
    return status;
}

/* The tokens of all prompts that are computed. */
static uint64_t count_read(const struct text *texts, uint32_t count)
{
    uint64_t read = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct sequence *sequence = &texts[i].generation->sequence;
        bool has_all = sequence->count > sequence->prompt || sequence->computed > sequence->prompt;
        read += has_all ? sequence->prompt : sequence->computed;
    }
    return read;
}

/* Takes the times of what a step has drawn. Returns how many tokens that were. */
static enum status note_step(struct text *texts, uint32_t count, struct point *point, uint32_t *drawn, struct err *err)
{
    uint64_t now_ns = clock_now_ns();
    *drawn = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct text *text = &texts[i];
        const struct generation *generation = text->generation;
        if (generation->finish == FINISH_ERROR) {
            *err = generation->err;
            return err->status;
        }
        uint32_t tokens = generation->sequence.count - generation->sequence.prompt;
        if (tokens == text->tokens) { continue; }
        sample_add(text->tokens == 0 ? &point->first_ms : &point->gap_ms,
                   (double)(now_ns - text->latest_ns) / NS_PER_MS);
        *drawn += tokens - text->tokens;
        text->tokens = tokens;
        text->latest_ns = now_ns;
    }
    return STATUS_OK;
}

/* Writes all texts to their ends. */
static enum status write_texts(struct bench *bench, struct text *texts, uint32_t count, struct point *point,
                               struct err *err)
{
    double decode_s = 0, decoded = 0, all = 0;
    uint64_t begin_ns = clock_now_ns();
    struct generator_state state = generator_state(bench->generator);
    while (state.steps.running + state.steps.waiting > 0) {
        uint32_t drawn;
        uint64_t step_ns = clock_now_ns(), read = count_read(texts, count);
        TRY(generator_step(bench->generator, err));
        TRY(note_step(texts, count, point, &drawn, err));
        double seconds = (double)(clock_now_ns() - step_ns) / NS_PER_S;
        if (read == count_read(texts, count)) {
            decode_s += seconds;
            decoded += drawn;
        }
        all += drawn;
        state = generator_state(bench->generator);
        point->pool_share = fmax(point->pool_share, (double)state.used / state.blocks);
    }
    if (decode_s > 0) { point->decode_per_s = fmax(point->decode_per_s, decoded / decode_s); }
    point->tokens_per_s = fmax(point->tokens_per_s, all * NS_PER_S / (double)(clock_now_ns() - begin_ns));
    return STATUS_OK;
}

/* One round: `count` texts with `new_tokens` each. */
static enum status run_round(struct bench *bench, uint32_t count, uint32_t new_tokens, struct point *point,
                             struct err *err)
{
    enum status status = STATUS_OK;
    struct text *texts = calloc(count, sizeof *texts);
    if (!texts) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u texts", count); }
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++) {
        status = begin_text(bench, &texts[i], new_tokens, err);
    }
    if (status == STATUS_OK) { status = write_texts(bench, texts, count, point, err); }
    for (uint32_t i = 0; i < count; i++) { generation_end(bench->generator, texts[i].generation); }
    free(texts);
    return status;
}

static void free_point(struct point *point)
{
    sample_free(&point->first_ms);
    sample_free(&point->gap_ms);
}

static const struct column columns[] = {
    {"texts", "texts", 0},
    {"prefill_tokens_per_s", "prefill/s", 0},
    {"decode_tokens_per_s", "decode/s", 1},
    {"tokens_per_s", "all/s", 1},
    {"ttft_p50_ms", "TTFT p50 ms", 2},
    {"ttft_p99_ms", "p99 ms", 2},
    {"itl_p50_ms", "ITL p50 ms", 2},
    {"itl_p99_ms", "p99 ms", 2},
    {"pool_share", "pool", 3},
    {"prefix_share", "prefix", 3},
    {"preemptions", "preempted", 0},
};

/* Measures one number of texts: prompts alone, then whole texts. The first round of each warms up. */
static enum status measure_point(struct bench *bench, uint32_t count, struct err *err)
{
    const struct bench_generate_options *options = bench->options;
    struct point point = {0};
    enum status status = STATUS_OK;
    for (int64_t round = 0; round <= options->rounds && status == STATUS_OK; round++) {
        struct point prompts = {0};
        uint64_t begin_ns = clock_now_ns(), shared = generator_state(bench->generator).steps.shared_tokens;
        status = run_round(bench, count, 1, &prompts, err);
        double seconds = (double)(clock_now_ns() - begin_ns) / NS_PER_S;
        shared = generator_state(bench->generator).steps.shared_tokens - shared;
        double computed = (double)count * (double)options->prompt_tokens - (double)shared;
        if (round > 0) { point.prefill_per_s = fmax(point.prefill_per_s, computed / seconds); }
        free_point(&prompts);
    }
    struct steps_state before = generator_state(bench->generator).steps;
    for (int64_t round = 0; round < options->rounds && status == STATUS_OK; round++) {
        status = run_round(bench, count, (uint32_t)options->new_tokens, &point, err);
    }
    struct steps_state after = generator_state(bench->generator).steps;
    double prompts = (double)options->rounds * count * (double)options->prompt_tokens;
    point.prefix_share = (double)(after.shared_tokens - before.shared_tokens) / prompts;
    if (status == STATUS_OK && (point.first_ms.broken || point.gap_ms.broken)) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the times of the tokens");
    }
    if (status == STATUS_OK) {
        report_row(bench->report, NULL,
                   (const double[]){count, point.prefill_per_s, point.decode_per_s > 0 ? point.decode_per_s : NAN,
                                    point.tokens_per_s, sample_quantile(&point.first_ms, 0.5),
                                    sample_quantile(&point.first_ms, 0.99), sample_quantile(&point.gap_ms, 0.5),
                                    sample_quantile(&point.gap_ms, 0.99), point.pool_share, point.prefix_share,
                                    (double)(after.preemptions - before.preemptions)});
    }
    free_point(&point);
    return status;
}

static enum status check_options(const struct bench *bench, struct err *err)
{
    const struct bench_generate_options *options = bench->options;
    if (options->shared_tokens > options->prompt_tokens) {
        return err_set(err, STATUS_BAD_INPUT, "--shared-tokens %lld: a prompt has %lld",
                       (long long)options->shared_tokens, (long long)options->prompt_tokens);
    }
    if (options->prompt_tokens + options->new_tokens > bench->model->max_tokens) {
        return err_set(err, STATUS_BAD_INPUT,
                       "--prompt-tokens %lld and --new-tokens %lld: %s takes at most %u together",
                       (long long)options->prompt_tokens, (long long)options->new_tokens, bench->model->name,
                       bench->model->max_tokens);
    }
    return STATUS_OK;
}

static enum status run_bench(struct bench *bench, const struct config *config, struct err *err)
{
    const struct bench_generate_options *options = bench->options;
    unsigned threads = config_threads(config);
    TRY(numbers_parse("--texts", options->texts, 1, TEXTS_MOST, &bench->texts, err));
    TRY(config_generator(config, &bench->model, err));
    TRY(check_options(bench, err));
    bench->model->end_id_count = 0; /* all texts have the same length */
    TRY(devices_open(&bench->devices, config, 1, err));
    TRY(devices_load(&bench->devices, config, bench->model, false, 0, err));
    struct engine *engine = devices_engine(&bench->devices, 0);
    uint32_t usual = (uint32_t)(options->prompt_tokens + options->new_tokens);
    struct generator_options generator = {.blocks = options->blocks > 0 ? (uint32_t)options->blocks
                                                                        : writer_blocks(engine, bench->model, usual),
                                          .steps = {.share = true, .optimistic = options->optimistic}};
    TRY(generator_open(engine, bench->model, &generator, &bench->generator, err));
    if (threads > 1) {
        TRY(parallel_for_open(threads, &bench->parallel, err));
        TRY(generator_join(bench->generator, bench->parallel, err));
    }
    report_text(bench->report, "model", bench->model->name);
    report_text(bench->report, "backend", engine_backend(engine));
    report_text(bench->report, "precision", precision_name(engine_precision(engine)));
    report_number(bench->report, "threads", threads, 0);
    report_number(bench->report, "prompt_tokens", (double)options->prompt_tokens, 0);
    report_number(bench->report, "new_tokens", (double)options->new_tokens, 0);
    report_number(bench->report, "blocks", generator.blocks, 0);
    report_number(bench->report, "pool_mb", (double)decoder_block_bytes(engine) * generator.blocks / 1e6, 1);
    report_table(bench->report, "generate", columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < bench->texts.count; i++) { TRY(measure_point(bench, (uint32_t)bench->texts.items[i], err)); }
    report_number(bench->report, "memory_peak_mb", process_memory_mb(getpid(), "VmHWM"), 1);
    return STATUS_OK;
}

enum status bench_generate(const struct config *config, const struct bench_generate_options *options,
                           struct report *report, struct err *err)
{
    struct bench bench = {.options = options, .report = report};
    enum status status = run_bench(&bench, config, err);
    generator_close(bench.generator);
    parallel_for_close(bench.parallel);
    devices_close(&bench.devices);
    model_close(bench.model);
    return status;
}
