/* `bench tokenizer`: text to token ids on one core. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/report.h"
#include "bench/stage.h"
#include "bench/texts.h"
#include "cli/command.h"
#include "config/config.h"

enum { MADE_TEXTS = 2000 };

struct bench_tokenizer_options {
    char *json;
    char *input;             /* a file with a text per line; NULL: made-up texts */
    int64_t short_tokens;    /* of the one short text */
    int64_t document_bytes;  /* size of the long text … */
    int64_t document_tokens; /* … of which this many tokens are kept */
    int64_t round_ms;
};

/* Texts that are tokenised repeatedly, in turn. */
struct corpus {
    const char *name;
    char **items;    /* [count] */
    size_t *lengths; /* [count] */
    size_t count;
    uint32_t max_tokens;
};

struct bench {
    const struct bench_tokenizer_options *options;
    struct report *report;
    struct model *model;
    struct buffer scratch;
    int32_t *ids; /* [the most tokens of any text] */
};

static const struct column columns[] = {
    {"texts", "texts", REPORT_TEXT}, {"count", "count", 0},   {"bytes", "bytes", 0},   {"max_tokens", "limit", 0},
    {"tokens_per_s", "tokens/s", 0}, {"mb_per_s", "MB/s", 1}, {"p50_us", "p50 us", 2}, {"p99_us", "p99 us", 2},
};

static enum status encode(struct bench *bench, const struct corpus *corpus, size_t at, uint32_t *count, struct err *err)
{
    const char *text = corpus->items[at];
    size_t length = corpus->lengths[at];
    bool truncated;
    TRY(model_put_prompt(bench->model, &bench->scratch, &text, &length, err));
    return tokenizer_encode(bench->model->tokenizer, text, length, corpus->max_tokens, bench->ids, count, &truncated,
                            err);
}

static enum status measure(struct bench *bench, const struct corpus *corpus, struct err *err)
{
    struct sample took_us = {0};
    double tokens = 0, bytes = 0, all = 0;
    enum status status = STATUS_OK;
    uint64_t begin = clock_now_ns(), now = begin, begin_cpu = clock_thread_ns();
    for (size_t i = 0; i < corpus->count; i++) { all += (double)corpus->lengths[i]; }
    uint64_t ends = begin + (uint64_t)bench->options->round_ms * NS_PER_MS;
    for (size_t done = 0; status == STATUS_OK && (done < corpus->count || now < ends); done++) {
        uint32_t count = 0;
        size_t at = done % corpus->count;
        uint64_t before = now;
        status = encode(bench, corpus, at, &count, err);
        now = clock_now_ns();
        sample_add(&took_us, (double)(now - before) / 1e3);
        tokens += count;
        bytes += (double)corpus->lengths[at];
    }
    double seconds = (double)(clock_thread_ns() - begin_cpu) / NS_PER_S;
    if (status == STATUS_OK && took_us.broken) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the times of texts");
    }
    if (status == STATUS_OK) {
        report_row(bench->report, (const char *const[]){corpus->name},
                   (const double[]){(double)corpus->count, all, corpus->max_tokens, tokens / seconds,
                                    bytes / seconds / 1e6, sample_quantile(&took_us, 0.5),
                                    sample_quantile(&took_us, 0.99)});
    }
    sample_free(&took_us);
    return status;
}

/* Copies a text to the end of the corpus. */
static enum status append(struct corpus *corpus, const char *text, size_t length, struct err *err)
{
    char *copy = malloc(length + 1);
    if (copy == NULL) { return err_set(err, STATUS_NO_MEMORY, "no memory for texts"); }
    memcpy(copy, text, length);
    copy[length] = '\0';
    corpus->lengths[corpus->count] = length;
    corpus->items[corpus->count++] = copy;
    return STATUS_OK;
}

static enum status corpus_open(struct corpus *corpus, const char *name, size_t most, uint32_t max_tokens,
                               struct err *err)
{
    *corpus = (struct corpus){.name = name, .max_tokens = max_tokens};
    corpus->items = calloc(most, sizeof *corpus->items);
    corpus->lengths = calloc(most, sizeof *corpus->lengths);
    if (corpus->items == NULL || corpus->lengths == NULL) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu texts", most);
    }
    return STATUS_OK;
}

static void corpus_close(struct corpus *corpus)
{
    for (size_t i = 0; i < corpus->count; i++) { free(corpus->items[i]); }
    free(corpus->items);
    free(corpus->lengths);
}

/* Takes this many of the texts; with `joined`, makes one text of this many bytes of them. */
static enum status measure_texts(struct bench *bench, const struct texts *texts, const char *name, size_t count,
                                 size_t joined, uint32_t max_tokens, struct err *err)
{
    struct corpus corpus;
    struct buffer text = {0}, document = {0};
    enum status status = corpus_open(&corpus, name, count, max_tokens, err);
    for (uint64_t number = 0; status == STATUS_OK && corpus.count < count; number++) {
        texts_put(texts, number, &text);
        if (joined > 0) {
            buffer_string(&document, number == 0 ? "" : ". ");
            buffer_append(&document, text.data, text.length); /* no NUL ends it */
            if (buffer_ok(&document) && document.length < joined) { continue; }
        }
        struct buffer *whole = joined > 0 ? &document : &text;
        status = buffer_ok(whole) ? append(&corpus, whole->data, whole->length, err)
                                  : err_set(err, STATUS_NO_MEMORY, "no memory for a text");
    }
    if (status == STATUS_OK) { status = measure(bench, &corpus, err); }
    corpus_close(&corpus);
    buffer_free(&text);
    buffer_free(&document);
    return status;
}

/* The time to open a tokenizer, and its memory (roughly: the growth of the process). */
static enum status measure_open(struct bench *bench, struct err *err)
{
    struct tokenizer *tokenizer;
    double before = process_memory_mb(getpid(), "VmRSS");
    uint64_t begin = clock_now_ns();
    TRY(tokenizer_open(bench->model->directory, &tokenizer, err));
    report_number(bench->report, "open_ms", (double)(clock_now_ns() - begin) / NS_PER_MS, 2);
    report_number(bench->report, "memory_mb", process_memory_mb(getpid(), "VmRSS") - before, 2);
    report_number(bench->report, "vocabulary", tokenizer_vocabulary(tokenizer), 0);
    tokenizer_close(tokenizer);
    return STATUS_OK;
}

static enum status run(struct bench *bench, const struct config *config, struct texts *texts, struct texts *brief,
                       struct err *err)
{
    const struct bench_tokenizer_options *options = bench->options;
    TRY(config_model(config, &bench->model, err));
    model_release_weights(bench->model);
    uint32_t limit = bench->model->max_tokens, kept = (uint32_t)options->document_tokens;
    if (options->input != NULL) {
        TRY(texts_read(options->input, texts, err));
    } else {
        TRY(texts_open(bench->model, 0, texts, err));
    }
    TRY(texts_open(bench->model, (uint32_t)options->short_tokens, brief, err));
    bench->ids = calloc(limit > kept ? limit : kept, sizeof *bench->ids);
    if (bench->ids == NULL) { return err_set(err, STATUS_NO_MEMORY, "no memory for the ids of a text"); }
    report_text(bench->report, "model", bench->model->name);
    TRY(measure_open(bench, err));
    report_table(bench->report, "runs", columns, sizeof columns / sizeof columns[0]);
    size_t count = options->input != NULL ? texts->line_count : MADE_TEXTS;
    TRY(measure_texts(bench, texts, "all", count, 0, limit, err));
    TRY(measure_texts(bench, brief, "one short", 1, 0, limit, err));
    return measure_texts(bench, texts, "one long", 1, (size_t)options->document_bytes, kept, err);
}

static enum status measure_tokenizer(const struct invocation *invocation, struct report *report, struct err *err)
{
    struct bench bench = {.options = invocation->own, .report = report};
    struct texts texts = {0}, brief = {0};
    enum status status = run(&bench, &invocation->config, &texts, &brief, err);
    texts_close(&texts);
    texts_close(&brief);
    buffer_free(&bench.scratch);
    free(bench.ids);
    if (bench.model != NULL) { model_close(bench.model); }
    return status;
}

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct bench_tokenizer_options, name)

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(input, SETTING_TEXT), .most = 4096, .value = "FILE", .help = "in place of made-up texts: one per line"},
    {OWN(short_tokens, SETTING_INTEGER), .fallback = "16", .least = 1, .most = 1 << 20, .value = "N", .help = "length of the one short text, in tokens"},
    {OWN(document_bytes, SETTING_INTEGER), .fallback = "1000000", .least = 1, .most = 1 << 28, .value = "N", .help = "length of the one long text, made of the others"},
    {OWN(document_tokens, SETTING_INTEGER), .fallback = "256", .least = 1, .most = 1 << 20, .value = "N", .help = "how many of its tokens are kept"},
    {OWN(round_ms, SETTING_INTEGER), .fallback = "1000", .least = 1, .most = 60000, .value = "N", .help = "how long to measure each"},
    BENCH_JSON(struct bench_tokenizer_options),
};
/* clang-format on */

const struct subcommand command_bench_tokenizer = {
    .name = "bench tokenizer",
    .bit = FOR_TOKENIZE,
    .summary = "Measure tokenising on one core: tokens/s, MB/s, one short text, one long one",
    .explanation =
        "all: every text in turn, cut at --max-tokens. one short, one long: the same text over and over, which is\n"
        "then in the caches. p50 and p99 are of single texts; rates are by processor time.",
    OWN_OPTIONS(own_settings, struct bench_tokenizer_options),
    .run = benchmark_run,
    .measure = measure_tokenizer,
};
