/* The null engine answers at once, so that only the loop is left: XREADGROUP, tokenise, window, reply, settle. Beside
 * it, in turn, the bare client of ceiling.c issues the same commands. */
#include "bench/queue.h"

#include "bench/numbers.h"
#include "bench/queue_run.h"
#include "bench/sample.h"
#include "serve/start.h"

static const char *const encodings[] = {"f32", "json", NULL};

struct bench {
    const struct config *config;
    const struct bench_queue_options *options;
    const volatile sig_atomic_t *stop;
    struct sheet *sheet;
    struct model *model;
    struct numbers encodings, depths;
};

/* What both kinds came to in all rounds with one encoding or depth. */
struct tally {
    struct sample per_s[QUEUE_KINDS], user_us[QUEUE_KINDS], system_us[QUEUE_KINDS], share;
};

static void free_tally(struct tally *tally)
{
    for (int kind = 0; kind < QUEUE_KINDS; kind++) {
        sample_free(&tally->per_s[kind]);
        sample_free(&tally->user_us[kind]);
        sample_free(&tally->system_us[kind]);
    }
    sample_free(&tally->share);
}

static struct cell median(struct sample *sample)
{
    return (struct cell){NULL, sample_quantile(sample, 0.5)};
}

/* Both kinds, the daemon first in every other round. */
static enum status measure(const struct bench *bench, const char *encoding, int64_t depth, int64_t round,
                           struct tally *tally, struct err *err)
{
    const struct queue_run run = {.config = bench->config,
                                  .stop = bench->stop,
                                  .appendonly = bench->options->appendonly,
                                  .encoding = encoding,
                                  .dim = bench->model->dim,
                                  .requests = (uint64_t)bench->options->requests,
                                  .depth = (uint64_t)depth};
    struct queue_figures figures[QUEUE_KINDS];
    for (int64_t i = 0; i < QUEUE_KINDS; i++) {
        enum queue_kind kind = (round + i) % 2 == 0 ? QUEUE_DAEMON : QUEUE_BARE;
        TRY(queue_run(&run, kind, &figures[kind], err));
        sample_add(&tally->per_s[kind], figures[kind].per_s);
        sample_add(&tally->user_us[kind], figures[kind].user_us);
        sample_add(&tally->system_us[kind], figures[kind].system_us);
    }
    sample_add(&tally->share, figures[QUEUE_DAEMON].per_s / figures[QUEUE_BARE].per_s);
    return STATUS_OK;
}

static const struct column loop_columns[] = {
    {"encoding", "encoding", SHEET_TEXT}, {"requests", "requests", 0},    {"rounds", "rounds", 0},
    {"daemon_per_s", "daemon/s", 0},      {"ceiling_per_s", "bare/s", 0}, {"share", "share", 3},
};

static enum status measure_loop(struct bench *bench, const char *encoding, struct err *err)
{
    struct tally tally = {0};
    enum status status = STATUS_OK;
    for (int64_t round = 0; round < bench->options->rounds && status == STATUS_OK; round++)
        status = measure(bench, encoding, 0, round, &tally, err);
    if (status == STATUS_OK)
        sheet_row(bench->sheet, (struct cell[]){{encoding, 0},
                                                {NULL, (double)bench->options->requests},
                                                {NULL, (double)bench->options->rounds},
                                                median(&tally.per_s[QUEUE_DAEMON]),
                                                median(&tally.per_s[QUEUE_BARE]),
                                                median(&tally.share)});
    free_tally(&tally);
    return status;
}

static const struct column depth_columns[] = {
    {"depth", "waiting", 0},
    {"daemon_per_s", "daemon/s", 0},
    {"of_first", "of first", 3},
    {"user_us", "Redis us", 2},
    {"system_us", "kernel us", 2},
    {"ceiling_per_s", "bare/s", 0},
    {"ceiling_of_first", "of first", 3},
    {"ceiling_user_us", "Redis us", 2},
    {"ceiling_system_us", "kernel us", 2},
    {"share", "share", 3},
};

static void show_depth(struct bench *bench, int64_t depth, struct tally *tally, const struct cell first[QUEUE_KINDS])
{
    struct cell row[sizeof depth_columns / sizeof depth_columns[0]] = {{NULL, (double)depth}}, *cell = row + 1;
    for (int kind = 0; kind < QUEUE_KINDS; kind++) {
        *cell++ = median(&tally->per_s[kind]);
        *cell++ = (struct cell){NULL, median(&tally->per_s[kind]).number / first[kind].number};
        *cell++ = median(&tally->user_us[kind]);
        *cell++ = median(&tally->system_us[kind]);
    }
    *cell = median(&tally->share);
    sheet_row(bench->sheet, row);
}

/* The loop while so many entries wait all the time. Each round goes through all depths, so that whatever else the
 * machine does meets them all. */
static enum status measure_depths(struct bench *bench, struct err *err)
{
    size_t count = bench->depths.count;
    struct tally tallies[NUMBERS_MAX] = {0};
    enum status status = STATUS_OK;
    for (int64_t round = 0; round < bench->options->rounds; round++)
        for (size_t i = 0; i < count && status == STATUS_OK; i++)
            status =
                measure(bench, encodings[bench->encodings.items[0]], bench->depths.items[i], round, &tallies[i], err);
    sheet_table(bench->sheet, "depths", depth_columns, sizeof depth_columns / sizeof depth_columns[0]);
    const struct cell first[] = {median(&tallies[0].per_s[QUEUE_DAEMON]), median(&tallies[0].per_s[QUEUE_BARE])};
    for (size_t i = 0; i < count; i++) {
        if (status == STATUS_OK)
            show_depth(bench, bench->depths.items[i], &tallies[i], first);
        free_tally(&tallies[i]);
    }
    return status;
}

static enum status measure_loops(struct bench *bench, struct err *err)
{
    sheet_table(bench->sheet, "loop", loop_columns, sizeof loop_columns / sizeof loop_columns[0]);
    for (size_t i = 0; i < bench->encodings.count; i++)
        TRY(measure_loop(bench, encodings[bench->encodings.items[i]], err));
    return STATUS_OK;
}

static enum status run(struct bench *bench, struct err *err)
{
    const struct bench_queue_options *options = bench->options;
    TRY(numbers_parse_words("--encodings", options->encodings, encodings, &bench->encodings, err));
    if (options->depths != NULL)
        TRY(numbers_parse("--depths", options->depths, 1, 100000000, &bench->depths, err));
    TRY(start_model(bench->config, &bench->model, err));
    model_release_weights(bench->model);
    sheet_number(bench->sheet, "floats", bench->model->dim, 0);
    sheet_text(bench->sheet, "append_only_file", options->appendonly ? "everysec" : "off");
    return options->depths == NULL ? measure_loops(bench, err) : measure_depths(bench, err);
}

enum status bench_queue(const struct config *config, const struct bench_queue_options *options,
                        const volatile sig_atomic_t *stop, struct sheet *sheet, struct err *err)
{
    struct bench bench = {.config = config, .options = options, .stop = stop, .sheet = sheet};
    enum status status = run(&bench, err);
    if (bench.model != NULL)
        model_close(bench.model);
    return status;
}
