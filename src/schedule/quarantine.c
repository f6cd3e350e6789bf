/* Suspects: entries that a dead worker had held. One of them may have killed it; most are innocent, and there can be
 * many. So the run of each is recorded before it starts: if this process dies, the record says which runs may be to
 * blame.
 *
 * Suspects without a crash on record run in groups: up to GROUP_MAX are recorded with one call and are requests like
 * any other from then on, together with new ones. If the process dies, the whole group has a crash on record, even if a
 * new request was to blame; that costs each member one run alone.
 *
 * Suspects with a crash on record are quarantined: each is recorded, tokenised, computed and formatted while this
 * process, with all its workers (struct exclusive), does nothing else, not even read. If the process dies now, the
 * guilty run is known. Three such deaths make a request poison. Groups wait until the quarantine is empty, except
 * urgent suspects: a run alone that kills the process would add a takeover to their count. */
#include "schedule/worker/quarantine.h"

#include "base/clock.h"
#include "schedule/worker_internal.h"

enum { GROUP_MAX = 64 }; /* suspects recorded as one group */

/* Called when a request's run is on record, or never will be. */
static void note_recorded(struct worker *worker, struct request *request)
{
    worker->quarantine.urgent -= request->retry.urgent;
    request->retry.urgent = request->retry.on_record = false;
}

/* Takes the request out of the group, or ends its run alone: the next one may be chosen. */
static void quarantine_leave(struct worker *worker, struct request *request)
{
    worker->quarantine.grouped -= request->retry.grouped;
    worker->quarantine.grouped_low -= request->retry.grouped && request->identity.class == CLASS_LOW;
    request->retry.grouped = false;
    if (worker->quarantine.alone != request) { return; }
    worker->quarantine.alone = NULL;
    worker->quarantine.rows = NULL;
    worker->quarantine.stage = QUARANTINE_NONE;
}

void quarantine_admitted(struct worker *worker, const struct request *request)
{
    worker->quarantine.urgent += request->retry.urgent;
}

struct request_list quarantine_take(struct worker *worker, enum request_class class)
{
    struct request_list *from =
        class == CLASS_COUNT ? &worker->quarantine.waiting : &worker->quarantine.suspects[class];
    struct request_list list = *from;
    *from = (struct request_list){0};
    return list;
}

void quarantine_row_back(struct worker *worker, struct row *row)
{
    row->next = worker->quarantine.rows;
    worker->quarantine.rows = row;
}

void quarantine_rows_back(struct worker *worker)
{
    worker->quarantine.stage = worker->quarantine.alone->rows_left == 0 ? QUARANTINE_COMPUTED : QUARANTINE_PREPARED;
}

void quarantine_prepared(struct worker *worker)
{
    struct request *request = worker->quarantine.alone;
    for (uint32_t i = request->row_count; i-- > 0;) { quarantine_row_back(worker, &request->rows[i]); }
    worker->quarantine.stage = QUARANTINE_PREPARED;
}

void quarantine_ended(struct worker *worker, struct request *request)
{
    note_recorded(worker, request);
    quarantine_leave(worker, request);
}

bool quarantine_poisons(struct request *request, uint32_t crashes)
{
    if (crashes < POISON_CRASHES) { return false; }
    request_fail(request, CODE_POISON, "crashed %u workers while running alone", crashes);
    return true;
}

void quarantine_add(struct worker *worker, struct request *request)
{
    struct request_list *list = request->retry.quarantined ? &worker->quarantine.waiting
                                                           : &worker->quarantine.suspects[request->identity.class];
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
static void forget_all(struct worker *worker, struct request_list *list)
{
    for (struct request *request; (request = request_list_pop(list)) != NULL;) {
        if (request->retry.on_record) {
            leave_release(worker, request);
        } else {
            own_distrust(worker);
            settle_forget(worker, request);
        }
    }
}

void quarantine_forget(struct worker *worker)
{
    for (int c = 0; c < CLASS_COUNT; c++) { forget_all(worker, &worker->quarantine.suspects[c]); }
    forget_all(worker, &worker->quarantine.waiting);
}

/* --- in groups --- */

static void member_recorded(struct worker *worker, struct request *request)
{
    if (request->lifetime.verdict == VERDICT_DONE) { note_recorded(worker, request); }
    request->retry.on_record = false;
    if (request->lifetime.verdict == VERDICT_LATE) {
        settle_forget(worker, request);
        worker->stats.late++;
    } else if (!worker_takes_more(worker)) {
        leave_release(worker, request); /* which clears the record */
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
        prep_queue_accept(worker, request);
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
            leave_release(worker, request);
        }
    }
    for (int c = 0; c < CLASS_COUNT; c++) {
        request_list_join(&again[c], &worker->quarantine.suspects[c]);
        worker->quarantine.suspects[c] = again[c];
    }
}

static void group_recorded(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    worker->quarantine.recording = false;
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
        waits |= worker->quarantine.suspects[c].first && worker->quarantine.suspects[c].first->retry.urgent;
    }
    return waits;
}

/* Returns the next suspects: those of the highest class; only urgent ones while the quarantine has requests. Bulk work
 * may take long beside online requests, so it gets only half of the group: the others never wait for it. */
static struct request_list *next_suspects(struct worker *worker)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        bool held_up = c == CLASS_LOW && worker->quarantine.grouped_low >= GROUP_MAX / 2 && pace_is_online(worker);
        const struct request *first = worker->quarantine.suspects[c].first;
        if (first && !held_up && (first->retry.urgent || !worker->quarantine.waiting.first)) {
            return &worker->quarantine.suspects[c];
        }
    }
    return NULL;
}

/* Refills the group when half of it is done, so that there is always something to run. */
static void record_group(struct worker *worker)
{
    bool may = worker_may_call(worker) && worker_takes_more(worker) && worker->quarantine.turn == TURN_TOGETHER;
    struct request_list *next = next_suspects(worker);
    if (!may || !next || worker->quarantine.recording || worker->quarantine.grouped > GROUP_MAX / 2) { return; }
    struct action *action = worker_act(worker, ACTION_RECORD_RUN);
    if (!action) { return; }
    for (; next != NULL && worker->quarantine.grouped < GROUP_MAX; next = next_suspects(worker)) {
        struct request *request = request_list_pop(next);
        if (admit_expired(worker, request)) {
            settle_finish(worker, request);
            continue;
        }
        request->lifetime.verdict = VERDICT_DONE;
        request->retry.grouped = true;
        worker->quarantine.grouped++;
        worker->quarantine.grouped_low += request->identity.class == CLASS_LOW;
        request_list_push(&action->requests, request);
    }
    worker->quarantine.recording = action->requests.first;
    if (!worker->quarantine.recording) { worker_take_back(worker); }
}

/* --- alone --- */

static void note_alone_run(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    struct request *request = request_list_pop(&list);
    uint32_t runs = request->retry.quarantine_runs, crashes = runs > 0 ? runs - 1 : 0; /* this run has not crashed */
    if (event->failed) {
        worker_call_failed(worker);
        worker->quarantine.stage = QUARANTINE_UNSURE;
    } else if (request->lifetime.verdict == VERDICT_NOT_ITS_NAME) {
        request_disown(request);
        worker->stats.disowned++;
        worker->quarantine.stage = QUARANTINE_UNSURE;
    } else if (request->lifetime.verdict == VERDICT_LATE) {
        settle_forget(worker, request);
        worker->stats.late++;
    } else if (quarantine_poisons(request, crashes)) {
        note_recorded(worker, request);
        worker->quarantine.stage = QUARANTINE_AWAY;
        settle_finish(worker, request);
    } else {
        note_recorded(worker, request);
        worker->quarantine.stage = QUARANTINE_RECORDED;
    }
}

void quarantine_recorded(struct worker *worker, const struct event *event)
{
    if (event->requests.first == worker->quarantine.alone) {
        note_alone_run(worker, event);
    } else {
        group_recorded(worker, event);
    }
}

static bool wants_to_be_alone(const struct worker *worker)
{
    return worker->quarantine.waiting.first && !urgent_waits(worker) && worker_may_call(worker) &&
           worker_takes_more(worker) && memory_begins(worker, &worker->quarantine.waiting, 1) > 0;
}

/* Asks for the process only after the group is done: else the group would be blamed for a crash of the run alone. */
static void ask_for_process(struct worker *worker)
{
    bool wants = wants_to_be_alone(worker) && worker->quarantine.grouped == 0;
    if (wants != worker->quarantine.asked && worker_act(worker, wants ? ACTION_EXCLUSIVE : ACTION_TOGETHER)) {
        worker->quarantine.asked = wants;
    }
}

void quarantine_turn(struct worker *worker, const struct event *event)
{
    worker->quarantine.turn = event->turn;
    worker->quarantine.turn_ends = worker_after_ms(worker, EXCLUSIVE_SLICE_MS);
}

static void record_run(struct worker *worker)
{
    struct action *action = worker_act(worker, ACTION_RECORD_RUN);
    if (!action) { return; }
    worker->quarantine.alone->lifetime.verdict = VERDICT_DONE;
    worker->quarantine.stage = QUARANTINE_AWAY;
    request_list_push(&action->requests, worker->quarantine.alone);
}

/* Checks the suspect again, because recording and preparing it took a while. */
static bool end_expired(struct worker *worker)
{
    if (worker->quarantine.alone->lifetime.started_ns != 0 || !admit_expired(worker, worker->quarantine.alone)) {
        return false;
    }
    worker->quarantine.stage = QUARANTINE_AWAY;
    settle_finish(worker, worker->quarantine.alone);
    return true;
}

static void choose_suspect(struct worker *worker)
{
    struct request *request = request_list_pop(&worker->quarantine.waiting);
    if (admit_expired(worker, request)) {
        settle_finish(worker, request);
        return;
    }
    memory_begun(worker, request);
    worker->quarantine.alone = request;
    worker->quarantine.stage = QUARANTINE_UNSURE;
    record_run(worker);
}

static void send_alone(struct worker *worker, enum action_kind kind)
{
    struct request_list list = {0};
    request_list_push(&list, worker->quarantine.alone);
    if (prep_queue_send(worker, kind, &list, 1)) { worker->quarantine.stage = QUARANTINE_AWAY; }
}

/* Takes as many rows of the suspect as fit in one batch, at least one; without duplicates, so that its own vectors are
 * computed. */
static uint32_t next_rows(const struct worker *worker, struct row **rows)
{
    struct window_limits limits = cut_limits(worker);
    uint64_t tokens = 0, longest = 0;
    uint32_t count = 0;
    for (struct row *row = worker->quarantine.rows; row != NULL && count < limits.rows; row = row->next) {
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
static void submit_alone(struct worker *worker)
{
    struct row *rows[WINDOW_BATCH_ROWS];
    uint32_t count = next_rows(worker, rows);
    struct row *rest = rows[count - 1]->next;
    struct batch *batch = batch_build(rows, count, worker->options.layout, worker->quarantine.alone->dim);
    struct action *action = batch ? worker_act(worker, ACTION_SUBMIT) : NULL;
    if (!action) {
        batch_free(batch);
        worker_starve(worker);
        return;
    }
    worker->quarantine.rows = rest;
    worker->quarantine.stage = QUARANTINE_AWAY;
    rows_go(worker, batch);
    cut_submit(worker, action, batch);
}

static void run_alone(struct worker *worker)
{
    while (!worker->quarantine.alone && wants_to_be_alone(worker) && worker->now < worker->quarantine.turn_ends &&
           !worker->starved) {
        choose_suspect(worker);
    }
    if (!worker->quarantine.alone) {
        if (worker_act(worker, ACTION_TOGETHER)) {
            worker->quarantine.asked = false;
            worker->quarantine.turn = TURN_REST; /* until all workers know */
        }
        return;
    }
    if (!worker_takes_more(worker) && worker->quarantine.stage != QUARANTINE_AWAY &&
        worker->quarantine.stage != QUARANTINE_COMPUTED) {
        leave_release(worker, worker->quarantine.alone); /* which clears its record */
        return;
    }
    switch (worker->quarantine.stage) {
    case QUARANTINE_UNSURE: /* its run may be on record, so no other may run until that is known */
        if (worker_may_call(worker)) { record_run(worker); }
        break;
    case QUARANTINE_RECORDED:
        if (!end_expired(worker)) { send_alone(worker, ACTION_PREPARE); }
        break;
    case QUARANTINE_PREPARED:
        if (!end_expired(worker)) { submit_alone(worker); }
        break;
    case QUARANTINE_COMPUTED:
        send_alone(worker, ACTION_FORMAT);
        break;
    case QUARANTINE_NONE:
    case QUARANTINE_AWAY:
        break;
    }
}

bool quarantine_advance(struct worker *worker)
{
    if (worker->quarantine.turn == TURN_EXCLUSIVE) {
        run_alone(worker);
    } else {
        record_group(worker);
        ask_for_process(worker);
    }
    return worker->quarantine.turn != TURN_TOGETHER;
}
