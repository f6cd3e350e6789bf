/* Suspects: entries that a dead worker had held. One of them may have killed it; most are innocent, and there can be
 * many. So the run of each is recorded before it starts: if this process dies, the record says which runs may be to
 * blame.
 *
 * Suspects without a crash on record run in groups: up to GROUP_MOST are recorded with one call and are requests like
 * any other from then on, together with new ones. If the process dies, the whole group has a crash on record, even if a
 * new request was to blame; that costs each member one run alone.
 *
 * Suspects with a crash on record are quarantined: each is recorded, tokenised, computed and formatted while this
 * process, with all its workers (struct alone), does nothing else, not even read. If the process dies now, the guilty
 * run is known. Three such deaths make a request poison. Groups wait until the quarantine is empty, except urgent
 * suspects: a run alone that kills the process would add a takeover to their count. */
#include "base/clock.h"
#include "schedule/worker_internal.h"

/* Called when a request's run is on record, or never will be. */
static void recorded(struct worker *worker, struct request *request)
{
    worker->urgent -= request->retry.urgent;
    request->retry.urgent = request->retry.on_record = false;
}

/* Takes the request out of the group, or ends its run alone: the next one may be chosen. */
static void quarantine_leave(struct worker *worker, struct request *request)
{
    worker->grouped -= request->retry.grouped;
    worker->grouped_low -= request->retry.grouped && request->identity.class == CLASS_LOW;
    request->retry.grouped = false;
    if (worker->alone != request) { return; }
    worker->alone = NULL;
    worker->alone_rows = NULL;
    worker->alone_stage = QUARANTINE_NONE;
}

void quarantine_prepared(struct worker *worker)
{
    struct request *request = worker->alone;
    for (uint32_t i = request->row_count; i-- > 0;) {
        request->rows[i].next = worker->alone_rows;
        worker->alone_rows = &request->rows[i];
    }
    worker->alone_stage = QUARANTINE_PREPARED;
}

void quarantine_ended(struct worker *worker, struct request *request)
{
    recorded(worker, request);
    quarantine_leave(worker, request);
}

void quarantine_add(struct worker *worker, struct request *request)
{
    struct request_list *list =
        request->retry.quarantined ? &worker->quarantine : &worker->suspects[request->identity.class];
    if (!request->retry.urgent) {
        request_list_push(list, request);
        return;
    }
    struct request_list first = {0};
    request_list_push(&first, request);
    request_list_join(&first, list);
    *list = first;
}

/* Forgets suspects, which stay pending with us. If our own list brings one back, it is a suspect again. One that may be
 * on record is given back, which clears the record. */
static void forget(struct worker *worker, struct request_list *list)
{
    for (struct request *request; (request = request_list_pop(list)) != NULL;) {
        if (request->retry.on_record) {
            settle_release(worker, request);
        } else {
            worker->reclaim_unsure = true;
            settle_forget(worker, request);
        }
    }
}

void quarantine_forget(struct worker *worker)
{
    for (int c = 0; c < CLASS_COUNT; c++) { forget(worker, &worker->suspects[c]); }
    forget(worker, &worker->quarantine);
}

/* --- in groups --- */

static void member_recorded(struct worker *worker, struct request *request)
{
    if (request->lifetime.verdict == VERDICT_DONE) { recorded(worker, request); }
    request->retry.on_record = false;
    if (request->lifetime.verdict == VERDICT_LATE) {
        settle_forget(worker, request);
        worker->stats.late++;
    } else if (!worker_takes_more(worker)) {
        settle_release(worker, request); /* which clears the record */
    } else if (request->lifetime.verdict == VERDICT_NOT_ITS_NAME || request->lifetime.verdict == VERDICT_ALONE) {
        quarantine_leave(worker, request);
        request->retry.quarantined = request->lifetime.verdict == VERDICT_ALONE;
        if (!request->retry.quarantined) {
            request_disown(request);
            worker->stats.disowned++;
        }
        quarantine_add(worker, request);
    } else if (admit_expired(worker, request)) {
        settle_finish(worker, request);
    } else {
        run_accept(worker, request);
    }
}

/* Queues the members to be recorded again, before others, because it is unknown whether they are on record. */
static void group_unsure(struct worker *worker, struct request_list *list)
{
    worker_call_failed(worker);
    for (struct request *request = list->first; request != NULL; request = request->next) {
        request->retry.on_record = true;
        quarantine_leave(worker, request);
    }
    struct request_list again[CLASS_COUNT] = {0};
    for (struct request *request; (request = request_list_pop(list)) != NULL;) {
        if (worker_takes_more(worker)) {
            request_list_push(&again[request->identity.class], request);
        } else {
            settle_release(worker, request);
        }
    }
    for (int c = 0; c < CLASS_COUNT; c++) {
        request_list_join(&again[c], &worker->suspects[c]);
        worker->suspects[c] = again[c];
    }
}

static void group_recorded(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    worker->recording = false;
    if (event->failed) {
        group_unsure(worker, &list);
        return;
    }
    for (struct request *request; (request = request_list_pop(&list)) != NULL;) { member_recorded(worker, request); }
}

/* Returns whether an urgent suspect must be recorded; it is the first of its class. */
static bool urgent_waits(const struct worker *worker)
{
    bool waits = false;
    for (int c = 0; c < CLASS_COUNT; c++) {
        waits |= worker->suspects[c].first && worker->suspects[c].first->retry.urgent;
    }
    return waits;
}

/* Returns the next suspects: those of the highest class; only urgent ones while the quarantine has requests. Bulk work
 * may take long beside online requests, so it gets only half of the group: the others never wait for it. */
static struct request_list *next_suspects(struct worker *worker)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        bool held_up = c == CLASS_LOW && worker->grouped_low >= GROUP_MOST / 2 && pace_is_online(worker);
        const struct request *first = worker->suspects[c].first;
        if (first && !held_up && (first->retry.urgent || !worker->quarantine.first)) { return &worker->suspects[c]; }
    }
    return NULL;
}

/* Refills the group when half of it is done, so that there is always something to run. */
static void record_group(struct worker *worker)
{
    bool may = worker_may_call(worker) && worker_takes_more(worker) && worker->turn == TURN_TOGETHER;
    struct request_list *next = next_suspects(worker);
    if (!may || !next || worker->recording || worker->grouped > GROUP_MOST / 2) { return; }
    struct action *action = worker_act(worker, ACTION_RECORD_RUN);
    if (!action) { return; }
    for (; next != NULL && worker->grouped < GROUP_MOST; next = next_suspects(worker)) {
        struct request *request = request_list_pop(next);
        if (admit_expired(worker, request)) {
            settle_finish(worker, request);
            continue;
        }
        request->lifetime.verdict = VERDICT_DONE;
        request->retry.grouped = true;
        worker->grouped++;
        worker->grouped_low += request->identity.class == CLASS_LOW;
        request_list_push(&action->requests, request);
    }
    worker->recording = action->requests.first;
    if (!worker->recording) { worker->actions->count--; }
}

/* --- alone --- */

static void alone_recorded(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    struct request *request = request_list_pop(&list);
    if (event->failed) {
        worker_call_failed(worker);
        worker->alone_stage = QUARANTINE_UNSURE;
    } else if (request->lifetime.verdict == VERDICT_NOT_ITS_NAME) {
        request_disown(request);
        worker->stats.disowned++;
        worker->alone_stage = QUARANTINE_UNSURE;
    } else if (request->lifetime.verdict == VERDICT_LATE) {
        settle_forget(worker, request);
        worker->stats.late++;
    } else if (request->retry.quarantine_runs > POISON_RUNS) {
        recorded(worker, request);
        worker->alone_stage = QUARANTINE_AWAY;
        request_fail(request, CODE_POISON, "crashed %u workers while running alone",
                     request->retry.quarantine_runs - 1);
        settle_finish(worker, request);
    } else {
        recorded(worker, request);
        worker->alone_stage = QUARANTINE_RECORDED;
    }
}

void quarantine_recorded(struct worker *worker, const struct event *event)
{
    if (event->requests.first == worker->alone) {
        alone_recorded(worker, event);
    } else {
        group_recorded(worker, event);
    }
}

static bool wants_to_be_alone(const struct worker *worker)
{
    return worker->quarantine.first && !urgent_waits(worker) && worker_may_call(worker) && worker_takes_more(worker) &&
           tight_begins(worker, &worker->quarantine, 1) > 0;
}

/* Asks for the process only after the group is done: else the group would be blamed for a crash of the run alone. */
static void ask(struct worker *worker)
{
    bool wants = wants_to_be_alone(worker) && worker->grouped == 0;
    if (wants != worker->asked && worker_act(worker, wants ? ACTION_ALONE : ACTION_TOGETHER)) { worker->asked = wants; }
}

void quarantine_turn(struct worker *worker, const struct event *event)
{
    worker->turn = event->turn;
    worker->turn_ends = worker_after_ms(worker, ALONE_SLICE_MS);
}

static void record_run(struct worker *worker)
{
    struct action *action = worker_act(worker, ACTION_RECORD_RUN);
    if (!action) { return; }
    worker->alone->lifetime.verdict = VERDICT_DONE;
    worker->alone_stage = QUARANTINE_AWAY;
    request_list_push(&action->requests, worker->alone);
}

/* Checks the suspect again, because recording and preparing it took a while. */
static bool expired(struct worker *worker)
{
    if (worker->alone->lifetime.started_ns != 0 || !admit_expired(worker, worker->alone)) { return false; }
    worker->alone_stage = QUARANTINE_AWAY;
    settle_finish(worker, worker->alone);
    return true;
}

static void choose(struct worker *worker)
{
    struct request *request = request_list_pop(&worker->quarantine);
    if (admit_expired(worker, request)) {
        settle_finish(worker, request);
        return;
    }
    tight_begun(worker, request);
    worker->alone = request;
    worker->alone_stage = QUARANTINE_UNSURE;
    record_run(worker);
}

static void send(struct worker *worker, enum action_kind kind)
{
    struct request_list list = {0};
    request_list_push(&list, worker->alone);
    if (run_send(worker, kind, &list, 1)) { worker->alone_stage = QUARANTINE_AWAY; }
}

/* Takes as many rows of the suspect as fit in one batch, at least one; without duplicates, so that its own vectors are
 * computed. */
static uint32_t next_rows(const struct worker *worker, struct row **rows)
{
    struct window_limits limits = run_limits(worker);
    uint64_t tokens = 0, longest = 0;
    uint32_t count = 0;
    for (struct row *row = worker->alone_rows; row != NULL && count < limits.rows; row = row->next) {
        tokens += row->tokens;
        longest = row->tokens > longest ? row->tokens : longest;
        uint64_t extent = limits.layout != LAYOUT_PACKED ? longest * (count + 1) : tokens;
        if (count > 0 && extent > limits.tokens) { break; }
        row->duplicates = NULL;
        rows[count++] = row;
    }
    return count;
}

/* Sends the next slice of its rows; not even another slice runs at the same time. */
static void submit(struct worker *worker)
{
    struct row *rows[WINDOW_BATCH_ROWS];
    uint32_t count = next_rows(worker, rows);
    struct row *rest = rows[count - 1]->next;
    struct batch *batch = batch_build(rows, count, worker->options.layout, worker->alone->dim);
    struct action *action = batch ? worker_act(worker, ACTION_SUBMIT) : NULL;
    if (!action) {
        batch_free(batch);
        worker->starved = true;
        return;
    }
    worker->alone_rows = rest;
    worker->alone_stage = QUARANTINE_AWAY;
    rows_go(worker, batch);
    run_submit(worker, action, batch);
}

static void run_alone(struct worker *worker)
{
    while (!worker->alone && wants_to_be_alone(worker) && worker->now < worker->turn_ends && !worker->starved) {
        choose(worker);
    }
    if (!worker->alone) {
        if (worker_act(worker, ACTION_TOGETHER)) {
            worker->asked = false;
            worker->turn = TURN_REST; /* until all workers know */
        }
        return;
    }
    if (!worker_takes_more(worker) && worker->alone_stage != QUARANTINE_AWAY &&
        worker->alone_stage != QUARANTINE_COMPUTED) {
        settle_release(worker, worker->alone); /* which clears its record */
        return;
    }
    switch (worker->alone_stage) {
    case QUARANTINE_UNSURE: /* its run may be on record, so no other may run until that is known */
        if (worker_may_call(worker)) { record_run(worker); }
        break;
    case QUARANTINE_RECORDED:
        if (!expired(worker)) { send(worker, ACTION_PREPARE); }
        break;
    case QUARANTINE_PREPARED:
        if (!expired(worker)) { submit(worker); }
        break;
    case QUARANTINE_COMPUTED:
        send(worker, ACTION_FORMAT);
        break;
    case QUARANTINE_NONE:
    case QUARANTINE_AWAY:
        break;
    }
}

bool quarantine_advance(struct worker *worker)
{
    if (worker->turn == TURN_ALONE) {
        run_alone(worker);
    } else {
        record_group(worker);
        ask(worker);
    }
    return worker->turn != TURN_TOGETHER;
}

/* --- the worker that has the whole process --- */

void alone_ask(struct alone *alone, size_t who)
{
    alone->workers[who].asks = true;
}

void alone_end(struct alone *alone, size_t who, uint64_t now_ns)
{
    alone->workers[who].asks = false;
    if (!alone->held || alone->holder != who) { return; }
    alone->held = alone->granted = false;
    alone->opens_ns = now_ns + ALONE_SLICE_MS * NS_PER_MS;
}

/* Chooses the next asking worker after the last one that had the process, so that they take turns. */
static void choose_worker(struct alone *alone)
{
    for (size_t i = 1; i <= alone->count; i++) {
        size_t who = (alone->holder + i) % alone->count;
        if (alone->workers[who].asks) {
            alone->held = true;
            alone->holder = who;
            return;
        }
    }
}

static bool all_told(const struct alone *alone, enum turn turn)
{
    bool told = true;
    for (size_t i = 0; i < alone->count; i++) { told &= alone->workers[i].told == turn; }
    return told;
}

static enum turn turn_of(const struct alone *alone, size_t who)
{
    if (!alone->held) { return TURN_TOGETHER; }
    return alone->granted && alone->holder == who ? TURN_ALONE : TURN_REST;
}

bool alone_next(struct alone *alone, uint64_t now_ns, bool at_rest, size_t *who, enum turn *turn)
{
    if (!alone->held && now_ns >= alone->opens_ns && all_told(alone, TURN_TOGETHER)) {
        choose_worker(alone);
    } else if (alone->held && !alone->granted && at_rest && all_told(alone, TURN_REST)) {
        alone->granted = true;
    }
    for (size_t i = 0; i < alone->count; i++) {
        if (alone->workers[i].told != turn_of(alone, i)) {
            alone->workers[i].told = *turn = turn_of(alone, i);
            *who = i;
            return true;
        }
    }
    return false;
}

uint64_t alone_deadline(const struct alone *alone)
{
    bool wanted = false;
    for (size_t i = 0; i < alone->count; i++) { wanted |= alone->workers[i].asks; }
    return wanted && !alone->held ? alone->opens_ns : UINT64_MAX;
}
