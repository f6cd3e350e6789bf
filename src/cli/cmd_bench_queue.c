#include "bench/queue.h"
#include "cli/bench.h"
#include "cli/interrupt.h"

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

static enum status measure(const struct invocation *invocation, struct sheet *sheet, struct err *err)
{
    return bench_queue(&invocation->config, invocation->own, interrupt_listen(), sheet, err);
}

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
    .measure = measure,
};
