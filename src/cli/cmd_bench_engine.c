#include "bench/engine.h"
#include "cli/bench.h"

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct bench_engine_options, name)

static const char *const gelus[] = {"fast", "exact", NULL};

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(tokens, SETTING_TEXT), .fallback = "16,32,64,128,256", .most = 256, .value = "LIST", .help = "lengths of texts, in tokens"},
    {OWN(batch_tokens, SETTING_INTEGER), .fallback = "4096", .least = 1, .most = 1 << 20, .value = "N", .help = "tokens of a batch"},
    {OWN(round_ms, SETTING_INTEGER), .fallback = "300", .least = 1, .most = 60000, .value = "N", .help = "how long to measure each figure"},
    {OWN(rounds, SETTING_INTEGER), .fallback = "3", .least = 1, .most = 100, .value = "N", .help = "so often; the best counts"},
    {OWN(graphs, SETTING_SWITCH), .fallback = "true", .help = "a GPU runs passes of a size that it has seen as CUDA graphs"},
    {OWN(gelu, SETTING_CHOICE), .fallback = "fast", .choices = gelus, .value = "WORD", .help = "exact: GELU in its erf form on a GPU, too"},
    BENCH_JSON(struct bench_engine_options),
};
/* clang-format on */

static enum status measure(const struct invocation *invocation, struct sheet *sheet, struct err *err)
{
    return bench_engine(&invocation->config, invocation->own, sheet, err);
}

const struct subcommand command_bench_engine = {
    .name = "bench engine",
    .bit = FOR_BENCH,
    .summary = "Measure the model by itself: tokens/s, latency",
    .explanation =
        "batches: texts of one length in full batches, on one thread and on all of them.\n"
        "mixed: 32 texts of 6 to 200 tokens as one batch, packed and padded, and one by one.\n"
        "passes: on one thread, of one text and of about 1,024 tokens, and of a short text with all threads' help.\n"
        "cost: how well the calibration of a daemon's start predicts their medians.",
    .own = own_settings,
    .own_count = sizeof own_settings / sizeof own_settings[0],
    .own_size = sizeof(struct bench_engine_options),
    .run = bench_run,
    .measure = measure,
};
