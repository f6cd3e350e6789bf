/* The rules of failure in one place, so that they can be read beside docs/protocol.md. */
#include "work/policy.h"

#include "base/random.h"

uint32_t policy_random(struct policy *policy, uint32_t below)
{
    uint64_t random = random_next(&policy->random);
    return below == 0 ? 0 : (uint32_t)(random % below);
}

uint32_t policy_backoff_ms(struct policy *policy, uint32_t attempt)
{
    uint64_t delay = policy->backoff_ms;
    for (uint32_t i = 1; i < attempt && delay < policy->backoff_cap_ms; i++)
        delay *= 2;
    delay = delay * (800 + policy_random(policy, 401)) / 1000;
    if (delay > policy->backoff_cap_ms)
        delay = policy->backoff_cap_ms;
    return delay == 0 ? 1 : (uint32_t)delay;
}

/* Whether a run that begins after this delay would begin in time. */
static bool in_time(const struct request *request, uint64_t now_ms, uint32_t delay_ms)
{
    return request->expires_at_ms == 0 || now_ms == 0 || now_ms + delay_ms < request->expires_at_ms;
}

void policy_judge(struct policy *policy, struct request *request, uint64_t now_ms)
{
    if (request->code == CODE_NONE) {
        request->outcome = OUTCOME_DONE;
        return;
    }
    if (request->retryable && request->attempt < request->max_attempts) {
        uint32_t delay_ms = policy_backoff_ms(policy, request->attempt);
        if (in_time(request, now_ms, delay_ms)) {
            request->outcome = OUTCOME_DEFER;
            request->due_ms = delay_ms;
            request->next_attempt = request->attempt + 1;
            return;
        }
    }
    bool dead = request->retryable || request->code == CODE_POISON;
    request->outcome = dead ? OUTCOME_DEAD : OUTCOME_ERROR;
    if (request->ttl_s < policy->error_ttl_s)
        request->ttl_s = policy->error_ttl_s;
}

enum reply_code policy_code(enum status status)
{
    switch (status) {
    case STATUS_NO_MEMORY:
        return CODE_OUT_OF_MEMORY;
    case STATUS_DEVICE_LOST:
        return CODE_DEVICE_LOST;
    case STATUS_TIMEOUT:
        return CODE_TIMEOUT;
    case STATUS_NON_FINITE:
        return CODE_NON_FINITE;
    default:
        return CODE_INTERNAL;
    }
}

void budget_halve(struct budget *budget)
{
    budget->tokens = budget->tokens > 1 ? budget->tokens / 2 : 1;
    budget->good = 0;
}

void budget_good(struct budget *budget)
{
    if (budget->tokens >= budget->full || ++budget->good < BUDGET_GROWS_AFTER)
        return;
    budget->good = 0;
    budget->tokens = budget->tokens > budget->full / 2 ? budget->full : budget->tokens * 2;
}
