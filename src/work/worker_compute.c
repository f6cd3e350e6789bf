/* From text to vector: lists to the prep threads, rows into the window, batches to the compute threads and back, and
 * what a failed batch means for each of its rows. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "work/worker_state.h"

/* A batch on the CPU is efficient from here on, so idle compute threads rather share what waits. */
enum { SHARE_TOKENS = 256 };

static void batch_push(struct batch_list *list, struct batch *batch)
{
    batch->next = NULL;
    if (list->last == NULL)
        list->first = batch;
    else
        list->last->next = batch;
    list->last = batch;
    list->count++;
}

static struct batch *batch_pop(struct batch_list *list)
{
    struct batch *batch = list->first;
    if (batch == NULL)
        return NULL;
    list->first = batch->next;
    if (list->first == NULL)
        list->last = NULL;
    list->count--;
    batch->next = NULL;
    return batch;
}

/* Batches come back in any order; there are only a few. */
static void batch_remove(struct batch_list *list, struct batch *batch)
{
    struct batch_list rest = {0};
    for (struct batch *other = batch_pop(list); other != NULL; other = batch_pop(list))
        if (other != batch)
            batch_push(&rest, other);
    *list = rest;
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
    }
    return true;
}

void compute_submit(struct worker *worker, struct action *action, struct batch *batch)
{
    batch->submitted_ns = worker->now;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        batch->rows[i]->request->state = REQUEST_COMPUTING;
        batch->rows[i]->request->started_ns = worker->now;
    }
    batch_push(&worker->running, batch);
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
        lonely_stage(worker, LONELY_PREPARED);
        return;
    }
    if (worker->draining) {
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
        request->prepared_ns = worker->now;
        if (request->code != CODE_NONE) {
            settle_finish(worker, request);
            continue;
        }
        uint32_t tokens = 0;
        for (uint32_t i = 0; i < request->row_count; i++)
            tokens += request->rows[i].tokens;
        worker_weigh(&worker->mean_tokens, tokens);
        held_weigh(&worker->held, request, tokens);
        to_window(worker, request);
    }
}

void compute_formatted(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        worker->away--;
        settle_finish(worker, request);
    }
}

/* A request ends with its last row. */
static void row_ended(struct worker *worker, struct row *row)
{
    struct request *request = row->request;
    if (--request->rows_left > 0)
        return;
    request->computed_ns = worker->now;
    if (request->code != CODE_NONE)
        settle_finish(worker, request);
    else if (lonely_is(worker, request))
        lonely_stage(worker, LONELY_COMPUTED);
    else
        request_list_push(&worker->to_format, request);
}

static void rows_computed(struct worker *worker, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        struct row *row = batch->rows[i];
        uint32_t dim = row->request->dim;
        memcpy(row->output, batch->engine.output + (size_t)i * dim, dim * sizeof(float));
        row->request->started_ns = batch->started_ns != 0 ? batch->started_ns : batch->submitted_ns;
        row_ended(worker, row);
    }
    budget_good(&worker->budget);
}

static int younger_first(const void *left, const void *right)
{
    const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;
    return entry_id_compare(b->request->entry, a->request->entry);
}

/* Back to the head of the window in order of age, nobody charged. */
static void rows_back(struct worker *worker, const struct batch *batch)
{
    qsort(batch->rows, batch->engine.rows, sizeof(struct row *), younger_first);
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        struct request *request = batch->rows[i]->request;
        if (worker->draining && !lonely_is(worker, request)) {
            settle_release(worker, request);
        } else {
            request->state = REQUEST_WAITING;
            window_put_back(&worker->window, batch->rows[i]);
        }
    }
}

/* Halves of a failed batch run by themselves, so that only the guilty row ends up alone and is charged. */
static void bisect(struct worker *worker, const struct batch *batch)
{
    uint32_t half = batch->engine.rows / 2, dim = batch->rows[0]->request->dim;
    struct batch *first = batch_build(batch->rows, half, worker->options.layout, dim);
    struct batch *second = batch_build(batch->rows + half, batch->engine.rows - half, worker->options.layout, dim);
    if (first == NULL || second == NULL) {
        batch_free(first);
        batch_free(second);
        worker->starved = true;
        rows_back(worker, batch);
        return;
    }
    worker->stats.bisected++;
    batch_push(&worker->retries, first);
    batch_push(&worker->retries, second);
}

static void row_guilty(struct worker *worker, const struct batch *batch)
{
    request_fail(batch->rows[0]->request, policy_code(batch->status), "%.200s",
                 batch->err.message[0] != '\0' ? batch->err.message : status_name(batch->status));
    row_ended(worker, batch->rows[0]);
}

static void batch_failed(struct worker *worker, const struct batch *batch)
{
    if (batch->status == STATUS_DEVICE_LOST) { /* nobody's fault: give everything back and let a new process try */
        enum { LEAVE_MS = 1000 };
        settle_drain(worker, LEAVE_MS, STATUS_DEVICE_LOST);
        for (uint32_t i = 0; i < batch->engine.rows; i++)
            settle_release(worker, batch->rows[i]->request);
    } else if (batch->engine.rows == 1) {
        row_guilty(worker, batch);
    } else if (worker->draining) {
        rows_back(worker, batch);
    } else if (batch->status == STATUS_NO_MEMORY) {
        worker->stats.out_of_memory++;
        while (worker->budget.tokens > 1 && worker->budget.tokens >= batch->engine.extent)
            budget_halve(&worker->budget);
        rows_back(worker, batch);
    } else {
        bisect(worker, batch);
    }
}

void compute_batch(struct worker *worker, const struct event *event)
{
    struct batch *batch = event->batch;
    batch_remove(&worker->running, batch);
    if (batch->status == STATUS_OK ||
        batch->status == STATUS_NON_FINITE) /* format finds the rows that are not finite */
        rows_computed(worker, batch);
    else
        batch_failed(worker, batch);
    batch_free(batch);
}

/* Whether a batch is to be cut now. One batch per compute thread is cut ahead, so that none waits for this thread;
 * ahead of time only a full one, because a part of one would wait no less and collect no more. */
static bool cut_now(const struct worker *worker, const struct window_limits *limits)
{
    const struct worker_options *options = &worker->options;
    if (worker->window.first == NULL || worker->running.count >= 2 * options->engine_slots)
        return false;
    if (window_full(&worker->window, limits))
        return true;
    if (options->window_fixed)
        return worker->now >= worker->window.first->waiting_ns + options->window_ms * NS_PER_MS;
    return worker->running.count < options->engine_slots;
}

/* Idle compute threads share what waits, down to a size that is still efficient. */
static void share(const struct worker *worker, struct window_limits *limits)
{
    uint32_t slots = worker->options.engine_slots, busy = worker->running.count;
    uint32_t idle = busy < slots ? slots - busy : 1;
    uint64_t part = (worker->window.tokens + idle - 1) / idle;
    part = part < SHARE_TOKENS ? SHARE_TOKENS : part;
    if (idle > 1 && part < limits->tokens)
        limits->tokens = (uint32_t)part;
}

static bool cut_batch(struct worker *worker, struct window_limits limits)
{
    struct row *rows[WINDOW_BATCH_ROWS];
    struct action *action = worker_act(worker, ACTION_SUBMIT);
    if (action == NULL)
        return false;
    share(worker, &limits);
    uint32_t count = window_take(&worker->window, &limits, rows);
    struct batch *batch = batch_build(rows, count, limits.layout, rows[0]->request->dim);
    if (batch == NULL) {
        while (count > 0)
            window_put_back(&worker->window, rows[--count]);
        worker->actions->count--;
        worker->starved = true;
        return false;
    }
    compute_submit(worker, action, batch);
    return true;
}

static void advance_retries(struct worker *worker)
{
    while (worker->retries.first != NULL && worker->running.count < 2 * worker->options.engine_slots) {
        struct action *action = worker_act(worker, ACTION_SUBMIT);
        if (action == NULL)
            return;
        compute_submit(worker, action, batch_pop(&worker->retries));
    }
}

static void advance_window(struct worker *worker)
{
    struct window_limits limits = {
        .layout = worker->options.layout, .tokens = worker->budget.tokens, .rows = worker->options.max_batch_rows};
    while (cut_now(worker, &limits))
        if (!cut_batch(worker, limits))
            return;
}

/* The highest class first. The others wait here and not in the prep threads' queue, where a late one of a higher class
 * could not overtake them. */
static void advance_prepare(struct worker *worker)
{
    for (int class = 0; class < CLASS_COUNT; class ++) {
        struct request_list *list = &worker->to_prepare[class];
        while (list->first != NULL && (class == CLASS_HIGH || worker->away < AWAY_MOST))
            if (!compute_send(worker, ACTION_PREPARE, list, LIST_MOST))
                return;
    }
}

void compute_accept(struct worker *worker, struct request *request)
{
    request_list_push(&worker->to_prepare[request->class], request);
}

bool compute_waits(const struct worker *worker)
{
    bool waits = worker->window.first != NULL;
    for (int class = 0; class < CLASS_COUNT; class ++)
        waits |= worker->to_prepare[class].first != NULL;
    return waits;
}

uint64_t compute_deadline(const struct worker *worker)
{
    if (!worker->options.window_fixed || worker->window.first == NULL)
        return NEVER;
    return worker->window.first->waiting_ns + worker->options.window_ms * NS_PER_MS;
}

void compute_unstarted(struct worker *worker, struct request_list *to)
{
    for (int class = 0; class < CLASS_COUNT; class ++)
        request_list_join(to, &worker->to_prepare[class]);
    request_list_join(to, &worker->suspects);
    for (struct row *row = window_pop(&worker->window); row != NULL; row = window_pop(&worker->window))
        request_list_push(to, row->request);
    for (struct batch *batch = batch_pop(&worker->retries); batch != NULL; batch = batch_pop(&worker->retries)) {
        for (uint32_t i = 0; i < batch->engine.rows; i++)
            request_list_push(to, batch->rows[i]->request);
        batch_free(batch);
    }
}

void compute_advance(struct worker *worker)
{
    while (worker->to_format.first != NULL && compute_send(worker, ACTION_FORMAT, &worker->to_format, LIST_MOST))
        ;
    advance_retries(worker);
    if (lonely_advance(worker))
        return;
    advance_window(worker);
    advance_prepare(worker);
}
