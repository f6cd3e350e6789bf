#include "bench/trial.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>

/* Enough to fill the batches of all threads a few times over, and little enough to be done soon at the end. */
enum { OUTSTANDING_TOKENS = 32768, OUTSTANDING_LEAST = 64, OUTSTANDING_MOST = 4096, USUAL_TOKENS = 56 };

static uint32_t outstanding_of(const struct trial *trial)
{
    uint32_t tokens = trial->texts->tokens == 0 ? USUAL_TOKENS : trial->texts->tokens;
    uint32_t count = OUTSTANDING_TOKENS / tokens;
    if (trial->outstanding > 0)
        return trial->outstanding;
    return count < OUTSTANDING_LEAST ? OUTSTANDING_LEAST : count > OUTSTANDING_MOST ? OUTSTANDING_MOST : count;
}

static enum status run(const struct trial *trial, struct load *load, struct child *daemon, struct trial_result *out,
                       struct err *err)
{
    TRY(stage_daemon(trial->stage, trial->flags, daemon, err));
    TRY(load_warm_up(load, err));
    TRY(load_run(load, &out->load, err));
    TRY(stage_end_daemon(daemon, &out->counts, err));
    out->mean_tokens = out->counts.tokens / out->counts.rows;
    out->cpu_s = daemon->cpu_s;
    out->peak_mb = daemon->peak_mb;
    return stage_clear(trial->stage, "*", err);
}

enum status trial_run(const struct trial *trial, struct trial_result *out, struct err *err)
{
    struct child daemon = {0};
    struct arrivals arrivals = {0};
    struct load load = {.stage = trial->stage,
                        .texts = trial->texts,
                        .encoding = "f32",
                        .daemon = &daemon,
                        .outstanding = outstanding_of(trial),
                        .for_ns = trial->for_ns};
    *out = (struct trial_result){0};
    if (!isnan(trial->offered)) {
        TRY(arrivals_make(trial->offered, trial->burst == 0 ? 1 : trial->burst, trial->for_ns, 1, &arrivals, err));
        load.arrivals = &arrivals;
    }
    enum status status = run(trial, &load, &daemon, out, err);
    child_stop(&daemon, SIGKILL, 0);
    free(arrivals.at_ns);
    return status;
}

void trial_free(struct trial_result *result)
{
    sample_free(&result->load.latency_ms);
}
