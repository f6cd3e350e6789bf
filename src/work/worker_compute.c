/* From text to vector: lists to the prep threads, rows into the window, batches to the compute threads and back. What
 * a batch that is back means for its rows is in worker_rows.c. */
#include "base/clock.h"
#include "work/worker_stages.h"

/* A batch on the CPU is efficient from here on, so idle compute threads rather share what waits. */
enum { SHARE_TOKENS = 256 };

void compute_retry(struct worker *worker, struct batch *batch)
{
    batch_list_push_first(&worker->retries, batch);
}

bool compute_send(struct worker *worker, enum action_kind kind, struct request_list *from, uint32_t most)
{
    struct action *action = worker_act(worker, kind);
    if (action == NULL)
        return false;
    while (action->requests.count < most && from->first != NULL) {
        struct request *request = request_list_pop(from);
        request->state = kind == ACTION_PREPARE ? REQUEST_PREPARING : REQUEST_FORMATTING;
        request_list_push(&action->requests, request);
        worker->away++;
        worker->away_low += request->class == CLASS_LOW;
    }
    return true;
}

void compute_submit(struct worker *worker, struct action *action, struct batch *batch)
{
    batch->submitted_ns = worker->now;
    batch->low = false;
    for (uint32_t i = 0; i < batch->engine.rows; i++)
        for (struct row *row = batch->rows[i]; row != NULL; row = row->twins) {
            batch->low = batch->low || row->request->class == CLASS_LOW;
            row->request->state = REQUEST_COMPUTING;
            if (row->request->started_ns == 0)
                row->request->started_ns = worker->now;
        }
    batch_list_push(&worker->running, batch);
    watch_batches(worker);
    action->batch = batch;
    worker->stats.batches++;
    worker->stats.rows += batch->engine.rows;
    worker->stats.tokens += batch->tokens;
    worker->stats.computed_tokens += batch->engine.extent;
    worker->stats.rectangle_tokens += (uint64_t)batch->engine.rows * batch->engine.length[0]; /* longest first */
}

/* What became ready for the window; a suspect goes its own way. */
static void to_window(struct worker *worker, struct request *request)
{
    if (lonely_is(worker, request)) {
        lonely_prepared(worker);
        return;
    }
    if (!worker_takes_more(worker)) {
        settle_release(worker, request);
        return;
    }
    request->state = REQUEST_WAITING;
    for (uint32_t i = 0; i < request->row_count; i++)
        window_push(&worker->window, &request->rows[i], worker->now);
}

void compute_prepared(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        worker->away--;
        worker->away_low -= request->class == CLASS_LOW;
        request->prepared_ns = worker->now;
        if (request->code != CODE_NONE) {
            settle_finish(worker, request);
            continue;
        }
        uint32_t tokens = 0;
        for (uint32_t i = 0; i < request->row_count; i++)
            tokens += request->rows[i].tokens;
        worker_weigh(&worker->classes[request->class].mean_tokens, tokens);
        held_weigh(&worker->held, request, tokens);
        to_window(worker, request);
    }
}

void compute_formatted(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        worker->away--;
        worker->away_low -= request->class == CLASS_LOW;
        settle_finish(worker, request);
    }
}

void compute_batch(struct worker *worker, const struct event *event)
{
    batch_list_remove(&worker->running, event->batch);
    pace_computed(worker, event->batch);
    watch_batches(worker);
    rows_returned(worker, event->batch);
}

/* With none left the worker only has to end, but still divides by these. */
void compute_device_lost(struct worker *worker, const struct event *event)
{
    struct worker_options *options = &worker->options;
    options->engine_slots = event->left.engine_slots > 0 ? event->left.engine_slots : 1;
    options->batches_out = event->left.batches_out > 0 ? event->left.batches_out : 1;
    worker->stats.devices_lost++;
    pace_second(worker);
}

/* What runs, but for what runs in spare time, which is in nobody's way. */
static uint32_t count_running(const struct worker *worker)
{
    uint32_t count = worker->running.count;
    for (const struct batch *batch = worker->running.first; batch != NULL; batch = batch->next)
        count -= batch->spare;
    return count;
}

/* Batches of class low that run: in spare time, or in a slot. */
static uint32_t count_low(const struct worker *worker, bool spare)
{
    uint32_t count = 0;
    for (const struct batch *batch = worker->running.first; batch != NULL; batch = batch->next)
        count += batch->low && batch->spare == spare;
    return count;
}

/* Whether there is hardly any spare time. */
static bool spare_is_slow(const struct worker *worker)
{
    enum { SLOW_MS = 50 }; /* a short batch takes one or two where it has a core */
    for (const struct batch *batch = worker->running.first; batch != NULL; batch = batch->next)
        if (batch->spare && worker->now - batch->submitted_ns > SLOW_MS * NS_PER_MS)
            return true;
    return false;
}

/* Where there are several slots, bulk work leaves one of them to online requests, which so seldom wait at all; and in
 * their batches it has no place, but when it is its turn. What it has of spare time it does not need of the slots,
 * unless that comes to nothing: it still has its turn then. */
static bool low_may_go(const struct worker *worker)
{
    uint32_t slots = worker->options.engine_slots, spare = spare_is_slow(worker) ? 0 : worker->options.spare_slots;
    if (slots == 1)
        return spare == 0;
    return count_low(worker, false) + spare + 1 < slots &&
           (!window_has_online(&worker->window) || window_low_is_next(&worker->window));
}

/* Whether a batch is to be cut now. Some are cut ahead, so that no device waits for this thread; ahead of time only a
 * full one, because a part of one would wait no less and collect no more. */
static bool cut_now(const struct worker *worker, const struct window_limits *limits)
{
    const struct worker_options *options = &worker->options;
    uint32_t running = count_running(worker);
    if (worker->window.rows == 0 || running >= options->batches_out)
        return false;
    if (limits->low_ns > 0) {
        bool anyone = window_has_online(&worker->window) || limits->only == WINDOW_ALL;
        return anyone && running < options->engine_slots; /* an online request may come meanwhile */
    }
    if (window_full(&worker->window, limits))
        return true;
    if (options->window_fixed)
        return worker->now >= window_oldest_ns(&worker->window) + options->window_ms * NS_PER_MS;
    return running < options->engine_slots;
}

/* Idle compute threads share what waits, down to a size that is still efficient. */
static void share(const struct worker *worker, struct window_limits *limits)
{
    uint32_t slots = worker->options.engine_slots, busy = count_running(worker);
    uint32_t idle = busy < slots ? slots - busy : 1;
    uint64_t part = (worker->window.tokens + idle - 1) / idle;
    part = part < SHARE_TOKENS ? SHARE_TOKENS : part;
    if (idle > 1 && part < limits->tokens)
        limits->tokens = (uint32_t)part;
}

/* One with class high in it goes before the batches that were cut earlier and have not begun; while it is out no other
 * one does, so that these have their turn behind it. */
static bool goes_first(const struct worker *worker, const struct batch *batch)
{
    bool high = false;
    for (uint32_t i = 0; i < batch->engine.rows; i++)
        high = high || batch->rows[i]->request->class == CLASS_HIGH;
    for (const struct batch *other = worker->running.first; other != NULL; other = other->next)
        high = high && !other->first;
    return high;
}

static bool cut_batch(struct worker *worker, struct window_limits limits)
{
    struct row *rows[WINDOW_BATCH_ROWS];
    struct action *action = worker_act(worker, ACTION_SUBMIT);
    if (action == NULL)
        return false;
    if (limits.only != WINDOW_LOW)
        share(worker, &limits);
    uint32_t count = window_take(&worker->window, &limits, rows);
    struct batch *batch = count == 0 ? NULL : batch_build(rows, count, limits.layout, rows[0]->request->dim);
    watch_expired(worker);
    if (batch == NULL) {
        while (count > 0)
            rows_uncut(worker, rows[--count]);
        worker->actions->count--;
        worker->starved |= worker->window.rows > 0;
        return false;
    }
    batch->spare = limits.only == WINDOW_LOW;
    batch->first = limits.brief && goes_first(worker, batch);
    rows_go(worker, batch);
    compute_submit(worker, action, batch);
    return true;
}

static void advance_retries(struct worker *worker)
{
    while (worker->retries.first != NULL && count_running(worker) < worker->options.batches_out) {
        struct batch *batch = batch_list_pop(&worker->retries);
        if (rows_unwanted(worker, batch))
            continue;
        struct action *action = worker_act(worker, ACTION_SUBMIT);
        if (action == NULL) {
            batch_list_push_first(&worker->retries, batch);
            return;
        }
        compute_submit(worker, action, batch);
    }
}

struct window_limits compute_limits(const struct worker *worker)
{
    struct window_limits limits = {.layout = worker->options.layout,
                                   .tokens = worker->budget.tokens,
                                   .rows = worker->options.max_batch_rows,
                                   .now_ms = worker_redis_ms(worker)};
    pace_limits(worker, &limits);
    return limits;
}

/* Beside online requests. */
static void cut_spare(struct worker *worker, struct window_limits limits)
{
    limits.only = WINDOW_LOW;
    while (count_low(worker, true) < worker->options.spare_slots && window_has_low(&worker->window))
        if (!cut_batch(worker, limits))
            return;
}

static void advance_window(struct worker *worker)
{
    struct window_limits limits = compute_limits(worker);
    do
        limits.only = limits.low_ns > 0 && !low_may_go(worker) ? WINDOW_ONLINE : WINDOW_ALL;
    while (cut_now(worker, &limits) && cut_batch(worker, limits));
    if (limits.low_ns > 0)
        cut_spare(worker, limits);
}

/* How many requests of a class may follow to the prep threads in one list: what is there cannot be overtaken. */
static uint32_t prepare_most(const struct worker *worker, enum request_class class)
{
    if (class != CLASS_HIGH && worker->away >= (pace_is_hurried(worker) ? AWAY_BRIEF : AWAY_MOST))
        return 0;
    if (class != CLASS_LOW || !pace_is_online(worker))
        return LIST_MOST;
    return worker->away_low < AWAY_LOW ? 1 : 0;
}

static void begin(struct worker *worker, const struct request_list *list, uint32_t count)
{
    for (struct request *request = list->first; count > 0; request = request->next, count--)
        tight_begun(worker, request);
}

/* The highest class first. The others wait here and not in the prep threads' queue, where a late one of a higher class
 * could not overtake them. */
static void advance_prepare(struct worker *worker)
{
    uint64_t most_bytes = read_credit_bytes(worker);
    for (int class = 0; class < CLASS_COUNT; class ++) {
        struct request_list *list = &worker->to_prepare[class];
        for (uint32_t most; list->first != NULL && (most = prepare_most(worker, (enum request_class) class)) > 0;) {
            uint32_t count = held_begin(&worker->held, list, tight_begins(worker, list, most), most_bytes);
            if (count == 0)
                break;
            begin(worker, list, count);
            if (!compute_send(worker, ACTION_PREPARE, list, count))
                return;
        }
    }
}

void compute_accept(struct worker *worker, struct request *request)
{
    pace_arrived(worker, request);
    request_list_push(&worker->to_prepare[request->class], request);
}

bool compute_waits(const struct worker *worker)
{
    bool waits = worker->window.rows > 0;
    for (int class = 0; class < CLASS_COUNT; class ++)
        waits |= worker->to_prepare[class].first != NULL;
    return waits;
}

/* Takes back all that has not started. Who has rows out follows when the last of them is back. */
void compute_unstarted(struct worker *worker)
{
    for (int class = 0; class < CLASS_COUNT; class ++) {
        request_list_join(&worker->to_release, &worker->to_prepare[class]);
        request_list_join(&worker->to_release, &worker->suspects[class]);
    }
    request_list_join(&worker->to_release, &worker->loners);
    for (struct row *row; (row = window_pop(&worker->window)) != NULL;) {
        rows_drop(worker, row->request);
        row->request->given_up = true;
        if (row->request->rows_out == 0)
            settle_release(worker, row->request);
    }
    for (struct batch *batch; (batch = batch_list_pop(&worker->retries)) != NULL;) {
        rows_back(worker, batch->other);
        rows_back(worker, batch);
        batch_free(batch);
    }
}

void compute_advance(struct worker *worker)
{
    if (watch_ends(worker))
        return;
    while (worker->to_format.first != NULL && compute_send(worker, ACTION_FORMAT, &worker->to_format, LIST_MOST))
        ;
    advance_retries(worker);
    watch_advance(worker);
    if (lonely_advance(worker))
        return;
    advance_window(worker);
    advance_prepare(worker);
}
