/* Gives requests back, and ends the worker: release, drain, rejoin, exit. */
#include "schedule/worker/leave.h"

#include "base/clock.h"
#include "schedule/worker_internal.h"

enum { RELEASE_ENTRIES = 64 }; /* in one call */

void leave_open(struct worker *worker)
{
    worker->leave.drain_ends = NEVER;
}

void leave_release(struct worker *worker, struct request *request)
{
    quarantine_ended(worker, request);
    request->lifetime.state = REQUEST_LEAVING;
    request_list_push(&worker->leave.to_release, request);
}

static void exit_worker(struct worker *worker, bool clean)
{
    struct action *action = worker_act(worker, ACTION_EXIT);
    if (!action) { return; /* out of memory: the next step tries again */ }
    action->exit.clean = clean;
    action->exit.status = worker->leave.status;
    worker->leave.exited = true;
}

void leave_released(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    bool last = worker->leave.leaving;
    worker->leave.releasing = false;
    if (event->failed) {
        worker_call_failed(worker);
        request_list_join(&worker->leave.to_release, &list);
        worker->leave.leaving = false;
        return;
    }
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        worker->stats.released++;
        settle_forget(worker, request);
    }
    if (last) { exit_worker(worker, true); }
}

static void release_list(struct worker *worker, struct request_list list)
{
    request_list_join(&worker->leave.to_release, &list);
}

void leave_unstarted(struct worker *worker)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        release_list(worker, prep_queue_take(worker, (enum request_class)c));
        release_list(worker, quarantine_take(worker, (enum request_class)c));
    }
    release_list(worker, quarantine_take(worker, CLASS_COUNT));
    for (struct row *row; (row = window_pop(&worker->window)) != NULL;) {
        rows_drop(worker, row->request);
        row->request->lifetime.given_up = true;
        if (row->request->rows_out == 0) { leave_release(worker, row->request); }
    }
    rows_unstarted(worker);
}

void leave_drain(struct worker *worker, uint64_t timeout_ms, enum status status)
{
    uint64_t ends = worker_after_ms(worker, timeout_ms);
    if (status != STATUS_OK) { worker->leave.status = status; }
    if (ends < worker->leave.drain_ends) { worker->leave.drain_ends = ends; }
    if (worker->leave.draining) { return; }
    worker->leave.draining = true;
    leave_unstarted(worker);
}

static void release_some(struct worker *worker, bool last)
{
    struct action *action = worker_act(worker, ACTION_RELEASE);
    if (!action) { return; }
    size_t read = 0;
    action->last = last;
    for (; worker->leave.to_release.first != NULL && action->requests.count < RELEASE_ENTRIES && read < LOOK_BYTES;) {
        read += worker->leave.to_release.first->identity.entry_bytes;
        request_list_push(&action->requests, request_list_pop(&worker->leave.to_release));
    }
    worker->leave.releasing = true;
    worker->leave.leaving = last;
}

/* Returns whether no call but settles is out. */
static bool is_quiet(const struct worker *worker)
{
    return !worker_reads(worker) && !worker->chores.renewing && !worker->chores.promoting && !worker->chores.mending &&
           !worker->pulse.out && !worker->own.strays.listing;
}

static void advance_drain(struct worker *worker)
{
    bool nothing_held = worker->held.count == 0;
    if (worker->now >= worker->leave.drain_ends) {
        exit_worker(worker, false);
    } else if (!worker->connected && nothing_held) { /* there is no server to tell */
        exit_worker(worker, true);
    } else if (worker_may_call(worker) && !worker->leave.releasing && nothing_held && is_quiet(worker)) {
        release_some(worker, true);
    }
}

/* Without a lease, other workers may take the entries that we hold. Running work is settled through the gate and the
 * rest is given back under the old name, which clears our recorded runs; then we rejoin under a new name. */
void leave_advance(struct worker *worker)
{
    if (worker_may_call(worker) && !worker->leave.releasing && worker->leave.to_release.first) {
        release_some(worker, false);
    }
    if (worker->leave.draining) {
        advance_drain(worker);
    } else if (worker->chores.lease_lost && worker_may_call(worker) && worker->held.count == 0 && is_quiet(worker) &&
               worker_act(worker, ACTION_REJOIN)) {
        worker_disconnected(worker);
    }
}
