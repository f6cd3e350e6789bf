/* Suspects: entries that a dead worker had held. One of them may have killed it, so each runs alone: it is charged
 * first (the lonely run is on record before it starts), then tokenised, computed and formatted while this process does
 * nothing else. If the process dies now, it is known whose run it was. Three such deaths make it poison.
 *
 * Most suspects are innocent bystanders and there can be many, while new work comes in: the two take turns. */
#include "base/clock.h"
#include "work/worker_stages.h"

bool lonely_is(const struct worker *worker, const struct request *request)
{
    return worker->lonely == request;
}

void lonely_leave(struct worker *worker, const struct request *request)
{
    if (worker->lonely != request)
        return;
    worker->lonely = NULL;
    worker->lonely_rows = NULL;
    worker->lonely_stage = LONELY_NONE;
}

void lonely_prepared(struct worker *worker)
{
    struct request *request = worker->lonely;
    for (uint32_t i = request->row_count; i-- > 0;)
        lonely_row_back(worker, &request->rows[i]);
    worker->lonely_stage = LONELY_PREPARED;
}

void lonely_row_back(struct worker *worker, struct row *row)
{
    row->next = worker->lonely_rows;
    worker->lonely_rows = row;
}

void lonely_stage(struct worker *worker, enum lonely_stage stage)
{
    worker->lonely_stage = stage;
}

void lonely_add(struct worker *worker, struct request *request)
{
    request_list_push(&worker->suspects, request);
}

/* It is pending with us still. Should the own list bring it back, it is no less suspect for that. */
static void forget(struct worker *worker, struct request *request)
{
    worker->reclaim_unsure = true;
    settle_forget(worker, request);
}

void lonely_forget(struct worker *worker)
{
    for (struct request *request; (request = request_list_pop(&worker->suspects)) != NULL;)
        forget(worker, request);
}

void lonely_charged(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    struct request *request = request_list_pop(&list);
    if (event->failed) {
        worker_call_failed(worker);
        worker->lonely_stage = LONELY_UNSURE;
    } else if (request->verdict == VERDICT_NOT_ITS_NAME) {
        request_disown(request);
        worker->stats.disowned++;
        worker->lonely_stage = LONELY_UNSURE;
    } else if (request->verdict == VERDICT_LATE) {
        settle_forget(worker, request);
        worker->stats.late++;
    } else if (request->lonely_runs > POISON_LONELY_RUNS) {
        worker->lonely_stage = LONELY_AWAY;
        request_fail(request, CODE_POISON, "crashed %u workers while running alone", request->lonely_runs - 1);
        settle_finish(worker, request);
    } else {
        worker->lonely_stage = LONELY_CHARGED;
    }
}

static bool others_rest(const struct worker *worker)
{
    return worker->away == 0 && worker->running.count == 0 && worker->retries.first == NULL;
}

static bool others_wait(const struct worker *worker)
{
    return compute_waits(worker) || !others_rest(worker);
}

/* Whose turn it is. A turn ends when its time is up and the other side waits, or when nobody is left on this side. */
static bool suspects_turn(struct worker *worker)
{
    bool wanted = worker->suspects.first != NULL && worker_may_call(worker) && worker_takes_more(worker);
    bool turn = worker->lonely_turn;
    if (!wanted)
        turn = false;
    else if (!others_wait(worker))
        turn = true;
    else if (worker->now >= worker->turn_ends)
        turn = !turn;
    if (turn != worker->lonely_turn)
        worker->turn_ends = turn ? NEVER : worker->now + LONELY_SLICE_MS * NS_PER_MS;
    worker->lonely_turn = turn;
    return turn;
}

static void charge(struct worker *worker)
{
    struct action *action = worker_act(worker, ACTION_CHARGE);
    if (action == NULL)
        return;
    worker->lonely->verdict = VERDICT_DONE;
    worker->lonely_stage = LONELY_AWAY;
    request_list_push(&action->requests, worker->lonely);
}

/* It may be on record as charged, so nobody else may run until that is settled one way or the other. */
static void charge_again(struct worker *worker)
{
    if (worker_may_call(worker))
        charge(worker);
}

/* To charge and to prepare it takes a while, too. */
static bool expired(struct worker *worker)
{
    if (worker->lonely->started_ns != 0 || !take_expired(worker, worker->lonely))
        return false;
    worker->lonely_stage = LONELY_AWAY;
    settle_finish(worker, worker->lonely);
    return true;
}

static void choose(struct worker *worker)
{
    if (worker->turn_ends == NEVER)
        worker->turn_ends = worker->now + LONELY_SLICE_MS * NS_PER_MS;
    struct request *request = request_list_pop(&worker->suspects);
    if (take_expired(worker, request)) {
        settle_finish(worker, request);
        return;
    }
    worker->lonely = request;
    worker->lonely_stage = LONELY_UNSURE;
    charge(worker);
}

static void send(struct worker *worker, enum action_kind kind)
{
    struct request_list list = {0};
    request_list_push(&list, worker->lonely);
    if (compute_send(worker, kind, &list, 1))
        worker->lonely_stage = LONELY_AWAY;
}

/* As many of its rows as make one batch, at least one; without twins, so that it is its own vector that is computed. */
static uint32_t slice(const struct worker *worker, struct row **rows)
{
    struct window_limits limits = compute_limits(worker);
    uint64_t tokens = 0, longest = 0;
    uint32_t count = 0;
    for (struct row *row = worker->lonely_rows; row != NULL && count < limits.rows; row = row->next) {
        tokens += row->tokens;
        longest = row->tokens > longest ? row->tokens : longest;
        uint64_t extent = limits.layout != LAYOUT_PACKED ? longest * (count + 1) : tokens;
        if (count > 0 && extent > limits.tokens)
            break;
        row->twins = NULL;
        rows[count++] = row;
    }
    return count;
}

/* The next slice of its rows; nothing else runs beside it, not even another slice. */
static void submit(struct worker *worker)
{
    struct row *rows[WINDOW_BATCH_ROWS];
    uint32_t count = slice(worker, rows);
    struct row *rest = rows[count - 1]->next;
    struct batch *batch = batch_build(rows, count, worker->options.layout, worker->lonely->dim);
    struct action *action = batch == NULL ? NULL : worker_act(worker, ACTION_SUBMIT);
    if (action == NULL) {
        batch_free(batch);
        worker->starved = true;
        return;
    }
    worker->lonely_rows = rest;
    worker->lonely_stage = LONELY_AWAY;
    rows_go(worker, batch);
    compute_submit(worker, action, batch);
}

bool lonely_advance(struct worker *worker)
{
    if (worker->lonely == NULL) {
        if (!suspects_turn(worker))
            return false;
        if (others_rest(worker))
            choose(worker);
        return true;
    }
    if (!worker_takes_more(worker) && worker->lonely_stage != LONELY_AWAY && worker->lonely_stage != LONELY_COMPUTED) {
        settle_release(worker, worker->lonely); /* which takes its charge back */
        return true;
    }
    switch (worker->lonely_stage) {
    case LONELY_UNSURE:
        charge_again(worker);
        break;
    case LONELY_CHARGED:
        if (!expired(worker))
            send(worker, ACTION_PREPARE);
        break;
    case LONELY_PREPARED:
        if (!expired(worker))
            submit(worker);
        break;
    case LONELY_COMPUTED:
        send(worker, ACTION_FORMAT);
        break;
    case LONELY_NONE:
    case LONELY_AWAY:
        break;
    }
    return true;
}
