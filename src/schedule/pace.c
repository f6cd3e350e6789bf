/* The speed of batches, learnt from past ones, and its consequences: how long the next one may be, which rows cannot
 * wait for the one after it, and the speed that we publish. */
#include "schedule/worker/pace.h"

#include <math.h>

#include "base/clock.h"
#include "schedule/worker_internal.h"

/* Limits while there are urgent requests: a running batch cannot be stopped, so it should be short. Little is lost if
 * batches take ten times their fixed cost, or are large enough for a compute thread to be efficient. */
enum { ONLINE_MS = 10000, BRIEF_FIXED = 10, BRIEF_TOKENS = 256, BRIEF_LENGTH = 64 };

/* A single request now and then is not traffic: a bulk job asks for one vector before it begins. */
bool pace_is_online(const struct worker *worker)
{
    return worker->pace.online_before != 0 && worker->now - worker->pace.online_before < ONLINE_MS * NS_PER_MS;
}

bool pace_is_hurried(const struct worker *worker)
{
    return worker->pace.hurry_at != 0 && worker->now - worker->pace.hurry_at < ONLINE_MS * NS_PER_MS;
}

void pace_accepted(struct worker *worker, const struct request *request)
{
    uint64_t now_ms = worker_redis_ms(worker), expires_ms = request->lifetime.expires_at_ms;
    bool soon = expires_ms != 0 && now_ms != 0 && expires_ms < now_ms + ONLINE_MS; /* a long batch may be too long */
    if (request->identity.class == CLASS_HIGH || soon) { worker->pace.hurry_at = worker->now; }
    if (request->identity.class != CLASS_LOW) {
        worker->pace.online_before = worker->pace.online_at;
        worker->pace.online_at = worker->now;
    }
}

/* The time a brief batch may take; 0: no limit, because times are unknown or the window is fixed. */
static double brief_ns(const struct worker *worker)
{
    struct cost_shape worthwhile = {BRIEF_TOKENS, (double)BRIEF_TOKENS * BRIEF_LENGTH, false};
    if (!cost_known(&worker->pace.cost) || worker->options.window_fixed) { return 0; }
    double fixed = cost_predict_ns(&worker->pace.cost, (struct cost_shape){0});
    return fmax(BRIEF_FIXED * fixed, cost_predict_ns(&worker->pace.cost, worthwhile));
}

void pace_open(struct worker *worker)
{
    worker->pace.cost = worker->options.cost;
    tune_begin(&worker->pace.tune, worker->options.target_p99_ms);
    worker->pace.budget =
        (struct budget){.full = worker->options.max_batch_tokens, .tokens = worker->options.max_batch_tokens};
    pace_second(worker);
}

void pace_computed(struct worker *worker, const struct batch *batch)
{
    struct cost_shape *mean = &worker->pace.mean_row;
    if (batch->started_ns == 0 || batch->finished_ns < batch->started_ns || batch->status != STATUS_OK) { return; }
    struct cost_shape shape = cost_shape_of(&batch->engine);
    double rows = batch->engine.rows;
    shape.helped = batch->helped;
    if (mean->tokens == 0) { *mean = (struct cost_shape){shape.tokens / rows, shape.squares / rows, false}; }
    worker_weigh(&mean->tokens, shape.tokens / rows);
    worker_weigh(&mean->squares, shape.squares / rows);
    if (batch->background) { /* a background batch does not show the engine's speed */
        return;
    }
    worker->stats.busy_ns += batch->finished_ns - batch->started_ns;
    if (batch->rows[0]->request->task == TASK_GENERATE) { /* it lasts as long as its text, beside others */
        return;
    }
    worker->stats.predicted_ns += (uint64_t)cost_predict_ns(&worker->pace.cost, shape);
    cost_observe(&worker->pace.cost, shape, (double)(batch->finished_ns - batch->started_ns));
    pace_second(worker);
}

void pace_memory_sufficed(struct worker *worker)
{
    budget_good(&worker->pace.budget);
}

void pace_memory_lacked(struct worker *worker, uint32_t extent)
{
    worker->stats.batches_out_of_memory++;
    while (worker->pace.budget.tokens > 1 && worker->pace.budget.tokens >= extent) {
        budget_halve(&worker->pace.budget);
    }
}

static uint64_t span_ns(uint64_t from, uint64_t to)
{
    return from != 0 && to > from ? to - from : 0;
}

static void measure_stages(struct worker *worker, const struct request *request, uint64_t now_ms)
{
    struct worker_histograms *histograms = &worker->histograms;
    enum request_class class = request->identity.class;
    uint64_t entry_ms = request->identity.entry.ms;
    uint64_t since_ms = request->retry.attempt > 1 ? request->identity.first_ms : entry_ms;
    histogram_add(&histograms->total[class], span_ns(since_ms, now_ms) * NS_PER_MS);
    histogram_add(&histograms->queue[class], span_ns(entry_ms, request->identity.seen_ms) * NS_PER_MS);
    histogram_add(&histograms->prepare[class], span_ns(request->lifetime.received_ns, request->lifetime.prepared_ns));
    histogram_add(&histograms->window[class], span_ns(request->lifetime.prepared_ns, request->lifetime.started_ns));
    histogram_add(&histograms->compute[class], span_ns(request->lifetime.started_ns, request->lifetime.computed_ns));
}

/* Retries, and entries that another worker held, do not show how long our batches may be. */
void pace_answered(struct worker *worker, const struct request *request)
{
    uint64_t now_ms = worker_redis_ms(worker);
    if (request->lifetime.outcome == OUTCOME_DONE) { measure_stages(worker, request, now_ms); }
    if (request->lifetime.outcome == OUTCOME_DONE && request->retry.attempt <= 1 && !request->retry.suspect &&
        now_ms > request->identity.entry.ms) {
        tune_answered(&worker->pace.tune, now_ms - request->identity.entry.ms, worker->now);
    }
}

/* The time a batch may take by max_batch_ms: only a part of it, unless short batches would cost throughput, because
 * urgent requests wait for the batches that are out. 0: no limit. */
static double bound_ns(const struct worker *worker)
{
    enum { FIXED = 50, PART = 4 };
    double bound = (double)worker->options.max_batch_ms * (double)NS_PER_MS;
    double fixed = cost_predict_ns(&worker->pace.cost, (struct cost_shape){0});
    return fmin(bound, fmax(bound / PART, FIXED * fixed));
}

static double most_ns(const struct worker *worker)
{
    double tuned = 0;
    if (worker->pace.tune.target_ns != 0) { /* else the search for the oldest row is saved */
        uint64_t oldest_ns = window_oldest_ns(&worker->window);
        tuned = tune_batch_ns(&worker->pace.tune, &worker->pace.cost,
                              worker->now > oldest_ns ? worker->now - oldest_ns : 0);
    }
    if (worker->options.max_batch_ms == 0 || !cost_known(&worker->pace.cost)) { return tuned; }
    double bound = bound_ns(worker);
    return tuned > 0 ? fmin(tuned, bound) : bound;
}

/* The shape of the waiting rows, up to one batch. */
static struct cost_shape next_shape(const struct worker *worker, const struct window_limits *limits)
{
    double tokens = (double)worker->window.tokens, squares = (double)worker->window.squares;
    double part = tokens > limits->tokens ? limits->tokens / tokens : 1;
    return (struct cost_shape){tokens * part, squares * part, false};
}

void pace_limits(const struct worker *worker, struct window_limits *limits)
{
    enum { MARGIN_MS = 2 };
    limits->cost = &worker->pace.cost;
    limits->most_ns = most_ns(worker);
    double brief = brief_ns(worker);
    if (window_has_low(&worker->window) && pace_is_online(worker)) { limits->low_ns = brief; }
    limits->brief = brief > 0 && pace_is_hurried(worker) && window_has_others(&worker->window);
    if (limits->brief) { limits->most_ns = limits->most_ns > 0 ? fmin(limits->most_ns, brief) : brief; }
    if (limits->now_ms == 0) { return; }
    double takes_ns = cost_predict_ns(&worker->pace.cost, next_shape(worker, limits));
    if (limits->most_ns > 0) { takes_ns = fmin(takes_ns, limits->most_ns); }
    limits->urgent_ms = limits->now_ms + (uint64_t)(takes_ns / (double)NS_PER_MS) + MARGIN_MS;
}

static double batch_ns(const struct worker *worker, struct cost_shape row, double rows)
{
    return cost_predict_ns(&worker->pace.cost, (struct cost_shape){rows * row.tokens, rows * row.squares, false});
}

static double full_batch_rows(const struct worker *worker, struct cost_shape row, double most)
{
    double rows = fmin(worker->options.max_batch_rows, worker->pace.budget.tokens / row.tokens);
    double fixed = batch_ns(worker, row, 0), each = batch_ns(worker, row, 1) - fixed;
    if (most > 0 && fixed + rows * each > most) { rows = (most - fixed) / each; }
    return fmax(1, rows);
}

double pace_rows_per_s(const struct worker *worker)
{
    const struct cost_shape row = worker->pace.mean_row;
    if (row.tokens <= 0 || !cost_known(&worker->pace.cost)) { return 0; }
    double rows = full_batch_rows(worker, row, most_ns(worker));
    return rows / batch_ns(worker, row, rows) * (double)NS_PER_S * worker->options.engine_slots;
}

/* Ignores the target's limit, which changes all the time. Before any text has come, assumes short ones. */
void pace_second(struct worker *worker)
{
    enum { TEXT_TOKENS = 64 };
    const struct worker_options *options = &worker->options;
    double tokens = fmin(TEXT_TOKENS, options->rules.max_tokens);
    struct cost_shape row =
        worker->pace.mean_row.tokens > 0 ? worker->pace.mean_row : (struct cost_shape){tokens, tokens * tokens, false};
    double rows = fmin(options->max_batch_rows, options->max_batch_tokens / row.tokens), second = 0;
    if (cost_known(&worker->pace.cost)) {
        rows = full_batch_rows(worker, row, bound_ns(worker));
        second = rows / batch_ns(worker, row, rows) * (double)NS_PER_S * options->engine_slots;
    }
    worker->pace.second_tokens = fmax(second, fmax(1, rows) * options->batches_out) * row.tokens;
}

void pace_retune(struct worker *worker, const struct worker_options *old)
{
    const struct worker_options *options = &worker->options;
    if (options->target_p99_ms != old->target_p99_ms) { tune_begin(&worker->pace.tune, options->target_p99_ms); }
    if (options->max_batch_tokens != old->max_batch_tokens) {
        worker->pace.budget = (struct budget){.full = options->max_batch_tokens, .tokens = options->max_batch_tokens};
    }
    pace_second(worker);
}
