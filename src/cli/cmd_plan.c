/* `sluice plan`: the number of workers that a load needs. */
#include <signal.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/log.h"
#include "bench/plan.h"
#include "cli/command.h"

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct plan_options, name)

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(lengths, SETTING_TEXT), .most = 4096, .value = "FILE", .help = "texts as they will come, one a line: their lengths count"},
    {OWN(rate, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 10000000, .value = "N", .help = "requests a second, at random times"},
    {OWN(p99, SETTING_TEXT), .most = 32, .value = "TIME", .help = "in which 99 of 100 are to be answered: 200ms, 1.5s"},
    {OWN(workers, SETTING_INTEGER), .fallback = "0", .least = 0, .most = PLAN_WORKERS_MOST, .value = "N", .help = "say what so many workers do; 0 = as few as hold --p99"},
    {OWN(beside_us, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 1000000, .value = "N", .help = "microseconds of processor time that other programs on each worker's machine, such as a Redis, take for a request"},
    {OWN(price_per_hour, SETTING_TEXT), .most = 32, .value = "N", .help = "of a worker's machine, for the cost of 1,000 requests"},
    {OWN(json, SETTING_SWITCH), .fallback = "false", .help = "the plan as JSON"},
};
/* clang-format on */

/* Plans with the settings of the queue, if the configuration lists several. */
static enum status plan_queue(const struct config *config, const struct plan_options *options, struct report *report,
                              struct err *err)
{
    struct config *queues;
    size_t count;
    TRY(config_split(config, &queues, &count, err));
    enum status status = count == 1 ? plan_run(&queues[0], options, report, err)
                                    : err_set(err, STATUS_BAD_INPUT, "--queue is needed: which of the %zu", count);
    for (size_t i = 0; i < count; i++) { config_free(&queues[i]); }
    free(queues);
    return status;
}

static int run_plan(struct invocation *invocation)
{
    const struct plan_options *options = invocation->own;
    struct report report = {0}; /* plan_run begins it once it has checked the arguments */
    struct err err;
    log_setup(LOG_ERROR, LOG_TEXT, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    enum status status = plan_queue(&invocation->config, options, &report, &err);
    if (status == STATUS_OK) { status = report_end(&report, options->json ? "-" : NULL, &err); }
    report_free(&report);
    return status == STATUS_OK ? EX_OK : print_error(invocation, &err);
}

const struct subcommand command_plan = {
    .name = "plan",
    .bit = FOR_SERVE,
    .summary = "Say how many workers like this machine a load needs",
    .explanation =
        "Runs the daemon's own planner on a virtual clock: as many requests a second as --rate says, at random\n"
        "times, with texts drawn from --lengths, on workers like this machine with the settings below, and one\n"
        "Redis. A batch takes what the daemon's calibration says; no two texts count as equal.\n"
        "\n"
        "First what a batch takes on this machine: batch_us, with token_ns for each token and square_ps for each\n"
        "pair of tokens of one text. help: the share of that time that it takes where idle threads help. alone,\n"
        "crowded: how many times as long it takes after a pause, and while all compute threads work. hop_us: how\n"
        "long a request takes from one thread to the next. tokenise_us, reply_us: for one text, and for its reply\n"
        "of reply_bytes.\n"
        "Then what was tried, a line for each number of workers. p50, p99: the time in which 50 and 99 of 100\n"
        "requests are answered. busy, redis: the share of time that compute threads and Redis work. a batch: its\n"
        "texts, on average. holds: whether it holds --p99; workers that are busy for more than 97 % of the time\n"
        "hold nothing.\n"
        "Then the plan, with what replies take that nobody deletes (replies_gb), and how many requests a second\n"
        "each limit lets through at most: these workers (engine), one queue's Redis, and the memory of a Redis on\n"
        "such a machine for replies that nobody deletes. The least gives first; where memory is below --rate, a\n"
        "warning says so. The network's time is not in it. docs/scale.md has the rest.",
    OWN_OPTIONS(own_settings, struct plan_options),
    .run = run_plan,
};
