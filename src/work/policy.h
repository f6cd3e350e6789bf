/* What becomes of a request that failed, and of the token budget after a batch that did not fit. Pure; private to
 * work/. */
#ifndef WORK_POLICY_H
#define WORK_POLICY_H

#include "work/request.h"

enum {
    POISON_LONELY_RUNS = 3,  /* crashes in lonely runs that make a request poison */
    BUDGET_GROWS_AFTER = 16, /* good batches after which a halved budget doubles again */
};

/* What failures cost, from the worker's options. */
struct policy {
    uint32_t backoff_ms, backoff_cap_ms;
    uint32_t error_ttl_s;
    uint64_t random; /* state of the jitter */
};

/* A number in 0 .. below-1, of a small generator that is seeded by the options: the same seed repeats a run. */
uint32_t policy_random(struct policy *policy, uint32_t below);

/* Backoff before the run after `attempt`: backoff_ms doubled for each, ±20 %, at most the cap. Units: ms. */
uint32_t policy_backoff_ms(struct policy *policy, uint32_t attempt);

/* Turns a request's code into its outcome: done; retry while the code is transient, attempts are left and the next one
 * would begin before it expires; dead letter when that is over or it is poison; else an error. An error reply lives at
 * least error_ttl_s. Units: now_ms is Redis' unix ms, 0 when not known. */
void policy_judge(struct policy *policy, struct request *request, uint64_t now_ms);

/* The reply code for a forward pass that failed for this row alone. */
enum reply_code policy_code(enum status status);

/* The token budget of a batch: halved when memory ran out, doubled again after a while. */
struct budget {
    uint32_t full, tokens, good;
};

/* Memory ran out: half of it from now on, at least one token. */
void budget_halve(struct budget *budget);

/* A batch has run: after BUDGET_GROWS_AFTER of them, twice as much again, up to all. */
void budget_good(struct budget *budget);

#endif
