/* How fast batches are, learnt from those that have run, and what follows from it: how long the next one may be, which
 * rows cannot wait for the one after it, and what is said of our speed. */
#include <math.h>

#include "base/clock.h"
#include "work/worker_stages.h"

/* Work beside requests that are in more of a hurry: what runs when one comes cannot be stopped, so it is to be short.
 * Nearly nothing is lost by batches that take ten times what every batch costs, or that are worth a compute thread's
 * while. */
enum { ONLINE_MS = 10000, BRIEF_FIXED = 10, BRIEF_TOKENS = 256, BRIEF_LENGTH = 64 };

/* Whether it is of class high, or is to start so soon that a long batch in front of it could be too much. */
static bool hurries(const struct worker *worker, const struct request *request)
{
    uint64_t now_ms = worker_redis_ms(worker), expires_ms = request->expires_at_ms;
    return request->class == CLASS_HIGH || (expires_ms != 0 && now_ms != 0 && expires_ms < now_ms + ONLINE_MS);
}

void pace_arrived(struct worker *worker, const struct request *request)
{
    if (hurries(worker, request))
        worker->hurry_at = worker->now;
    if (request->class == CLASS_LOW)
        return;
    worker->online_before = worker->online_at;
    worker->online_at = worker->now;
}

/* A single request in a while is nobody's traffic: a bulk job asks for one vector before it begins. */
bool pace_is_online(const struct worker *worker)
{
    return worker->online_before != 0 && worker->now - worker->online_before < ONLINE_MS * NS_PER_MS;
}

bool pace_is_hurried(const struct worker *worker)
{
    return worker->hurry_at != 0 && worker->now - worker->hurry_at < ONLINE_MS * NS_PER_MS;
}

/* What a brief batch may take; 0: no limit, for what batches take is not known, or not what cuts them. */
static double brief_ns(const struct worker *worker)
{
    struct cost_shape worthwhile = {BRIEF_TOKENS, (double)BRIEF_TOKENS * BRIEF_LENGTH, false};
    if (!cost_known(&worker->cost) || worker->options.window_fixed)
        return 0;
    double fixed = cost_predict_ns(&worker->cost, (struct cost_shape){0});
    return fmax(BRIEF_FIXED * fixed, cost_predict_ns(&worker->cost, worthwhile));
}

void pace_open(struct worker *worker)
{
    worker->cost = worker->options.cost;
    tune_begin(&worker->tune, worker->options.target_p99_ms);
    pace_second(worker);
}

void pace_computed(struct worker *worker, const struct batch *batch)
{
    struct cost_shape *mean = &worker->mean_row;
    if (batch->started_ns == 0 || batch->finished_ns < batch->started_ns || batch->status != STATUS_OK)
        return;
    struct cost_shape shape = cost_shape_of(&batch->engine);
    double rows = batch->engine.rows;
    shape.helped = batch->helped;
    if (mean->tokens == 0)
        *mean = (struct cost_shape){shape.tokens / rows, shape.squares / rows, false};
    worker_weigh(&mean->tokens, shape.tokens / rows);
    worker_weigh(&mean->squares, shape.squares / rows);
    if (batch->spare) /* that it took long says nothing of the engine */
        return;
    worker->stats.busy_ns += batch->finished_ns - batch->started_ns;
    cost_observe(&worker->cost, shape, (double)(batch->finished_ns - batch->started_ns));
    pace_second(worker);
}

/* Retries, and what another worker had before, say nothing of how long our batches may be. */
void pace_answered(struct worker *worker, const struct request *request)
{
    uint64_t now_ms = worker_redis_ms(worker);
    if (request->outcome == OUTCOME_DONE && request->attempt <= 1 && !request->suspect && now_ms > request->entry.ms)
        tune_answered(&worker->tune, now_ms - request->entry.ms, worker->now);
}

static double tuned_ns(const struct worker *worker)
{
    if (worker->tune.target_ns == 0) /* spares the look for the oldest */
        return 0;
    uint64_t oldest_ns = window_oldest_ns(&worker->window);
    return tune_batch_ns(&worker->tune, &worker->cost, worker->now > oldest_ns ? worker->now - oldest_ns : 0);
}

/* What a batch may take by max_batch_ms. All of it only where short batches would cost throughput: whoever is in a
 * hurry waits for the batches that are out, so they are no longer than they must be. 0: no limit. */
static double bound_ns(const struct worker *worker)
{
    enum { FIXED = 50, PART = 4 };
    double bound = (double)worker->options.max_batch_ms * (double)NS_PER_MS;
    double fixed = cost_predict_ns(&worker->cost, (struct cost_shape){0});
    return fmin(bound, fmax(bound / PART, FIXED * fixed));
}

static double most_ns(const struct worker *worker)
{
    double tuned = tuned_ns(worker);
    if (worker->options.max_batch_ms == 0 || !cost_known(&worker->cost))
        return tuned;
    double bound = bound_ns(worker);
    return tuned > 0 ? fmin(tuned, bound) : bound;
}

/* What waits now, as far as one batch may hold it. */
static struct cost_shape next_shape(const struct worker *worker, const struct window_limits *limits)
{
    double tokens = (double)worker->window.tokens, squares = (double)worker->window.squares;
    double part = tokens > limits->tokens ? limits->tokens / tokens : 1;
    return (struct cost_shape){tokens * part, squares * part, false};
}

void pace_limits(const struct worker *worker, struct window_limits *limits)
{
    enum { MARGIN_MS = 2 };
    limits->cost = &worker->cost;
    limits->most_ns = most_ns(worker);
    double brief = brief_ns(worker);
    if (window_has_low(&worker->window) && pace_is_online(worker))
        limits->low_ns = brief;
    limits->brief = brief > 0 && pace_is_hurried(worker) && window_has_others(&worker->window);
    if (limits->brief)
        limits->most_ns = limits->most_ns > 0 ? fmin(limits->most_ns, brief) : brief;
    if (limits->now_ms == 0)
        return;
    double takes_ns = cost_predict_ns(&worker->cost, next_shape(worker, limits));
    if (limits->most_ns > 0)
        takes_ns = fmin(takes_ns, limits->most_ns);
    limits->urgent_ms = limits->now_ms + (uint64_t)(takes_ns / (double)NS_PER_MS) + MARGIN_MS;
}

static double batch_ns(const struct worker *worker, struct cost_shape row, double rows)
{
    return cost_predict_ns(&worker->cost, (struct cost_shape){rows * row.tokens, rows * row.squares, false});
}

static double full_batch_rows(const struct worker *worker, struct cost_shape row, double most)
{
    double rows = fmin(worker->options.max_batch_rows, worker->budget.tokens / row.tokens);
    double fixed = batch_ns(worker, row, 0), each = batch_ns(worker, row, 1) - fixed;
    if (most > 0 && fixed + rows * each > most) {
        rows = (most - fixed) / each;
    }
    return fmax(1, rows);
}

double pace_rows_per_s(const struct worker *worker)
{
    const struct cost_shape row = worker->mean_row;
    if (row.tokens <= 0 || !cost_known(&worker->cost))
        return 0;
    double rows = full_batch_rows(worker, row, most_ns(worker));
    return rows / batch_ns(worker, row, rows) * (double)NS_PER_S * worker->options.engine_slots;
}

/* Without the target's limit, which changes all the time. Before any text has come, texts are thought to be short. */
void pace_second(struct worker *worker)
{
    enum { TEXT_TOKENS = 64 };
    const struct worker_options *options = &worker->options;
    double tokens = fmin(TEXT_TOKENS, options->rules.max_tokens);
    struct cost_shape row =
        worker->mean_row.tokens > 0 ? worker->mean_row : (struct cost_shape){tokens, tokens * tokens, false};
    double rows = fmin(options->max_batch_rows, options->max_batch_tokens / row.tokens), second = 0;
    if (cost_known(&worker->cost)) {
        rows = full_batch_rows(worker, row, bound_ns(worker));
        second = rows / batch_ns(worker, row, rows) * (double)NS_PER_S * options->engine_slots;
    }
    worker->second_tokens = fmax(second, fmax(1, rows) * options->batches_out) * row.tokens;
}
