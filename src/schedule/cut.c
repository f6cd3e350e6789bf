/* From text to vector: requests to the prep threads, their rows into the window, batches to the compute threads and
 * back. Decides when a batch begins, how long it may be, and where its rows go afterwards. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "schedule/worker_internal.h"

/* --- pace: the speed of batches, learnt from past ones, and its consequences: how long the next one may be, which rows
 * cannot wait for the one after it, and the speed that we publish --- */

/* Limits while there are urgent requests: a running batch cannot be stopped, so it should be short. Little is lost if
 * batches take ten times their fixed cost, or are large enough for a compute thread to be efficient. */
enum { ONLINE_MS = 10000, BRIEF_FIXED = 10, BRIEF_TOKENS = 256, BRIEF_LENGTH = 64 };

/* Returns whether a request is of class high, or expires so soon that a long batch before it could be too long. */
static bool hurries(const struct worker *worker, const struct request *request)
{
    uint64_t now_ms = worker_redis_ms(worker), expires_ms = request->lifetime.expires_at_ms;
    return request->identity.class == CLASS_HIGH || (expires_ms != 0 && now_ms != 0 && expires_ms < now_ms + ONLINE_MS);
}

/* A single request now and then is not traffic: a bulk job asks for one vector before it begins. */
bool pace_is_online(const struct worker *worker)
{
    return worker->online_before != 0 && worker->now - worker->online_before < ONLINE_MS * NS_PER_MS;
}

/* Returns whether an urgent request came recently: one of class high, or one that expires within seconds. */
static bool pace_is_hurried(const struct worker *worker)
{
    return worker->hurry_at != 0 && worker->now - worker->hurry_at < ONLINE_MS * NS_PER_MS;
}

/* The time a brief batch may take; 0: no limit, because times are unknown or the window is fixed. */
static double brief_ns(const struct worker *worker)
{
    struct cost_shape worthwhile = {BRIEF_TOKENS, (double)BRIEF_TOKENS * BRIEF_LENGTH, false};
    if (!cost_known(&worker->cost) || worker->options.window_fixed) { return 0; }
    double fixed = cost_predict_ns(&worker->cost, (struct cost_shape){0});
    return fmax(BRIEF_FIXED * fixed, cost_predict_ns(&worker->cost, worthwhile));
}

void pace_open(struct worker *worker)
{
    worker->cost = worker->options.cost;
    tune_begin(&worker->tune, worker->options.target_p99_ms);
    pace_second(worker);
}

/* Learns the engine's speed and the mean row from a batch that has come back, if it succeeded. */
static void pace_computed(struct worker *worker, const struct batch *batch)
{
    struct cost_shape *mean = &worker->mean_row;
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
    worker->stats.predicted_ns += (uint64_t)cost_predict_ns(&worker->cost, shape);
    cost_observe(&worker->cost, shape, (double)(batch->finished_ns - batch->started_ns));
    pace_second(worker);
}

static uint64_t between(uint64_t from, uint64_t to)
{
    return from != 0 && to > from ? to - from : 0;
}

static void pace_measure(struct worker *worker, const struct request *request, uint64_t now_ms)
{
    struct worker_histograms *histograms = &worker->histograms;
    enum request_class class = request->identity.class;
    uint64_t entry_ms = request->identity.entry.ms;
    uint64_t since_ms = request->retry.attempt > 1 ? request->identity.first_ms : entry_ms;
    histogram_add(&histograms->total[class], between(since_ms, now_ms) * NS_PER_MS);
    histogram_add(&histograms->queue[class], between(entry_ms, request->identity.seen_ms) * NS_PER_MS);
    histogram_add(&histograms->prepare[class], between(request->lifetime.received_ns, request->lifetime.prepared_ns));
    histogram_add(&histograms->window[class], between(request->lifetime.prepared_ns, request->lifetime.started_ns));
    histogram_add(&histograms->compute[class], between(request->lifetime.started_ns, request->lifetime.computed_ns));
}

/* Retries, and entries that another worker held, do not show how long our batches may be. */
void pace_answered(struct worker *worker, const struct request *request)
{
    uint64_t now_ms = worker_redis_ms(worker);
    if (request->lifetime.outcome == OUTCOME_DONE) { pace_measure(worker, request, now_ms); }
    if (request->lifetime.outcome == OUTCOME_DONE && request->retry.attempt <= 1 && !request->retry.suspect &&
        now_ms > request->identity.entry.ms) {
        tune_answered(&worker->tune, now_ms - request->identity.entry.ms, worker->now);
    }
}

static double tuned_ns(const struct worker *worker)
{
    if (worker->tune.target_ns == 0) { /* saves the search for the oldest row */
        return 0;
    }
    uint64_t oldest_ns = window_oldest_ns(&worker->window);
    return tune_batch_ns(&worker->tune, &worker->cost, worker->now > oldest_ns ? worker->now - oldest_ns : 0);
}

/* The time a batch may take by max_batch_ms: only a part of it, unless short batches would cost throughput, because
 * urgent requests wait for the batches that are out. 0: no limit. */
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
    if (worker->options.max_batch_ms == 0 || !cost_known(&worker->cost)) { return tuned; }
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

/* Adds the limits of time to those of size. `limits->tokens` and `limits->now_ms` are set already. */
static void pace_limits(const struct worker *worker, struct window_limits *limits)
{
    enum { MARGIN_MS = 2 };
    limits->cost = &worker->cost;
    limits->most_ns = most_ns(worker);
    double brief = brief_ns(worker);
    if (window_has_low(&worker->window) && pace_is_online(worker)) { limits->low_ns = brief; }
    limits->brief = brief > 0 && pace_is_hurried(worker) && window_has_others(&worker->window);
    if (limits->brief) { limits->most_ns = limits->most_ns > 0 ? fmin(limits->most_ns, brief) : brief; }
    if (limits->now_ms == 0) { return; }
    double takes_ns = cost_predict_ns(&worker->cost, next_shape(worker, limits));
    if (limits->most_ns > 0) { takes_ns = fmin(takes_ns, limits->most_ns); }
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
    if (most > 0 && fixed + rows * each > most) { rows = (most - fixed) / each; }
    return fmax(1, rows);
}

double pace_rows_per_s(const struct worker *worker)
{
    const struct cost_shape row = worker->mean_row;
    if (row.tokens <= 0 || !cost_known(&worker->cost)) { return 0; }
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
        worker->mean_row.tokens > 0 ? worker->mean_row : (struct cost_shape){tokens, tokens * tokens, false};
    double rows = fmin(options->max_batch_rows, options->max_batch_tokens / row.tokens), second = 0;
    if (cost_known(&worker->cost)) {
        rows = full_batch_rows(worker, row, bound_ns(worker));
        second = rows / batch_ns(worker, row, rows) * (double)NS_PER_S * options->engine_slots;
    }
    worker->second_tokens = fmax(second, fmax(1, rows) * options->batches_out) * row.tokens;
}

/* --- rows: where rows go when their batch is back. A request ends with its last row, or fails with its first bad one.
 *
 * Only the guilty row of a failed batch is blamed, so the batch is halved until that row has failed alone. If the first
 * half succeeds, the fault is in the second, which is halved at once without a try. So one bad row in n costs at most
 * 2·log2(n) more forward passes.
 *
 * Running out of memory is no row's fault while the batch has several: the budget halves and the rows wait again. A
 * lost device is never a row's fault. --- */

/* Called for each row that has come back: if it was the last one out, moves the request on. */
static void after_row(struct worker *worker, struct request *request)
{
    if (request->rows_out > 0) { return; }
    bool alone = worker->alone == request;
    request->lifetime.state = REQUEST_WAITING;
    if (request->retry.code != CODE_NONE) {
        settle_finish(worker, request);
    } else if (request->rows_left == 0) {
        request->lifetime.computed_ns = worker->now;
        if (alone) {
            worker->alone_stage = QUARANTINE_COMPUTED;
        } else {
            request_list_push(&worker->to_format, request);
        }
    } else if (alone) {
        worker->alone_stage = QUARANTINE_PREPARED;
    } else if (request->lifetime.given_up) {
        settle_release(worker, request);
    }
}

static void row_ended(struct worker *worker, struct row *row)
{
    row->duplicates = NULL;
    row->request->rows_out--;
    after_row(worker, row->request);
}

void rows_drop(struct worker *worker, struct request *request)
{
    for (uint32_t i = 0; i < request->row_count; i++) {
        if (request->rows[i].queue) { window_remove(&worker->window, &request->rows[i]); }
    }
}

void rows_go(struct worker *worker, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        for (struct row *row = batch->rows[i]; row != NULL; row = row->duplicates) {
            row->request->rows_out++;
            worker->stats.rows_shared++;
        }
        worker->stats.rows_shared--; /* the first one is not a duplicate */
    }
}

/* Puts a row and its duplicates back into the window, because no batch could be made. */
static void rows_uncut(struct worker *worker, struct row *row)
{
    for (struct row *duplicate = row->duplicates, *next; duplicate != NULL; duplicate = next) {
        next = duplicate->duplicates;
        window_put_back(&worker->window, duplicate);
    }
    window_put_back(&worker->window, row);
}

/* --- the batch was computed --- */

static void row_computed(struct worker *worker, struct row *row, const struct batch *batch, const float *vector)
{
    struct request *request = row->request;
    memcpy(row->output, vector, request->dim * sizeof(float));
    if (request->lifetime.started_ns == batch->submitted_ns && batch->started_ns != 0) {
        request->lifetime.started_ns = batch->started_ns; /* the compute thread's time is more exact */
    }
    request->rows_left--;
    row_ended(worker, row);
}

static void rows_computed(struct worker *worker, const struct batch *batch)
{
    const float *vector = batch->engine.output;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        uint32_t dim = batch->rows[i]->request->dim;
        for (struct row *row = batch->rows[i], *duplicate; row != NULL; row = duplicate) {
            duplicate = row->duplicates;
            row_computed(worker, row, batch, vector);
        }
        vector += dim;
    }
    budget_good(&worker->budget);
}

/* --- rows go back to where they waited, without blame --- */

static void row_back(struct worker *worker, struct row *row)
{
    struct request *request = row->request;
    if (request->retry.code == CODE_NONE && worker->alone == request) {
        row->next = worker->alone_rows;
        worker->alone_rows = row;
    } else if (request->retry.code == CODE_NONE && worker_takes_more(worker) && !request->lifetime.given_up) {
        window_put_back(&worker->window, row);
    } else {
        request->lifetime.given_up = true;
    }
    row_ended(worker, row);
}

static int younger_first(const void *left, const void *right)
{
    const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;
    if (a->request == b->request) { return a > b ? -1 : 1; }
    return entry_id_compare(b->request->identity.entry, a->request->identity.entry);
}

/* Takes back a batch that does not run, without blame: its rows go back to where they waited, in order of age;
 * duplicates wait on their own again, after them. Owns: the caller ends the batch. NULL is allowed. */
static void rows_back(struct worker *worker, struct batch *batch)
{
    if (!batch) { return; }
    uint32_t count = batch->engine.rows;
    qsort(batch->rows, count, sizeof(struct row *), younger_first);
    for (uint32_t i = 0; i < count; i++) {
        for (struct row *row = batch->rows[i]->duplicates, *duplicate; row != NULL; row = duplicate) {
            duplicate = row->duplicates;
            row_back(worker, row);
        }
    }
    for (uint32_t i = 0; i < count; i++) { row_back(worker, batch->rows[i]); }
}

/* --- in halves --- */

/* Returns the one of a row and its duplicates that is computed: the first whose request can still succeed. Those before
 * it end. */
static struct row *first_wanted(struct worker *worker, struct row *row)
{
    while (row && row->request->retry.code != CODE_NONE) {
        struct row *duplicate = row->duplicates;
        row_ended(worker, row);
        row = duplicate;
    }
    return row;
}

static bool try_again(struct worker *worker, struct row **rows, uint32_t count)
{
    uint32_t half = count > 1 ? count / 2 : 1, dim = rows[0]->request->dim;
    enum batch_layout layout = worker->options.layout;
    struct batch *first = batch_build(rows, half, layout, dim);
    if (first && count > 1) { first->other = batch_build(rows + half, count - half, layout, dim); }
    if (!first || (count > 1 && !first->other)) {
        batch_free(first);
        worker->starved = true;
        return false;
    }
    batch_list_push_first(&worker->retries, first);
    return true;
}

/* Halves a batch that holds a bad row. Rows of requests that have failed meanwhile need no try. */
static void halve(struct worker *worker, struct batch *batch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        batch->rows[count] = first_wanted(worker, batch->rows[i]);
        count += batch->rows[count] != NULL;
    }
    batch->engine.rows = count;
    if (count == 0) { return; }
    worker->stats.bisected++;
    if (!try_again(worker, batch->rows, count)) { rows_back(worker, batch); }
}

/* The duplicates of a failed row have not failed, so they are tried on their own. */
static void duplicates_again(struct worker *worker, struct row *duplicates)
{
    struct row *first = first_wanted(worker, duplicates);
    if (!first) { return; }
    if (worker_takes_more(worker) && try_again(worker, &first, 1)) { return; }
    for (struct row *row = first, *duplicate; row != NULL; row = duplicate) {
        duplicate = row->duplicates;
        row_back(worker, row);
    }
}

static void row_guilty(struct worker *worker, const struct batch *batch)
{
    struct row *row = batch->rows[0], *duplicates = row->duplicates;
    struct request *request = row->request;
    if (request->retry.code == CODE_NONE) {
        request_fail_row(request, (uint32_t)(row - request->rows), policy_code(batch->status), "%.200s",
                         batch->err.message[0] != '\0' ? batch->err.message : status_name(batch->status));
        rows_drop(worker, request);
    }
    row_ended(worker, row);
    duplicates_again(worker, duplicates);
}

static void batch_failed(struct worker *worker, struct batch *batch)
{
    if (batch->status == STATUS_DEVICE_LOST) { /* give everything back and let a new process try */
        enum { LEAVE_MS = 1000 };
        settle_drain(worker, LEAVE_MS, STATUS_DEVICE_LOST);
        rows_back(worker, batch);
    } else if (batch->engine.rows == 1) {
        row_guilty(worker, batch);
    } else if (!worker_takes_more(worker)) {
        rows_back(worker, batch);
    } else if (batch->status == STATUS_NO_MEMORY) {
        worker->stats.out_of_memory++;
        while (worker->budget.tokens > 1 && worker->budget.tokens >= batch->engine.extent) {
            budget_halve(&worker->budget);
        }
        rows_back(worker, batch);
    } else {
        halve(worker, batch);
    }
}

/* Sends or halves the other half: untried if this one failed, else known to hold the bad row. */
static void other_half(struct worker *worker, struct batch *other, bool known)
{
    if (!worker_takes_more(worker)) {
        rows_back(worker, other);
    } else if (known && other->engine.rows > 1) {
        halve(worker, other);
    } else {
        batch_list_push_first(&worker->retries, other);
        return;
    }
    batch_free(other);
}

/* Hands out the vectors of a batch that has run, or searches for the guilty row by halves. Owns: ends the batch. */
static void rows_returned(struct worker *worker, struct batch *batch)
{
    struct batch *other = batch->other;
    bool good =
        batch->status == STATUS_OK || batch->status == STATUS_NON_FINITE; /* formatting finds which are not finite */
    batch->other = NULL;
    if (good) { rows_computed(worker, batch); }
    if (other) { other_half(worker, other, good); }
    if (!good) { /* its own halves go before the other half */
        batch_failed(worker, batch);
    }
    batch_free(batch);
}

/* Returns whether all requests of a batch have failed meanwhile, so that it need not run. Owns: then ends the batch. */
static bool rows_unwanted(struct worker *worker, struct batch *batch)
{
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->duplicates) {
            if (row->request->retry.code == CODE_NONE) { return false; }
        }
    }
    for (uint32_t i = 0; i < batch->engine.rows; i++) { (void)first_wanted(worker, batch->rows[i]); }
    if (batch->other) { other_half(worker, batch->other, false); }
    batch->other = NULL;
    batch_free(batch);
    return true;
}

/* --- from text to vector --- */

/* From this size on a batch on the CPU is efficient, so idle compute threads share the waiting rows. */
enum { SHARE_TOKENS = 256 };

bool run_send(struct worker *worker, enum action_kind kind, struct request_list *from, uint32_t most)
{
    struct action *action = worker_act(worker, kind);
    if (!action) { return false; }
    while (action->requests.count < most && from->first) {
        struct request *request = request_list_pop(from);
        request->lifetime.state = kind == ACTION_PREPARE ? REQUEST_PREPARING : REQUEST_FORMATTING;
        request_list_push(&action->requests, request);
        worker->at_prep++;
        worker->at_prep_low += request->identity.class == CLASS_LOW;
    }
    return true;
}

void run_submit(struct worker *worker, struct action *action, struct batch *batch)
{
    batch->submitted_ns = batch->watched_ns = worker->now;
    batch->number = ++worker->stats.batches;
    batch->low = false;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        for (struct row *row = batch->rows[i]; row != NULL; row = row->duplicates) {
            batch->low = batch->low || row->request->identity.class == CLASS_LOW;
            row->request->lifetime.state = REQUEST_COMPUTING;
            row->request->lifetime.batch = batch->number;
            if (row->request->lifetime.started_ns == 0) { row->request->lifetime.started_ns = worker->now; }
        }
    }
    batch_list_push(&worker->running, batch);
    action->batch = batch;
    histogram_add(&worker->histograms.batch_rows, batch->engine.rows);
    histogram_add(&worker->histograms.batch_tokens, batch->tokens);
    worker->stats.rows += batch->engine.rows;
    worker->stats.tokens += batch->tokens;
    worker->stats.computed_tokens += batch->engine.extent;
    worker->stats.rectangle_tokens += (uint64_t)batch->engine.rows * batch->engine.length[0]; /* longest first */
}

/* Moves a request's rows to the window, unless it is the suspect that runs alone. */
static void to_window(struct worker *worker, struct request *request)
{
    if (worker->alone == request) {
        quarantine_prepared(worker);
        return;
    }
    if (!worker_takes_more(worker)) {
        settle_release(worker, request);
        return;
    }
    request->lifetime.state = REQUEST_WAITING;
    for (uint32_t i = 0; i < request->row_count; i++) { window_push(&worker->window, &request->rows[i], worker->now); }
}

void run_prepared(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        worker->at_prep--;
        worker->at_prep_low -= request->identity.class == CLASS_LOW;
        request->lifetime.prepared_ns = worker->now;
        if (request->retry.code != CODE_NONE) {
            settle_finish(worker, request);
            continue;
        }
        uint32_t tokens = 0;
        for (uint32_t i = 0; i < request->row_count; i++) { tokens += request->rows[i].tokens; }
        worker->stats.input_tokens += tokens;
        worker_weigh(&worker->classes[request->identity.class].mean_tokens, tokens);
        held_weigh(&worker->held, request, tokens);
        to_window(worker, request);
    }
}

void run_formatted(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        worker->at_prep--;
        worker->at_prep_low -= request->identity.class == CLASS_LOW;
        settle_finish(worker, request);
    }
}

void run_batch(struct worker *worker, const struct event *event)
{
    batch_list_remove(&worker->running, event->batch);
    pace_computed(worker, event->batch);
    rows_returned(worker, event->batch);
}

/* If no device is left, the worker only has to end, but it still divides by these. */
void run_device_lost(struct worker *worker, const struct event *event)
{
    struct worker_options *options = &worker->options;
    options->engine_slots = event->left.engine_slots > 0 ? event->left.engine_slots : 1;
    options->batches_out = event->left.batches_out > 0 ? event->left.batches_out : 1;
    worker->stats.devices_lost++;
    pace_second(worker);
}

/* Counts running batches, except those in the background, which delay no others. */
static uint32_t count_running(const struct worker *worker)
{
    uint32_t count = worker->running.count;
    for (const struct batch *batch = worker->running.first; batch != NULL; batch = batch->next) {
        count -= batch->background;
    }
    return count;
}

/* Counts running batches of class low: in the background, or in a slot. */
static uint32_t count_low(const struct worker *worker, bool background)
{
    uint32_t count = 0;
    for (const struct batch *batch = worker->running.first; batch != NULL; batch = batch->next) {
        count += batch->low && batch->background == background;
    }
    return count;
}

/* Returns whether the background gets almost no time. */
static bool background_is_slow(const struct worker *worker)
{
    enum { SLOW_MS = 50 }; /* a short batch takes 1 or 2 ms if it has a core */
    for (const struct batch *batch = worker->running.first; batch != NULL; batch = batch->next) {
        if (batch->background && worker->now - batch->submitted_ns > SLOW_MS * NS_PER_MS) { return true; }
    }
    return false;
}

/* With several slots, bulk work leaves one to online requests, so they rarely wait, and joins their batches only when
 * it is its turn. It needs no slots while the background serves it; if the background gets no time, it still has its
 * turn. */
static bool low_may_go(const struct worker *worker)
{
    uint32_t slots = worker->options.engine_slots,
             background = background_is_slow(worker) ? 0 : worker->options.background_slots;
    if (slots == 1) { return background == 0; }
    return count_low(worker, false) + background + 1 < slots &&
           (!window_has_online(&worker->window) || window_low_is_next(&worker->window));
}

/* Returns whether enough rows wait to cut a batch ahead. A device that keeps several batches in flight gets a large one
 * only from a backlog; a part of that is enough to keep it busy, and if the rest were awaited it could run dry. */
static bool enough_ahead(const struct worker *worker, const struct window_limits *limits)
{
    enum { PART = 4 };
    const struct worker_options *options = &worker->options;
    struct window_limits enough = *limits;
    if (options->batches_out > 2 * options->engine_slots && !options->window_fixed) {
        enough.tokens /= PART;
        enough.rows /= PART;
    }
    return window_full(&worker->window, &enough);
}

/* Returns whether to cut a batch now. Some are cut ahead so that no device waits for this thread, but only large ones:
 * a smaller one would wait just as long without collecting more rows. */
static bool cut_now(const struct worker *worker, const struct window_limits *limits)
{
    const struct worker_options *options = &worker->options;
    uint32_t running = count_running(worker);
    if (worker->window.rows == 0 || running >= options->batches_out) { return false; }
    if (limits->low_ns > 0) {
        bool anyone = window_has_online(&worker->window) || limits->only == WINDOW_ALL;
        return anyone && running < options->engine_slots; /* an online request may come at any time */
    }
    if (enough_ahead(worker, limits)) { return true; }
    if (options->window_fixed) {
        return worker->now >= window_oldest_ns(&worker->window) + options->window_ms * NS_PER_MS;
    }
    return running < options->engine_slots;
}

/* Divides the waiting rows among idle compute threads, in parts that are still efficient. */
static void share(const struct worker *worker, struct window_limits *limits)
{
    uint32_t slots = worker->options.engine_slots, busy = count_running(worker);
    uint32_t idle = busy < slots ? slots - busy : 1;
    uint64_t part = (worker->window.tokens + idle - 1) / idle;
    part = part < SHARE_TOKENS ? SHARE_TOKENS : part;
    if (idle > 1 && part < limits->tokens) { limits->tokens = (uint32_t)part; }
}

/* A batch with class high in it goes before those that were cut earlier and have not begun. Only one such batch is out
 * at a time, so the others get their turn after it. */
static bool goes_first(const struct worker *worker, const struct batch *batch)
{
    bool high = false;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        high = high || batch->rows[i]->request->identity.class == CLASS_HIGH;
    }
    for (const struct batch *other = worker->running.first; other != NULL; other = other->next) {
        high = high && !other->first;
    }
    return high;
}

static bool cut_batch(struct worker *worker, struct window_limits limits)
{
    struct row *rows[WINDOW_BATCH_ROWS];
    struct action *action = worker_act(worker, ACTION_SUBMIT);
    if (!action) { return false; }
    if (limits.only != WINDOW_LOW) { share(worker, &limits); }
    uint32_t count = window_take(&worker->window, &limits, rows);
    struct batch *batch = count == 0 ? NULL : batch_build(rows, count, limits.layout, rows[0]->request->dim);
    watch_expired(worker);
    if (!batch) {
        while (count > 0) { rows_uncut(worker, rows[--count]); }
        worker->actions->count--;
        worker->starved |= worker->window.rows > 0;
        return false;
    }
    batch->background = limits.only == WINDOW_LOW;
    batch->first = limits.brief && goes_first(worker, batch);
    rows_go(worker, batch);
    run_submit(worker, action, batch);
    return true;
}

static void advance_retries(struct worker *worker)
{
    while (worker->retries.first && count_running(worker) < worker->options.batches_out) {
        struct batch *batch = batch_list_pop(&worker->retries);
        if (rows_unwanted(worker, batch)) { continue; }
        struct action *action = worker_act(worker, ACTION_SUBMIT);
        if (!action) {
            batch_list_push_first(&worker->retries, batch);
            return;
        }
        run_submit(worker, action, batch);
    }
}

struct window_limits run_limits(const struct worker *worker)
{
    struct window_limits limits = {.layout = worker->options.layout,
                                   .tokens = worker->budget.tokens,
                                   .rows = worker->options.max_batch_rows,
                                   .now_ms = worker_redis_ms(worker)};
    pace_limits(worker, &limits);
    return limits;
}

static void advance_window(struct worker *worker)
{
    struct window_limits limits = run_limits(worker);
    do {
        limits.only = limits.low_ns > 0 && !low_may_go(worker) ? WINDOW_ONLINE : WINDOW_ALL;
    } while (cut_now(worker, &limits) && cut_batch(worker, limits));
    limits.only = WINDOW_LOW; /* in the background, beside online requests */
    while (limits.low_ns > 0 && count_low(worker, true) < worker->options.background_slots &&
           window_has_low(&worker->window)) {
        if (!cut_batch(worker, limits)) { return; }
    }
}

/* The number of requests of a class that may go to the prep threads in one list; requests there cannot be overtaken. */
static uint32_t prepare_most(const struct worker *worker, enum request_class class)
{
    if (class != CLASS_HIGH && worker->at_prep >= (pace_is_hurried(worker) ? PREP_BRIEF : PREP_MOST)) { return 0; }
    if (class != CLASS_LOW || !pace_is_online(worker)) { return LIST_MOST; }
    return worker->at_prep_low < PREP_LOW ? 1 : 0;
}

/* Prepares the highest class first. The others wait here, not in the prep threads' queue, where a later request of a
 * higher class could not overtake them. */
static void advance_prepare(struct worker *worker)
{
    uint64_t most_bytes = read_credit_bytes(worker);
    for (int c = 0; c < CLASS_COUNT; c++) {
        struct request_list *list = &worker->to_prepare[c];
        for (uint32_t most; list->first != NULL && (most = prepare_most(worker, (enum request_class)c)) > 0;) {
            uint32_t count = held_begin(&worker->held, list, tight_begins(worker, list, most), most_bytes);
            if (count == 0) { break; }
            struct request *request = list->first;
            for (uint32_t i = 0; i < count; i++, request = request->next) { tight_begun(worker, request); }
            if (!run_send(worker, ACTION_PREPARE, list, count)) { return; }
        }
    }
}

void run_accept(struct worker *worker, struct request *request)
{
    if (hurries(worker, request)) { worker->hurry_at = worker->now; }
    if (request->identity.class != CLASS_LOW) {
        worker->online_before = worker->online_at;
        worker->online_at = worker->now;
    }
    request_list_push(&worker->to_prepare[request->identity.class], request);
}

/* Takes back all requests that have not started. Requests with rows out follow when the last row is back. */
void run_unstarted(struct worker *worker)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        request_list_join(&worker->to_release, &worker->to_prepare[c]);
        request_list_join(&worker->to_release, &worker->suspects[c]);
    }
    request_list_join(&worker->to_release, &worker->quarantine);
    for (struct row *row; (row = window_pop(&worker->window)) != NULL;) {
        rows_drop(worker, row->request);
        row->request->lifetime.given_up = true;
        if (row->request->rows_out == 0) { settle_release(worker, row->request); }
    }
    for (struct batch *batch; (batch = batch_list_pop(&worker->retries)) != NULL;) {
        rows_back(worker, batch->other);
        rows_back(worker, batch);
        batch_free(batch);
    }
}

void run_advance(struct worker *worker)
{
    if (watch_ends(worker)) { return; }
    while (worker->to_format.first && run_send(worker, ACTION_FORMAT, &worker->to_format, LIST_MOST))
        ;
    advance_retries(worker);
    watch_advance(worker);
    if (quarantine_advance(worker)) { return; }
    advance_window(worker);
    advance_prepare(worker);
}
