#include "cli/command.h"

#include <signal.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/log.h"
#include "bench/e2e.h"
#include "bench/engine_rate.h"
#include "bench/generation.h"

int benchmark_run(struct invocation *invocation)
{
    const char *json = *(char *const *)invocation->own; /* the first member: see BENCH_JSON */
    struct report figures;
    struct err err;
    log_setup(LOG_ERROR, LOG_TEXT, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    report_begin(&figures, invocation->command->name + strlen("bench "),
                 json && strcmp(json, "-") == 0 ? NULL : stdout);
    enum status status = invocation->command->measure(invocation, &figures, &err);
    if (status == STATUS_OK) { status = report_end(&figures, json, &err); }
    report_free(&figures);
    return status == STATUS_OK ? EX_OK : print_error(invocation, &err);
}

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct bench_engine_options, name)

static const char *const gelus[] = {"fast", "exact", NULL};

/* clang-format off */
static const struct setting engine_settings[] = {
    {OWN(tokens, SETTING_TEXT), .fallback = "16,32,64,128,256", .most = 256, .value = "LIST", .help = "lengths of texts, in tokens"},
    {OWN(batch_tokens, SETTING_INTEGER), .fallback = "4096", .least = 1, .most = 1 << 20, .value = "N", .help = "tokens of a batch"},
    {OWN(round_ms, SETTING_INTEGER), .fallback = "300", .least = 1, .most = 60000, .value = "N", .help = "how long to measure each figure"},
    {OWN(rounds, SETTING_INTEGER), .fallback = "3", .least = 1, .most = 100, .value = "N", .help = "so often; the best counts"},
    {OWN(graphs, SETTING_SWITCH), .fallback = "true", .help = "a GPU runs passes of a size that it has seen as CUDA graphs"},
    {OWN(gelu, SETTING_CHOICE), .fallback = "fast", .choices = gelus, .value = "WORD", .help = "exact: GELU in its erf form on a GPU, too"},
    BENCH_JSON(struct bench_engine_options),
};
/* clang-format on */

static enum status measure_engine(const struct invocation *invocation, struct report *report, struct err *err)
{
    return bench_engine(&invocation->config, invocation->own, report, err);
}

const struct subcommand command_bench_engine = {
    .name = "bench engine",
    .bit = FOR_ENGINE,
    .summary = "Measure the model by itself: tokens/s, latency",
    .explanation =
        "batches: texts of one length in full batches, on one thread and on all of them.\n"
        "mixed: the same texts of 6 to 200 tokens in batches of equal size, packed; padded, by length and as they "
        "come;\n"
        "and one by one.\n"
        "passes: on one thread, of one text and of about 1,024 tokens, and of a short text with all threads' help.\n"
        "cost: how well the calibration of a daemon's start predicts their medians.",
    OWN_OPTIONS(engine_settings, struct bench_engine_options),
    .run = benchmark_run,
    .measure = measure_engine,
};

#undef OWN

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct bench_e2e_options, name)

/* clang-format off */
static const struct setting e2e_settings[] = {
    {OWN(tokens, SETTING_TEXT), .fallback = "16,64,256", .most = 256, .value = "LIST", .help = "lengths of texts, in tokens; 0 for mixed ones"},
    {OWN(input, SETTING_TEXT), .most = 4096, .value = "FILE", .help = "in place of made-up texts: one per line"},
    {OWN(rate, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 100000, .value = "N", .help = "also a run with so many requests per second, at random times"},
    {OWN(duration_ms, SETTING_INTEGER), .fallback = "3000", .least = 10, .most = 3600000, .value = "N", .help = "how long each run sends requests"},
    {OWN(outstanding, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 1 << 20, .value = "N", .help = "requests that always wait in a full run; 0 = by their length"},
    {OWN(full, SETTING_SWITCH), .fallback = "true", .help = "with as many requests as the daemon takes; no: only at --rate"},
    {OWN(alone, SETTING_SWITCH), .fallback = "true", .help = "also with batches of one text, and the ratio"},
    BENCH_JSON(struct bench_e2e_options),
};
/* clang-format on */

static enum status measure_e2e(const struct invocation *invocation, struct report *report, struct err *err)
{
    return bench_e2e(&invocation->config, invocation->own, interrupt_listen(), report, err);
}

const struct subcommand command_bench_e2e = {
    .name = "bench e2e",
    .bit = FOR_SERVE,
    .summary = "Measure from XADD to the reply, through Redis and a daemon",
    .explanation =
        "Each run has a daemon of its own, with the settings below, and a queue of its own that is deleted\n"
        "afterwards. Redis is the one of --redis, or one that is started for it. `full` runs keep so many\n"
        "requests waiting that the daemon is never idle; `random` ones send at --rate whatever comes back, and\n"
        "latency counts from when a request was to be sent. Batching off is --max-batch-rows 1. CPU us: the\n"
        "daemon's processor time for a text.",
    OWN_OPTIONS(e2e_settings, struct bench_e2e_options),
    .run = benchmark_run,
    .measure = measure_e2e,
};

#undef OWN

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct bench_generate_options, name)

/* clang-format off */
static const struct setting generate_settings[] = {
    {OWN(texts, SETTING_TEXT), .fallback = "1,8,32", .most = 256, .value = "LIST", .help = "how many texts are written at once"},
    {OWN(prompt_tokens, SETTING_INTEGER), .fallback = "128", .least = 1, .most = 1 << 20, .value = "N", .help = "tokens of each prompt"},
    {OWN(new_tokens, SETTING_INTEGER), .fallback = "128", .least = 1, .most = 1 << 20, .value = "N", .help = "tokens to write for each"},
    {OWN(shared_tokens, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 1 << 20, .value = "N", .help = "so many tokens are the same at the beginning of all prompts"},
    {OWN(blocks, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 1 << 30, .value = "N", .help = "blocks of 16 tokens in the pool of keys and values; 0: as sluice generate has"},
    {OWN(optimistic, SETTING_SWITCH), .fallback = "false", .help = "begin texts before there is room for all their tokens; they may lose it to others"},
    {OWN(rounds, SETTING_INTEGER), .fallback = "3", .least = 1, .most = 100, .value = "N", .help = "so often; the best rate counts, and all times"},
    BENCH_JSON(struct bench_generate_options),
};
/* clang-format on */

static enum status measure_generate(const struct invocation *invocation, struct report *report, struct err *err)
{
    return bench_generate(&invocation->config, invocation->own, report, err);
}

const struct subcommand command_bench_generate = {
    .name = "bench generate",
    .bit = FOR_GENERATE,
    .summary = "Measure how fast a language model writes texts",
    .explanation =
        "Texts of equal length begin together; their prompts are made up. prefill: tokens of prompts in a second,\n"
        "while nothing is written. decode: tokens written in a second while no prompt is read; all: from the\n"
        "beginning to the end. TTFT: from the beginning to a text's first token. ITL: between two tokens of a text.\n"
        "pool: the largest share of the blocks of keys and values that was in use. prefix: the share of the prompts\n"
        "that was already computed for another one. preempted: how often a text lost its room to another one.",
    OWN_OPTIONS(generate_settings, struct bench_generate_options),
    .run = benchmark_run,
    .measure = measure_generate,
};

#undef OWN
