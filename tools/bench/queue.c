/* `bench queue`: the loop without the model, beside what the same Redis can do. The null engine answers at once, so
 * that only the loop is left: XREADGROUP, tokenise, window, reply, settle. In turn with it, the bare client of
 * ceiling.h issues the same commands.
 *
 * Each measurement has a Redis, or at least a queue, of its own: what one has written the next must not pay for. Both
 * kinds find the same: a group, all requests, none delivered, and a Redis that has memory for their replies. While a
 * stream is kept full they also meet the same producer: the script of filling_write, sent by us for a daemon and by the
 * bare client itself for each read.
 *
 * Memory, because in a Redis that has been at work replies take the place of others that were fetched or have expired,
 * while one that was just started asks the kernel for every page. That has its price, and not the same one each time:
 * in a virtual machine a page took 1.4 us that another process had a moment ago, and 11 us once the host had it back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/report.h"
#include "ceiling.h"
#include "cli/cmd_bench.h"
#include "serve/config.h"

enum { SILENCE_MS = 60000 };

/* Who settles: a daemon with the null engine, or the bare client of ceiling.h. */
enum queue_kind { QUEUE_DAEMON, QUEUE_BARE, QUEUE_KINDS };

/* What is measured. */
struct queue_run {
    const struct config *config;
    const volatile sig_atomic_t *stop;
    bool appendonly;
    const char *encoding;
    uint32_t dim;
    uint64_t requests; /* that are settled */
    uint64_t depth;    /* that wait all the time, because as many are added as are settled; 0: the stream runs dry */
};

/* Requests in a second, and what each cost Redis' main thread. Units: us, in Redis itself and in the kernel. */
struct queue_figures {
    double per_s, user_us, system_us;
};

/* --- one measurement --- */

/* One measurement's Redis, and its daemon while there is one. */
struct round {
    const struct queue_run *run;
    struct stage stage;
    struct child daemon;
    struct filling filling;
    uint64_t earlier; /* requests that were settled before the measurement */
};

/* Where a measurement begins or ends. */
struct moment {
    uint64_t settled, ns;
    double user_s, system_s; /* of Redis' main thread, since its start */
};

static double number_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at == NULL ? 0 : strtod(at + strlen(name), NULL);
}

static enum status look_at_redis(struct round *round, struct moment *moment, struct err *err)
{
    const struct resp_value *reply;
    TRY(STAGE_ASK(&round->stage, &reply, err, "INFO", "cpu"));
    const char *text = reply->bytes == NULL ? "" : reply->bytes;
    moment->user_s = number_of(text, "used_cpu_user_main_thread:");
    moment->system_s = number_of(text, "used_cpu_sys_main_thread:");
    return STATUS_OK;
}

static void compare(const struct moment *begin, const struct moment *end, struct queue_figures *out)
{
    double requests = (double)(end->settled - begin->settled);
    out->per_s = requests * NS_PER_S / (double)(end->ns - begin->ns);
    out->user_us = (end->user_s - begin->user_s) * 1e6 / requests;
    out->system_us = (end->system_s - begin->system_s) * 1e6 / requests;
}

/* As many replies as the measurement will bring are written and deleted; the stream is as full as before. Not with an
 * append-only file: the measurement would pay for writing all of that back to the disk. */
static enum status let_replies_pass(struct round *round, struct err *err)
{
    const struct queue_run *run = round->run;
    const struct ceiling_run passing = {.stage = &round->stage,
                                        .filling = &round->filling,
                                        .wanted = run->requests,
                                        .dim = run->dim,
                                        .encoding = run->encoding};
    uint64_t took_ns;
    if (run->appendonly)
        return STATUS_OK;
    TRY(ceiling_run(&passing, &round->earlier, &took_ns, err));
    return stage_clear(&round->stage, "reply:*", err);
}

static enum status prepare(struct round *round, struct err *err)
{
    const struct queue_run *run = round->run;
    char key[STAGE_KEY];
    const struct resp_value *reply;
    sync(); /* what earlier rounds have left to the disk */
    TRY(stage_open(&round->stage, run->config, run->appendonly, run->stop, err));
    TRY(STAGE_ASK(&round->stage, &reply, err, "XGROUP", "CREATE", stage_key(&round->stage, "requests", key), "sluice",
                  "0", "MKSTREAM"));
    TRY(filling_add(&round->filling, run->depth > 0 ? run->depth : run->requests, err));
    return let_replies_pass(round, err);
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

/* Waits until so many were settled in all, and keeps the stream full meanwhile if it is to be. */
static enum status await(struct round *round, uint64_t settled, struct moment *now, struct err *err)
{
    static const struct timespec pause = {0, 2 * NS_PER_MS};
    uint64_t ends_ms = clock_now_ms() + SILENCE_MS, before = UINT64_MAX, left = 0, depth = round->run->depth;
    for (;; nanosleep(&pause, NULL)) {
        TRY(waiting(round, &left, err));
        now->ns = clock_now_ns();
        now->settled = round->filling.count - round->earlier - left;
        if (now->settled >= settled)
            return look_at_redis(round, now, err);
        if (now->settled != before)
            ends_ms = clock_now_ms() + SILENCE_MS;
        before = now->settled;
        if (clock_now_ms() > ends_ms)
            return err_set(err, STATUS_TIMEOUT, "%llu requests have no reply after %d s of silence",
                           (unsigned long long)left, SILENCE_MS / 1000);
        if (left < depth)
            TRY(filling_add(&round->filling, depth - left, err));
    }
}

/* The start of the process is not part of the loop, nor is its end. */
static enum status measure_daemon(struct round *round, struct queue_figures *out, struct err *err)
{
    static const char *const flags[] = {"--backend", "null", NULL};
    uint64_t count = round->run->requests;
    struct daemon_counts counts;
    struct moment start = {.ns = clock_now_ns()}, begin, end, all;
    TRY(look_at_redis(round, &start, err));
    TRY(stage_daemon(&round->stage, flags, &round->daemon, err));
    TRY(await(round, count / 10, &begin, err));
    TRY(await(round, count - count / 10, &end, err));
    compare(begin.settled == end.settled ? &start : &begin, &end, out); /* all may be over between two looks */
    if (round->run->depth > 0)
        return STATUS_OK;
    TRY(await(round, count, &all, err));
    TRY(stage_end_daemon(&round->daemon, &counts, err));
    if (counts.done != (double)count || counts.errors != 0)
        return err_set(err, STATUS_INTERNAL, "of %llu requests %.0f were done and %.0f were errors",
                       (unsigned long long)count, counts.done, counts.errors);
    return STATUS_OK;
}

static enum status measure_bare(struct round *round, struct queue_figures *out, struct err *err)
{
    const struct queue_run *run = round->run;
    struct ceiling_run ceiling = {
        .stage = &round->stage, .wanted = run->requests, .dim = run->dim, .encoding = run->encoding};
    struct moment begin = {0}, end = {0};
    ceiling.filling = run->depth > 0 ? &round->filling : NULL;
    TRY(look_at_redis(round, &begin, err));
    TRY(ceiling_run(&ceiling, &end.settled, &end.ns, err));
    TRY(look_at_redis(round, &end, err));
    compare(&begin, &end, out);
    return STATUS_OK;
}

/* Of a stream that stays full it is the middle eight tenths of the requests, with both kinds. */
static enum status queue_run(const struct queue_run *run, enum queue_kind kind, struct queue_figures *out,
                             struct err *err)
{
    struct round round = {.run = run, .filling = {.encoding = run->encoding}};
    round.filling.stage = &round.stage;
    enum status status = prepare(&round, err);
    if (status == STATUS_OK)
        status = kind == QUEUE_BARE ? measure_bare(&round, out, err) : measure_daemon(&round, out, err);
    child_stop(&round.daemon, SIGKILL, 0);
    stage_close(&round.stage);
    return status;
}

/* --- the command --- */

struct bench_queue_options {
    char *encodings; /* "f32,json" */
    int64_t requests, rounds;
    char *depths; /* entries that wait meanwhile: "1000,100000"; NULL: that is not measured */
    bool appendonly;
    char *json;
};

static const char *const encodings[] = {"f32", "json", NULL};

struct bench {
    const struct config *config;
    const struct bench_queue_options *options;
    const volatile sig_atomic_t *stop;
    struct report *report;
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
    {"encoding", "encoding", REPORT_TEXT}, {"requests", "requests", 0},    {"rounds", "rounds", 0},
    {"daemon_per_s", "daemon/s", 0},       {"ceiling_per_s", "bare/s", 0}, {"share", "share", 3},
};

static enum status measure_loop(struct bench *bench, const char *encoding, struct err *err)
{
    struct tally tally = {0};
    enum status status = STATUS_OK;
    for (int64_t round = 0; round < bench->options->rounds && status == STATUS_OK; round++)
        status = measure(bench, encoding, 0, round, &tally, err);
    if (status == STATUS_OK)
        report_row(bench->report, (struct cell[]){{encoding, 0},
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
    report_row(bench->report, row);
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
    report_table(bench->report, "depths", depth_columns, sizeof depth_columns / sizeof depth_columns[0]);
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
    report_table(bench->report, "loop", loop_columns, sizeof loop_columns / sizeof loop_columns[0]);
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
    TRY(config_model(bench->config, &bench->model, err));
    model_release_weights(bench->model);
    report_number(bench->report, "floats", bench->model->dim, 0);
    report_text(bench->report, "append_only_file", options->appendonly ? "everysec" : "off");
    return options->depths == NULL ? measure_loops(bench, err) : measure_depths(bench, err);
}

static enum status measure_queue(const struct invocation *invocation, struct report *report, struct err *err)
{
    struct bench bench = {
        .config = &invocation->config, .options = invocation->own, .stop = interrupt_listen(), .report = report};
    enum status status = run(&bench, err);
    if (bench.model != NULL)
        model_close(bench.model);
    return status;
}

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct bench_queue_options, name)

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(encodings, SETTING_TEXT), .fallback = "f32,json", .most = 64, .value = "LIST", .help = "of the replies: f32, json"},
    {OWN(requests, SETTING_INTEGER), .fallback = "50000", .least = 10, .most = 100000000, .value = "N", .help = "requests of each measurement"},
    {OWN(rounds, SETTING_INTEGER), .fallback = "3", .least = 1, .most = 100, .value = "N", .help = "measurements of each kind, in turn; medians are shown"},
    {OWN(depths, SETTING_TEXT), .most = 256, .value = "LIST", .help = "instead: the rate while so many requests wait, 1000,1000000"},
    {OWN(appendonly, SETTING_SWITCH), .fallback = "false", .help = "the Redis that is started writes its append-only file"},
    BENCH_JSON(struct bench_queue_options),
};
/* clang-format on */

const struct subcommand command_bench_queue = {
    .name = "bench queue",
    .bit = FOR_SERVE,
    .summary = "Measure the queue's loop with an engine that computes nothing, beside a bare client",
    .explanation =
        "The stream is filled, then a daemon with the null engine answers everything; in turn with it, a bare client\n"
        "issues the same commands with replies made beforehand, which is what this Redis can do at most. Redis is the\n"
        "one of --redis, or one that is started for each measurement; the queue is its own, and deleted afterwards.",
    .own = own_settings,
    .own_count = sizeof own_settings / sizeof own_settings[0],
    .own_size = sizeof(struct bench_queue_options),
    .run = bench_run,
    .measure = measure_queue,
};
