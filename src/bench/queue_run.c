/* Both kinds find the same: a group, all requests, none delivered, and a Redis that has memory for their replies. While
 * a stream is kept full they also meet the same producer: the script of filling.c, sent by us for a daemon and by the
 * bare client itself for each read.
 *
 * Memory, because in a Redis that has been at work replies take the place of others that were fetched or have expired,
 * while one that was just started asks the kernel for every page. That has its price, and not the same one each time:
 * in a virtual machine a page took 1.4 us that another process had a moment ago, and 11 us once the host had it back.
 */
#include "bench/queue_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/ceiling.h"
#include "bench/filling.h"

enum { SILENCE_MS = 60000 };

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

enum status queue_run(const struct queue_run *run, enum queue_kind kind, struct queue_figures *out, struct err *err)
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
