#include "bench/ab.h"
#include "cli/bench.h"
#include "cli/interrupt.h"

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct bench_ab_options, name)

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(ways, SETTING_TEXT), .fallback = "off,fifo,sorted,packed", .most = 64, .value = "LIST", .help = "which ways to batch"},
    {OWN(windows, SETTING_TEXT), .fallback = "0,5,50", .most = 256, .value = "LIST", .help = "ms to wait for more texts; 0 = while the engine is busy"},
    {OWN(loads, SETTING_TEXT), .fallback = "20,50,80,95", .most = 256, .value = "LIST", .help = "percent of what packed batches can do"},
    {OWN(tokens, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 1 << 20, .value = "N", .help = "length of the texts; 0 = mixed"},
    {OWN(input, SETTING_TEXT), .most = 4096, .value = "FILE", .help = "in place of made-up texts: one per line"},
    {OWN(fixed_rows, SETTING_INTEGER), .fallback = "32", .least = 1, .most = 1024, .value = "N", .help = "texts of a full batch that is padded"},
    {OWN(burst, SETTING_INTEGER), .fallback = "32", .least = 1, .most = 100000, .value = "N", .help = "requests that come at once in bursts"},
    {OWN(burst_load, SETTING_INTEGER), .fallback = "50", .least = 0, .most = 1000, .value = "N", .help = "their load in percent; 0 = no bursts"},
    {OWN(duration_ms, SETTING_INTEGER), .fallback = "2000", .least = 10, .most = 3600000, .value = "N", .help = "how long each run sends requests"},
    {OWN(price_per_hour, SETTING_TEXT), .fallback = "1", .most = 32, .value = "N", .help = "of the machine, for the cost of 1,000 requests"},
    BENCH_JSON(struct bench_ab_options),
};
/* clang-format on */

static enum status measure(const struct invocation *invocation, struct sheet *sheet, struct err *err)
{
    return bench_ab(&invocation->config, invocation->own, interrupt_listen(), sheet, err);
}

const struct subcommand command_bench_ab = {
    .name = "bench ab",
    .bit = FOR_SERVE,
    .summary = "Compare ways to batch: texts/s, latency, padding and cost at the same arrivals",
    .explanation =
        "off: one text at a time. fifo: fixed batches of the texts as they come, padded to the longest. sorted: the\n"
        "same of texts of similar length. packed: what the daemon does. Loads are percent of what packed batches\n"
        "without a window can do, which is measured first: all ways get the same requests at the same times, at\n"
        "random (a Poisson process) and in bursts. Latency counts from when a request was to be sent.",
    .own = own_settings,
    .own_count = sizeof own_settings / sizeof own_settings[0],
    .own_size = sizeof(struct bench_ab_options),
    .run = bench_run,
    .measure = measure,
};
