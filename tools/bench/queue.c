/* `bench queue`: the loop without the model, compared with what the same Redis can do. The null engine answers at once,
 * so only the loop is left: XREADGROUP, tokenise, window, reply, settle. Alternating with it, a bare client writes the
 * same replies with the fewest plain commands, without any script, transaction or check.
 *
 * Each measurement has its own Redis, or at least its own queue, so that it does not pay for what another one wrote.
 * Both kinds find the same state: a group, all requests, none delivered, and a Redis that has memory for their replies.
 *
 * Why memory: in a Redis that has worked for a while, replies reuse the memory of others that were fetched or have
 * expired; a new one asks the kernel for every page. The price of that varies: in a virtual machine a page took 1.4 us
 * if another process had just used it, and 11 us once the host had it back. */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/report.h"
#include "bench/stage.h"
#include "cli/command.h"
#include "config/config.h"
#include "redis/connection.h"
#include "redis/dial.h"
#include "redis/resp.h"

/* The bare client: a pipelined client that reads entries with XREADGROUP and answers each with HSET and PEXPIRE, then
 * 64 with one XDEL and one XACK. Its replies were formatted beforehand. It computes nothing, checks nothing and
 * recovers from nothing, so its rate is the ceiling for any daemon that gives these replies. */

/* A measurement, its Redis, and its daemon if there is one. */
struct round {
    const struct config *config;
    const volatile sig_atomic_t *stop;
    bool appendonly;
    uint64_t requests;    /* requests to settle */
    uint32_t dim;         /* floats of a reply ... */
    const char *encoding; /* ... in "f32" or "json" */
    struct stage stage;
    struct child daemon;
};

/* How many requests were settled at a time, and the time of Redis' main thread until then. */
struct moment {
    uint64_t settled, ns;
    double redis_s;
};

struct figures {
    double per_s, redis_us; /* requests per second; of Redis' main thread for a request */
};

static void compare(const struct moment *begin, const struct moment *end, struct figures *figures)
{
    double requests = (double)(end->settled - begin->settled);
    figures->per_s = requests * NS_PER_S / (double)(end->ns - begin->ns);
    figures->redis_us = (end->redis_s - begin->redis_s) * 1e6 / requests;
}

static double number_after(const char *text, const char *name)
{
    const char *at = text ? strstr(text, name) : NULL;
    return at ? strtod(at + strlen(name), NULL) : 0;
}

static enum status look_at_redis(const struct round *round, struct moment *moment, struct err *err)
{
    const struct resp_value *reply;
    TRY(STAGE_ASK(&round->stage, &reply, err, "INFO", "cpu"));
    moment->redis_s = number_after(reply->bytes, "used_cpu_user_main_thread:") +
                      number_after(reply->bytes, "used_cpu_sys_main_thread:");
    return STATUS_OK;
}

/* Two reads are always in flight, and each is followed by the replies to its entries and by the next read, so Redis
 * always has work. Commands: R1 R2 S1 R3 S2 R4 ... */

enum {
    READ_COUNT = 512,
    CALL_ENTRIES = 64, /* entries of one XDEL and XACK, as of one settle of the daemon */
    TIMEOUT_MS = 60000,
};

/* --- the bare client --- */

struct ceiling {
    const struct round *round;
    struct event_base *base;
    struct resolver *resolver;
    struct connection *connection;
    struct command command; /* kept, to reuse its memory */
    char info[128];         /* of each reply: the members that a worker writes */
    struct buffer embedding;
    size_t read, settled;
    unsigned out; /* answers to come */
    uint64_t begin_ns, end_ns;
    struct err err; /* the error, or STATUS_OK */
};

static void fail(struct ceiling *ceiling, const struct err *err)
{
    if (ceiling->err.status == STATUS_OK) { ceiling->err = *err; }
    event_base_loopbreak(ceiling->base);
}

static void fail_with(struct ceiling *ceiling, const char *message)
{
    struct err err;
    (void)err_set(&err, STATUS_INTERNAL, "%s", message);
    fail(ceiling, &err);
}

static void make_embedding(struct ceiling *ceiling)
{
    snprintf(ceiling->info, sizeof ceiling->info, ",\"encoding\":\"%s\",\"dim\":%u,\"tokens\":18,\"compute_ms\":1.234",
             ceiling->round->encoding, ceiling->round->dim);
    bool json = strcmp(ceiling->round->encoding, "json") == 0;
    for (uint32_t i = 0; i < ceiling->round->dim; i++) {
        if (json) {
            buffer_format(&ceiling->embedding, "%c0.0%08u", i == 0 ? '[' : ',', 11037041u + i * 12347u % 80000000u);
        } else {
            buffer_append(&ceiling->embedding, "\x3d\x3d\x3d\x3d", 4);
        }
    }
    buffer_string(&ceiling->embedding, json ? "]" : "");
}

/* Sends the command that was built; `reply` NULL: ignore the answer. */
static void send_command(struct ceiling *ceiling, connection_reply_fn *reply)
{
    const char *bytes;
    size_t length;
    struct err err;
    enum status status = command_finish(&ceiling->command, &bytes, &length, &err);
    if (status == STATUS_OK) {
        status = connection_send(ceiling->connection, bytes, length, TIMEOUT_MS, reply, ceiling, &err);
    }
    if (status != STATUS_OK) {
        fail(ceiling, &err);
    } else {
        ceiling->out += reply != NULL;
    }
    command_free(&ceiling->command);
}

static void add_key(struct ceiling *ceiling, const char *kind, const char *entry)
{
    char suffix[STAGE_KEY], key[STAGE_KEY];
    snprintf(suffix, sizeof suffix, "%s%s", kind, entry);
    command_text(&ceiling->command, stage_key(&ceiling->round->stage, suffix, key));
}

/* Writes the reply to an entry, as the daemon's is, and its TTL. */
static void send_reply(struct ceiling *ceiling, const char *id)
{
    struct command *command = &ceiling->command;
    char info[320];
    snprintf(info, sizeof info,
             "{\"entry\":\"%s\",\"done_at\":1795252518106,\"queued_ms\":12%s,\"model\":\"null\","
             "\"revision\":\"0000000000000000\"}",
             id, ceiling->info);
    command_text(command, "HSET");
    add_key(ceiling, "reply:", id);
    command_pair(command, "status", "done");
    command_text(command, "embedding");
    command_bytes(command, ceiling->embedding.data, ceiling->embedding.length);
    command_pair(command, "info", info);
    send_command(ceiling, NULL);
    command_text(command, "PEXPIRE");
    add_key(ceiling, "reply:", id);
    command_text(command, "3600000");
    send_command(ceiling, NULL);
}

/* Handles an answer; false on an error. */
static bool take_answer(struct ceiling *ceiling, const struct resp_value *reply)
{
    ceiling->out--;
    if (reply != NULL && resp_check(reply, &ceiling->err) == STATUS_OK) { return true; }
    if (reply != NULL) { /* otherwise on_down has set the reason */
        fail(ceiling, &ceiling->err);
    }
    return false;
}

static void end_if_over(struct ceiling *ceiling)
{
    if (ceiling->out == 0) { event_base_loopbreak(ceiling->base); }
}

/* The answer to XACK: how many entries were pending. */
static void on_acknowledged(void *context, const struct resp_value *reply)
{
    struct ceiling *ceiling = context;
    if (!take_answer(ceiling, reply)) { return; }
    ceiling->settled += (size_t)reply->integer;
    if (ceiling->settled >= ceiling->round->requests) { ceiling->end_ns = clock_now_ns(); }
    end_if_over(ceiling);
}

/* Sends one command about all these entries. */
static void send_ids(struct ceiling *ceiling, const char *name, const char *group, const struct resp_value *entries,
                     size_t count, connection_reply_fn *reply)
{
    command_text(&ceiling->command, name);
    add_key(ceiling, "requests", "");
    if (group) { command_text(&ceiling->command, group); }
    for (size_t i = 0; i < count; i++) { command_text(&ceiling->command, entries[i].items[0].bytes); }
    send_command(ceiling, reply);
}

static void send_replies(struct ceiling *ceiling, const struct resp_value *entries, size_t count)
{
    for (size_t i = 0; i < count; i++) { send_reply(ceiling, entries[i].items[0].bytes); }
    send_ids(ceiling, "XDEL", NULL, entries, count, NULL);
    send_ids(ceiling, "XACK", "sluice", entries, count, on_acknowledged);
}

static void on_read(void *context, const struct resp_value *reply);

static void send_read(struct ceiling *ceiling)
{
    static const char *const words[] = {"XREADGROUP", "GROUP", "sluice", "bench", "COUNT"};
    command_list(&ceiling->command, sizeof words / sizeof words[0], words, NULL);
    command_number(&ceiling->command, READ_COUNT);
    command_text(&ceiling->command, "STREAMS");
    add_key(ceiling, "requests", "");
    command_text(&ceiling->command, ">");
    send_command(ceiling, on_read);
}

static void on_read(void *context, const struct resp_value *reply)
{
    struct ceiling *ceiling = context;
    if (!take_answer(ceiling, reply)) { return; }
    const struct resp_value *entries = reply->type == RESP_ARRAY ? &reply->items[0].items[1] : NULL;
    size_t count = entries == NULL ? 0 : entries->count;
    for (size_t at = 0; at < count; at += CALL_ENTRIES) {
        send_replies(ceiling, entries->items + at, count - at < CALL_ENTRIES ? count - at : CALL_ENTRIES);
    }
    ceiling->read += count;
    if (count == 0 && ceiling->read < ceiling->round->requests) {
        fail_with(ceiling, "the stream ran empty before all requests were read");
    }
    if (ceiling->read < ceiling->round->requests) { send_read(ceiling); }
    end_if_over(ceiling);
}

static void on_up(void *context)
{
    struct ceiling *ceiling = context;
    ceiling->begin_ns = clock_now_ns();
    send_read(ceiling);
    send_read(ceiling);
}

static void on_down(void *context, const struct err *err)
{
    fail(context, err);
}

static enum status settle_all(struct ceiling *ceiling, struct err *err)
{
    enum { REPLY_BYTES = 64 << 20 };
    struct connection_options options = {.address = &ceiling->round->stage.address,
                                         .name = "sluice-bench",
                                         .connect_timeout_ms = TIMEOUT_MS,
                                         .max_reply_bytes = REPLY_BYTES,
                                         .context = ceiling,
                                         .on_up = on_up,
                                         .on_down = on_down};
    ceiling->base = event_base_new();
    if (ceiling->base == NULL || !buffer_ok(&ceiling->embedding)) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a bare client");
    }
    TRY(resolver_open(ceiling->base, &ceiling->resolver, err));
    options.base = ceiling->base;
    options.resolver = ceiling->resolver;
    TRY(connection_open(&options, &ceiling->connection, err));
    while (ceiling->err.status == STATUS_OK && (ceiling->end_ns == 0 || ceiling->out > 0) &&
           *ceiling->round->stop == 0) {
        event_base_loop(ceiling->base, EVLOOP_ONCE);
    }
    TRY(stage_check(&ceiling->round->stage, err));
    return ceiling->err.status == STATUS_OK ? STATUS_OK : err_set(err, ceiling->err.status, "%s", ceiling->err.message);
}

/* Lets the bare client settle all requests.
 * Errors: those of connection_open and connection_command; STATUS_UNSUPPORTED (several Redis servers, or sentinels);
 * STATUS_INTERNAL (the stream ran empty). */
static enum status run_bare_client(struct round *round, struct figures *figures, struct err *err)
{
    struct ceiling ceiling = {.round = round};
    if (address_is_plural(&round->stage.address)) {
        return err_set(err, STATUS_UNSUPPORTED, "the bare client needs the address of one Redis");
    }
    make_embedding(&ceiling);
    struct moment begin = {0}, end = {0};
    enum status status = look_at_redis(round, &begin, err);
    status = status == STATUS_OK ? settle_all(&ceiling, err) : status;
    status = status == STATUS_OK ? look_at_redis(round, &end, err) : status;
    begin.ns = ceiling.begin_ns;
    end.ns = ceiling.end_ns;
    end.settled = ceiling.settled;
    if (status == STATUS_OK) { compare(&begin, &end, figures); }
    connection_close(ceiling.connection);
    if (ceiling.resolver != NULL) { resolver_close(ceiling.resolver); }
    if (ceiling.base != NULL) { event_base_free(ceiling.base); }
    command_free(&ceiling.command);
    buffer_free(&ceiling.embedding);
    return status;
}

enum { SILENCE_MS = 60000, AT_ONCE = 10000, NUMBER = 24 };

/* Which kind settles: a daemon with the null engine, or the bare client. */
enum queue_kind { QUEUE_DAEMON, QUEUE_BARE, QUEUE_KINDS };

/* --- one measurement --- */

static const char filling_script[] =
    "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'text', "
    "'the quick brown fox jumps over the lazy dog, number ' .. (ARGV[2] + i), 'encoding', ARGV[3]) end";

/* Adds all requests. A script makes up their texts in Redis, thousands with one command. Errors: those of
 * client_command; STATUS_TIMEOUT (interrupted). */
static enum status fill_stream(struct round *round, struct err *err)
{
    char key[STAGE_KEY], count[NUMBER], from[NUMBER];
    const struct resp_value *reply;
    stage_key(&round->stage, "requests", key);
    for (uint64_t at = 0; at < round->requests; at += AT_ONCE) {
        uint64_t now = round->requests - at < AT_ONCE ? round->requests - at : AT_ONCE;
        TRY(stage_check(&round->stage, err));
        snprintf(count, NUMBER, "%llu", (unsigned long long)now);
        snprintf(from, NUMBER, "%llu", (unsigned long long)at);
        TRY(STAGE_ASK(&round->stage, &reply, err, "EVAL", filling_script, "1", key, count, from, round->encoding));
    }
    return STATUS_OK;
}

/* Fills the stream. Before that, writes and deletes as many replies as the measurement will bring; not with an
 * append-only file, because the measurement would pay for writing it to the disk. */
static enum status prepare(struct round *round, struct err *err)
{
    char key[STAGE_KEY];
    struct figures figures;
    const struct resp_value *reply;
    sync(); /* lets the disk finish earlier rounds */
    TRY(stage_open(&round->stage, round->config, round->appendonly, round->stop, err));
    TRY(STAGE_ASK(&round->stage, &reply, err, "XGROUP", "CREATE", stage_key(&round->stage, "requests", key), "sluice",
                  "0", "MKSTREAM"));
    if (!round->appendonly) {
        TRY(fill_stream(round, err));
        TRY(run_bare_client(round, &figures, err));
        TRY(stage_clear(&round->stage, "reply:*", err));
    }
    return fill_stream(round, err);
}

/* Waits until `settled` requests were settled in all. */
static enum status await(struct round *round, uint64_t settled, struct moment *now, struct err *err)
{
    static const struct timespec pause = {0, 2 * NS_PER_MS};
    uint64_t ends_ms = clock_now_ms() + SILENCE_MS, before = UINT64_MAX;
    char key[STAGE_KEY];
    const struct resp_value *reply;
    stage_key(&round->stage, "requests", key);
    for (;; nanosleep(&pause, NULL)) {
        TRY(stage_check(&round->stage, err));
        if (!child_running(&round->daemon)) { return child_gone(&round->daemon, err); }
        TRY(STAGE_ASK(&round->stage, &reply, err, "XLEN", key));
        *now = (struct moment){round->requests - (uint64_t)reply->integer, clock_now_ns(), 0};
        if (now->settled >= settled) { return look_at_redis(round, now, err); }
        if (now->settled != before) { ends_ms = clock_now_ms() + SILENCE_MS; }
        before = now->settled;
        if (clock_now_ms() > ends_ms) {
            return err_set(err, STATUS_TIMEOUT, "%lld requests have no reply after %d s of silence",
                           (long long)reply->integer, SILENCE_MS / 1000);
        }
    }
}

/* Measures the middle eight tenths of the requests, so not the start and end of the process. */
static enum status measure_daemon(struct round *round, struct figures *figures, struct err *err)
{
    static const char *const flags[] = {"--backend", "null", NULL};
    uint64_t count = round->requests;
    struct daemon_counts counts;
    struct moment begin = {.ns = clock_now_ns()}, first, end, all;
    TRY(look_at_redis(round, &begin, err));
    TRY(stage_daemon(&round->stage, flags, &round->daemon, err));
    TRY(await(round, count / 10, &first, err));
    TRY(await(round, count - count / 10, &end, err));
    if (first.settled < end.settled) { begin = first; } /* otherwise all ended between two looks */
    compare(&begin, &end, figures);
    TRY(await(round, count, &all, err));
    TRY(stage_end_daemon(&round->daemon, &counts, err));
    if (counts.done != (double)count || counts.errors != 0) {
        return err_set(err, STATUS_INTERNAL, "of %llu requests %.0f were done and %.0f were errors",
                       (unsigned long long)count, counts.done, counts.errors);
    }
    return STATUS_OK;
}

/* Measures one kind. */
static enum status measure_round(struct round *round, enum queue_kind kind, struct figures *figures, struct err *err)
{
    enum status status = prepare(round, err);
    if (status == STATUS_OK && kind == QUEUE_DAEMON) { status = measure_daemon(round, figures, err); }
    if (status == STATUS_OK && kind == QUEUE_BARE) { status = run_bare_client(round, figures, err); }
    child_stop(&round->daemon, SIGKILL, 0);
    stage_close(&round->stage);
    return status;
}

/* --- the command --- */

struct bench_queue_options {
    char *json;
    int64_t requests, rounds;
    bool appendonly;
};

struct bench {
    const struct config *config;
    const struct bench_queue_options *options;
    const volatile sig_atomic_t *stop;
    struct report *report;
    struct model *model;
};

static const struct column loop_columns[] = {
    {"encoding", "encoding", REPORT_TEXT}, {"requests", "requests", 0},        {"rounds", "rounds", 0},
    {"daemon_per_s", "daemon/s", 0},       {"ceiling_per_s", "bare/s", 0},     {"share", "share", 3},
    {"daemon_redis_us", "Redis us", 2},    {"ceiling_redis_us", "bare us", 2}, {"redis_share", "share of Redis", 3},
};

/* Measures both kinds in turn, the daemon first in every other round, and shows the medians. */
static enum status measure_loop(struct bench *bench, const char *encoding, struct err *err)
{
    const struct bench_queue_options *options = bench->options;
    struct sample rates[QUEUE_KINDS] = {{0}}, times[QUEUE_KINDS] = {{0}}, shares[QUEUE_KINDS] = {{0}};
    enum status status = STATUS_OK;
    for (int64_t i = 0; i < options->rounds && status == STATUS_OK; i++) {
        struct figures all[QUEUE_KINDS];
        for (int at = 0; at < QUEUE_KINDS && status == STATUS_OK; at++) {
            enum queue_kind kind = (i + at) % 2 == 0 ? QUEUE_DAEMON : QUEUE_BARE;
            struct round round = {.config = bench->config,
                                  .stop = bench->stop,
                                  .appendonly = options->appendonly,
                                  .encoding = encoding,
                                  .dim = bench->model->dim,
                                  .requests = (uint64_t)options->requests};
            status = measure_round(&round, kind, &all[kind], err);
            if (status != STATUS_OK) { break; }
            sample_add(&rates[kind], all[kind].per_s);
            sample_add(&times[kind], all[kind].redis_us);
        }
        if (status == STATUS_OK) {
            sample_add(&shares[0], all[QUEUE_DAEMON].per_s / all[QUEUE_BARE].per_s);
            sample_add(&shares[1], all[QUEUE_BARE].redis_us / all[QUEUE_DAEMON].redis_us);
        }
    }
    if (status == STATUS_OK) {
        report_row(bench->report, &encoding,
                   (const double[]){(double)options->requests, (double)options->rounds,
                                    sample_quantile(&rates[QUEUE_DAEMON], 0.5),
                                    sample_quantile(&rates[QUEUE_BARE], 0.5), sample_quantile(&shares[0], 0.5),
                                    sample_quantile(&times[QUEUE_DAEMON], 0.5),
                                    sample_quantile(&times[QUEUE_BARE], 0.5), sample_quantile(&shares[1], 0.5)});
    }
    for (int kind = 0; kind < QUEUE_KINDS; kind++) {
        sample_free(&rates[kind]);
        sample_free(&times[kind]);
        sample_free(&shares[kind]);
    }
    return status;
}

static enum status run(struct bench *bench, struct err *err)
{
    const struct bench_queue_options *options = bench->options;
    TRY(config_model(bench->config, &bench->model, err));
    model_release_weights(bench->model);
    report_number(bench->report, "floats", bench->model->dim, 0);
    report_text(bench->report, "append_only_file", options->appendonly ? "everysec" : "off");
    report_table(bench->report, "loop", loop_columns, sizeof loop_columns / sizeof loop_columns[0]);
    TRY(measure_loop(bench, "f32", err));
    return measure_loop(bench, "json", err);
}

static enum status measure_queue(const struct invocation *invocation, struct report *report, struct err *err)
{
    struct bench bench = {
        .config = &invocation->config, .options = invocation->own, .stop = interrupt_listen(), .report = report};
    enum status status = run(&bench, err);
    if (bench.model != NULL) { model_close(bench.model); }
    return status;
}

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct bench_queue_options, name)

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(requests, SETTING_INTEGER), .fallback = "50000", .least = 10, .most = 100000000, .value = "N", .help = "requests of each measurement"},
    {OWN(rounds, SETTING_INTEGER), .fallback = "3", .least = 1, .most = 100, .value = "N", .help = "measurements of each kind, in turn; medians are shown"},
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
        "writes replies that were made beforehand, with plain commands and without any check, which is what this "
        "Redis\n"
        "can do at most. The shares are the daemon's of that: in requests a second, and in Redis' time for a request.\n"
        "Redis is the one of --redis, or one that is started for each measurement; the queue is its own, and deleted\n"
        "afterwards.",
    OWN_OPTIONS(own_settings, struct bench_queue_options),
    .run = benchmark_run,
    .measure = measure_queue,
};
