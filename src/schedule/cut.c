/* Cuts batches: when a batch begins, and which rows of the window it may take. Holds the batches that are out. */
#include "schedule/worker/cut.h"

#include "base/clock.h"
#include "schedule/worker_internal.h"

/* From this size on a batch on the CPU is efficient, so idle compute threads share the waiting rows. */
enum { PART_TOKENS = 256 };

void cut_submit(struct worker *worker, struct action *action, struct batch *batch)
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
    const struct request *first = batch->rows[0]->request;
    if (first->task == TASK_GENERATE && first->lifetime.expires_at_ms != 0 && worker_redis_ms(worker) != 0) {
        batch->ends_ns = worker_after_ms(worker, worker_ms_until(worker, first->lifetime.expires_at_ms));
    }
    batch_list_push(&worker->cut.running, batch);
    action->batch = batch;
    histogram_add(&worker->histograms.batch_rows, batch->engine.rows);
    histogram_add(&worker->histograms.batch_tokens, batch->tokens);
    worker->stats.rows += batch->engine.rows;
    worker->stats.tokens += batch->tokens;
    worker->stats.computed_tokens += batch->engine.extent;
    worker->stats.rectangle_tokens += (uint64_t)batch->engine.rows * batch->engine.length[0]; /* longest first */
}

void cut_returned(struct worker *worker, const struct event *event)
{
    batch_list_remove(&worker->cut.running, event->batch);
    pace_computed(worker, event->batch);
    rows_returned(worker, event->batch);
}

/* Counts running batches, except those in the background, which delay no others. */
static uint32_t count_running(const struct worker *worker)
{
    uint32_t count = worker->cut.running.count;
    for (const struct batch *batch = worker->cut.running.first; batch != NULL; batch = batch->next) {
        count -= batch->background;
    }
    return count;
}

bool cut_has_room(const struct worker *worker)
{
    return count_running(worker) < worker->options.batches_out;
}

/* Counts running batches of class low: in the background, or in a slot. */
static uint32_t count_low(const struct worker *worker, bool background)
{
    uint32_t count = 0;
    for (const struct batch *batch = worker->cut.running.first; batch != NULL; batch = batch->next) {
        count += batch->low && batch->background == background;
    }
    return count;
}

/* Returns whether the background gets almost no time. */
static bool background_is_slow(const struct worker *worker)
{
    enum { SLOW_MS = 50 }; /* a short batch takes 1 or 2 ms if it has a core */
    for (const struct batch *batch = worker->cut.running.first; batch != NULL; batch = batch->next) {
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
    struct window_limits enough = *limits;
    if (worker_is_deep(worker) && !worker->options.window_fixed) {
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
static void divide_rows(const struct worker *worker, struct window_limits *limits)
{
    uint32_t slots = worker->options.engine_slots, busy = count_running(worker);
    uint32_t idle = busy < slots ? slots - busy : 1;
    uint64_t part = (worker->window.tokens + idle - 1) / idle;
    part = part < PART_TOKENS ? PART_TOKENS : part;
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
    for (const struct batch *other = worker->cut.running.first; other != NULL; other = other->next) {
        high = high && !other->first;
    }
    return high;
}

static bool cut_batch(struct worker *worker, struct window_limits limits)
{
    struct row *rows[WINDOW_BATCH_ROWS];
    struct action *action = worker_act(worker, ACTION_SUBMIT);
    if (!action) { return false; }
    if (limits.only != WINDOW_LOW) { divide_rows(worker, &limits); }
    uint32_t count = window_take(&worker->window, &limits, rows);
    struct batch *batch = count == 0 ? NULL : batch_build(rows, count, limits.layout, rows[0]->request->dim);
    watch_expired(worker);
    if (!batch) {
        while (count > 0) { rows_uncut(worker, rows[--count]); }
        worker_take_back(worker);
        if (worker->window.rows > 0) { worker_starve(worker); }
        return false;
    }
    batch->background = limits.only == WINDOW_LOW;
    batch->first = limits.brief && goes_first(worker, batch);
    rows_go(worker, batch);
    cut_submit(worker, action, batch);
    return true;
}

struct window_limits cut_limits(const struct worker *worker)
{
    struct window_limits limits = {.layout = worker->options.layout,
                                   .tokens = worker->pace.budget.tokens,
                                   .rows = worker->options.max_batch_rows,
                                   .now_ms = worker_redis_ms(worker)};
    pace_limits(worker, &limits);
    return limits;
}

void cut_advance(struct worker *worker)
{
    struct window_limits limits = cut_limits(worker);
    do {
        limits.only = limits.low_ns > 0 && !low_may_go(worker) ? WINDOW_ONLINE : WINDOW_ALL;
    } while (cut_now(worker, &limits) && cut_batch(worker, limits));
    limits.only = WINDOW_LOW; /* in the background, beside online requests */
    while (limits.low_ns > 0 && count_low(worker, true) < worker->options.background_slots &&
           window_has_low(&worker->window)) {
        if (!cut_batch(worker, limits)) { return; }
    }
}
