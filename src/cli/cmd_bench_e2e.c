#include "bench/e2e.h"
#include "cli/bench.h"
#include "cli/interrupt.h"

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct bench_e2e_options, name)

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(tokens, SETTING_TEXT), .fallback = "16,64,256", .most = 256, .value = "LIST", .help = "lengths of texts, in tokens; 0 for mixed ones"},
    {OWN(input, SETTING_TEXT), .most = 4096, .value = "FILE", .help = "in place of made-up texts: one per line"},
    {OWN(rate, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 100000, .value = "N", .help = "also a run with so many requests per second, at random times"},
    {OWN(duration_ms, SETTING_INTEGER), .fallback = "3000", .least = 10, .most = 3600000, .value = "N", .help = "how long each run sends requests"},
    {OWN(outstanding, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 1 << 20, .value = "N", .help = "requests that always wait in a full run; 0 = by their length"},
    {OWN(alone, SETTING_SWITCH), .fallback = "true", .help = "also with batches of one text, and the ratio"},
    {OWN(appendonly, SETTING_SWITCH), .fallback = "false", .help = "the Redis that is started writes its append-only file"},
    BENCH_JSON(struct bench_e2e_options),
};
/* clang-format on */

static enum status measure(const struct invocation *invocation, struct sheet *sheet, struct err *err)
{
    return bench_e2e(&invocation->config, invocation->own, interrupt_listen(), sheet, err);
}

const struct subcommand command_bench_e2e = {
    .name = "bench e2e",
    .bit = FOR_SERVE,
    .summary = "Measure from XADD to the reply, through Redis and a daemon",
    .explanation =
        "Each run has a daemon of its own, with the settings below, and a queue of its own that is deleted "
        "afterwards.\n"
        "Redis is the one of --redis, or one that is started for it. `full` runs keep so many requests waiting that\n"
        "the daemon is never idle; `random` ones send at --rate whatever comes back, and latency counts from when a\n"
        "request was to be sent. Batching off is --max-batch-rows 1. CPU us: the daemon's processor time for a text.",
    .own = own_settings,
    .own_count = sizeof own_settings / sizeof own_settings[0],
    .own_size = sizeof(struct bench_e2e_options),
    .run = bench_run,
    .measure = measure,
};
