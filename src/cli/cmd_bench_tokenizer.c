#include "bench/tokenizer.h"
#include "cli/bench.h"

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

static enum status measure(const struct invocation *invocation, struct sheet *sheet, struct err *err)
{
    return bench_tokenizer(&invocation->config, invocation->own, sheet, err);
}

const struct subcommand command_bench_tokenizer = {
    .name = "bench tokenizer",
    .bit = FOR_TOKENIZE,
    .summary = "Measure tokenising on one core: tokens/s, MB/s, one short text, one long one",
    .explanation =
        "all: every text in turn, cut at --max-tokens. one short, one long: the same text over and over, which is\n"
        "then in the caches. p50 and p99 are of single texts; rates are by processor time.",
    .own = own_settings,
    .own_count = sizeof own_settings / sizeof own_settings[0],
    .own_size = sizeof(struct bench_tokenizer_options),
    .run = bench_run,
    .measure = measure,
};
