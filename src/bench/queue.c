/* The null engine answers at once, so that only the loop is left: XREADGROUP, tokenise, window, reply, settle. Beside
 * it, in turn, the bare client of ceiling.c issues the same commands. Every measurement has its own Redis, or at least
 * its own queue: what one has written the next must not pay for. */
#include "bench/queue.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/ceiling.h"
#include "bench/numbers.h"
#include "bench/sample.h"
#include "serve/start.h"

enum { FILL_COUNT = 10000, SILENCE_MS = 60000 };

static const char *const encodings[] = {"f32", "json", NULL};

static const char fill_script[] =
    "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'text', "
    "'the quick brown fox jumps over the lazy dog, number ' .. (ARGV[2] + i), 'encoding', ARGV[3]) end";

struct bench {
    const struct config *config;
    const struct bench_queue_options *options;
    const volatile sig_atomic_t *stop;
    struct sheet *sheet;
    struct model *model;
    struct numbers encodings, depths;
};

/* One measurement's Redis, and its daemon while there is one. */
struct round {
    struct stage stage;
    struct child daemon;
    const char *encoding;
    uint64_t filled;
};

static enum status fill(struct round *round, uint64_t count, struct err *err)
{
    char key[STAGE_KEY], some[24], from[24];
    const struct resp_value *reply;
    while (count > 0) {
        uint64_t now = count < FILL_COUNT ? count : FILL_COUNT;
        snprintf(some, sizeof some, "%llu", (unsigned long long)now);
        snprintf(from, sizeof from, "%llu", (unsigned long long)round->filled);
        TRY(stage_check(&round->stage, err));
        TRY(STAGE_ASK(&round->stage, &reply, err, "EVAL", fill_script, "1", stage_key(&round->stage, "requests", key),
                      some, from, round->encoding));
        round->filled += now;
        count -= now;
    }
    return STATUS_OK;
}

/* The stream as both find it: a group and all requests, none delivered. */
static enum status prepare(struct bench *bench, struct round *round, uint64_t count, struct err *err)
{
    char key[STAGE_KEY];
    const struct resp_value *reply;
    sync(); /* what earlier rounds have left to the disk */
    TRY(stage_open(&round->stage, bench->config, bench->options->appendonly, bench->stop, err));
    TRY(STAGE_ASK(&round->stage, &reply, err, "XGROUP", "CREATE", stage_key(&round->stage, "requests", key), "sluice",
                  "0", "MKSTREAM"));
    return fill(round, count, err);
}

static enum status waiting(struct round *round, uint64_t *count, struct err *err)
{
    char key[STAGE_KEY];
    const struct resp_value *reply;
    TRY(stage_check(&round->stage, err));
    if (!child_running(&round->daemon))
        return child_gone(&round->daemon, err);
    TRY(STAGE_ASK(&round->stage, &reply, err, "XLEN", stage_key(&round->stage, "requests", key)));
    *count = (uint64_t)reply->integer;
    return STATUS_OK;
}

/* Waits until so many were settled in all; keeps `depth` waiting meanwhile (0: lets it run dry). */
static enum status await(struct round *round, uint64_t settled, uint64_t depth, uint64_t *now_settled, uint64_t *now_ns,
                         struct err *err)
{
    static const struct timespec pause = {0, 2 * NS_PER_MS};
    uint64_t ends_ms = clock_now_ms() + SILENCE_MS, before = UINT64_MAX, left = 0;
    for (;; nanosleep(&pause, NULL)) {
        TRY(waiting(round, &left, err));
        *now_ns = clock_now_ns();
        *now_settled = round->filled - left;
        if (*now_settled >= settled)
            return STATUS_OK;
        if (*now_settled != before)
            ends_ms = clock_now_ms() + SILENCE_MS;
        before = *now_settled;
        if (clock_now_ms() > ends_ms)
            return err_set(err, STATUS_TIMEOUT, "%llu requests have no reply after %d s of silence",
                           (unsigned long long)left, SILENCE_MS / 1000);
        if (left < depth)
            TRY(fill(round, depth - left, err));
    }
}

/* Requests in a second while a daemon settles the middle of `count`: the start of the process is not part of the
 * loop. */
static enum status daemon_rate(struct round *round, uint64_t count, uint64_t depth, double *rate, struct err *err)
{
    static const char *const flags[] = {"--backend", "null", NULL};
    struct daemon_counts counts;
    uint64_t begin, start_ns = clock_now_ns(), begin_ns, end, end_ns, all_ns;
    TRY(stage_daemon(&round->stage, flags, &round->daemon, err));
    TRY(await(round, count / 10, depth, &begin, &begin_ns, err));
    TRY(await(round, count - count / 10, depth, &end, &end_ns, err));
    if (begin == end) { /* all was over between two looks */
        begin = 0;
        begin_ns = start_ns;
    }
    *rate = (double)(end - begin) * NS_PER_S / (double)(end_ns - begin_ns);
    if (depth == 0) {
        TRY(await(round, count, 0, &end, &all_ns, err));
        TRY(stage_end_daemon(&round->daemon, &counts, err));
        if (counts.done != (double)count || counts.errors != 0)
            return err_set(err, STATUS_INTERNAL, "of %llu requests %.0f were done and %.0f were errors",
                           (unsigned long long)count, counts.done, counts.errors);
    }
    return STATUS_OK;
}

enum kind { DAEMON, BARE, HELD };

static enum status measure(struct bench *bench, enum kind kind, const char *encoding, uint64_t depth, double *rate,
                           struct err *err)
{
    struct round round = {.encoding = encoding};
    uint64_t count = (uint64_t)bench->options->requests;
    enum status status = prepare(bench, &round, kind == HELD ? depth : count, err);
    if (status == STATUS_OK)
        status = kind == BARE ? ceiling_run(&round.stage, count, bench->model->dim, encoding, rate, err)
                              : daemon_rate(&round, count, kind == HELD ? depth : 0, rate, err);
    child_stop(&round.daemon, SIGKILL, 0);
    stage_close(&round.stage);
    return status;
}

static const struct column loop_columns[] = {
    {"encoding", "encoding", SHEET_TEXT}, {"requests", "requests", 0},    {"rounds", "rounds", 0},
    {"daemon_per_s", "daemon/s", 0},      {"ceiling_per_s", "bare/s", 0}, {"share", "share", 3},
};

static enum status measure_loop(struct bench *bench, const char *encoding, struct err *err)
{
    struct sample daemon = {0}, bare = {0}, share = {0};
    enum status status = STATUS_OK;
    for (int64_t i = 0; i < bench->options->rounds && status == STATUS_OK; i++) {
        double rates[2] = {1, 1};
        enum kind order[] = {i % 2 == 0 ? DAEMON : BARE, i % 2 == 0 ? BARE : DAEMON};
        for (int k = 0; k < 2 && status == STATUS_OK; k++)
            status = measure(bench, order[k], encoding, 0, &rates[order[k]], err);
        sample_add(&daemon, rates[DAEMON]);
        sample_add(&bare, rates[BARE]);
        sample_add(&share, rates[DAEMON] / rates[BARE]);
    }
    if (status == STATUS_OK)
        sheet_row(bench->sheet, (struct cell[]){{encoding, 0},
                                                {NULL, (double)bench->options->requests},
                                                {NULL, (double)bench->options->rounds},
                                                {NULL, sample_quantile(&daemon, 0.5)},
                                                {NULL, sample_quantile(&bare, 0.5)},
                                                {NULL, sample_quantile(&share, 0.5)}});
    sample_free(&daemon);
    sample_free(&bare);
    sample_free(&share);
    return status;
}

static const struct column depth_columns[] = {
    {"depth", "waiting", 0}, {"daemon_per_s", "daemon/s", 0}, {"of_first", "of first", 3}};

/* The loop while so many entries wait all the time, because others add as many as are settled. */
static enum status measure_depths(struct bench *bench, struct err *err)
{
    double first = NAN;
    sheet_table(bench->sheet, "depths", depth_columns, sizeof depth_columns / sizeof depth_columns[0]);
    for (size_t i = 0; i < bench->depths.count; i++) {
        struct sample rates = {0};
        enum status status = STATUS_OK;
        for (int64_t round = 0; round < bench->options->rounds && status == STATUS_OK; round++) {
            double rate = NAN;
            status = measure(bench, HELD, encodings[bench->encodings.items[0]], (uint64_t)bench->depths.items[i], &rate,
                             err);
            sample_add(&rates, rate);
        }
        double median = sample_quantile(&rates, 0.5);
        first = i == 0 ? median : first;
        if (status == STATUS_OK)
            sheet_row(bench->sheet,
                      (struct cell[]){{NULL, (double)bench->depths.items[i]}, {NULL, median}, {NULL, median / first}});
        sample_free(&rates);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
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
