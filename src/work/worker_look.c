/* What the outside may look at and change while the worker runs: the table of held requests for a dump, and those
 * options that no batch, lease or table was built on. */
#include "work/worker_stages.h"

uint32_t worker_each_held(const struct worker *worker, uint32_t most, void *context,
                          void (*visit)(void *context, const struct request *request))
{
    const struct held *held = &worker->held;
    for (uint32_t i = 0; i <= held->mask; i++)
        for (const struct request *at = held->buckets[i]; at != NULL && most > 0; at = at->chain, most--)
            visit(context, at);
    return held->count;
}

enum status worker_tune(struct worker *worker, const struct worker_options *options, struct err *err)
{
    enum status status = worker_check(options, err);
    if (status != STATUS_OK)
        return status;
    struct worker_options old = worker->options;
    worker->options = *options;
    worker->options.layout = old.layout;
    worker->options.devices = old.devices;
    worker->options.engine_slots = old.engine_slots;
    worker->options.spare_slots = old.spare_slots;
    worker->options.batches_out = old.batches_out;
    worker->options.lease_ms = old.lease_ms;
    worker->options.seed = old.seed;
    worker->options.rules.model_name = old.rules.model_name;
    worker->options.rules.model_id = old.rules.model_id;
    worker->options.rules.dim = old.rules.dim;
    worker->options.rules.max_tokens = old.rules.max_tokens;
    worker->policy.backoff_ms = options->backoff_ms;
    worker->policy.backoff_cap_ms = options->backoff_cap_ms;
    worker->policy.error_ttl_s = options->rules.error_ttl_s;
    worker->options.cost = old.cost;
    if (options->target_p99_ms != old.target_p99_ms)
        tune_begin(&worker->tune, options->target_p99_ms);
    if (options->max_batch_tokens != old.max_batch_tokens)
        worker->budget = (struct budget){.full = options->max_batch_tokens, .tokens = options->max_batch_tokens};
    pace_second(worker);
    return STATUS_OK;
}
