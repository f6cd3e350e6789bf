/* Outcomes on their way to Redis, and the way out: drain, release, rejoin, exit.
 *
 * A request stays held until a script has said that it is done, or that somebody else did it (late). When the
 * connection broke, the script is repeated: its gate makes that harmless. */
#include "base/clock.h"
#include "work/worker_state.h"

void settle_forget(struct worker *worker, struct request *request)
{
    /* Delivered once more after the script had found it gone: it is pending with us, and nobody else will look. */
    if (request->verdict == VERDICT_LATE && request->delivered_again)
        read_own_again(worker);
    lonely_leave(worker, request);
    held_remove(&worker->held, request);
    request_free(request);
}

static void make_ready(struct worker *worker, struct request *request)
{
    request->state = REQUEST_READY;
    worker->ready_bytes += request->reply.length;
    request_list_push(&worker->ready, request);
}

void settle_finish(struct worker *worker, struct request *request)
{
    policy_judge(&worker->policy, request);
    if (request->outcome != OUTCOME_DONE)
        buffer_free(&request->reply);
    make_ready(worker, request);
}

void settle_release(struct worker *worker, struct request *request)
{
    lonely_leave(worker, request);
    request_list_push(&worker->to_release, request);
}

static void count(struct worker *worker, const struct request *request)
{
    struct worker_stats *stats = &worker->stats;
    uint64_t *const counters[] = {[OUTCOME_DONE] = &stats->done,
                                  [OUTCOME_ERROR] = &stats->errors,
                                  [OUTCOME_DEFER] = &stats->deferred,
                                  [OUTCOME_DEAD] = &stats->dead};
    bool others = request->verdict == VERDICT_LATE && !request->repeated;
    ++*(others ? &stats->late : counters[request->outcome]);
}

/* A deferred request may be due before the next look at `later`. */
static void expect_due(struct worker *worker, const struct request *request)
{
    uint64_t due = worker->now + request->due_ms * NS_PER_MS;
    if (request->outcome == OUTCOME_DEFER && due < worker->promote_at)
        worker->promote_at = due;
}

static void put_off(struct worker *worker, struct request *request)
{
    request->state = REQUEST_READY;
    request_list_push(&worker->again, request);
    if (worker->again_at == NEVER)
        worker->again_at = worker->now + PAUSE_MS * NS_PER_MS;
}

void settle_settled(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests, unsure = {0};
    worker->settles_out--;
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        if (event->failed) {
            request->repeated = true;
            request->state = REQUEST_READY;
            worker->ready_bytes += request->reply.length;
            request_list_push(&unsure, request);
        } else if (request->verdict == VERDICT_AGAIN) {
            put_off(worker, request);
        } else {
            count(worker, request);
            expect_due(worker, request);
            settle_forget(worker, request);
        }
    }
    if (event->failed) { /* the oldest first again; in smaller calls, in case one of them is the reason */
        worker_call_failed(worker);
        worker->settle_most = worker->settle_most > 1 ? worker->settle_most / 2 : 1;
        request_list_join(&unsure, &worker->ready);
        worker->ready = unsure;
    } else if (worker->settle_most < SETTLE_ENTRIES) {
        worker->settle_most *= 2;
    }
}

static void settle_some(struct worker *worker)
{
    struct action *action = worker_act(worker, ACTION_SETTLE);
    if (action == NULL)
        return;
    size_t bytes = 0;
    while (worker->ready.first != NULL && action->requests.count < worker->settle_most) {
        size_t next = worker->ready.first->reply.length;
        if (action->requests.count > 0 && bytes + next > SETTLE_BYTES)
            break;
        struct request *request = request_list_pop(&worker->ready);
        bytes += next;
        request->state = REQUEST_SETTLING;
        request->verdict = VERDICT_DONE;
        request_list_push(&action->requests, request);
    }
    worker->ready_bytes -= bytes;
    worker->settles_out++;
}

/* The first call goes at once; while one is out, the others wait until they are full. So a lone request does not wait
 * and a busy worker sends few large calls. */
static bool settle_now(const struct worker *worker)
{
    if (worker->ready.first == NULL || worker->settles_out >= SETTLES_OUT)
        return false;
    return worker->settles_out == 0 || worker->ready.count >= worker->settle_most ||
           worker->ready_bytes >= SETTLE_BYTES;
}

static void leave(struct worker *worker, bool clean)
{
    struct action *action = worker_act(worker, ACTION_EXIT);
    if (action == NULL)
        return; /* no memory: the next step tries again */
    action->exit.clean = clean;
    action->exit.status = worker->exit_status;
    worker->exited = true;
}

void settle_released(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    bool last = worker->leaving;
    worker->releasing = false;
    if (event->failed) {
        worker_call_failed(worker);
        request_list_join(&worker->to_release, &list);
        worker->leaving = false;
        return;
    }
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        worker->stats.released++;
        settle_forget(worker, request);
    }
    if (last)
        leave(worker, true);
}

void settle_drain(struct worker *worker, uint64_t timeout_ms, enum status status)
{
    uint64_t ends = worker->now + timeout_ms * NS_PER_MS;
    if (status != STATUS_OK)
        worker->exit_status = status;
    if (ends < worker->drain_ends)
        worker->drain_ends = ends;
    if (worker->draining)
        return;
    worker->draining = true;
    compute_unstarted(worker);
    worker_unblock(worker);
}

static void release(struct worker *worker, bool last)
{
    struct action *action = worker_act(worker, ACTION_RELEASE);
    if (action == NULL)
        return;
    action->last = last;
    while (worker->to_release.first != NULL && action->requests.count < RELEASE_ENTRIES)
        request_list_push(&action->requests, request_list_pop(&worker->to_release));
    worker->releasing = true;
    worker->leaving = last;
}

static void advance_drain(struct worker *worker)
{
    bool nothing_held = worker->held.count == 0;
    if (worker->now >= worker->drain_ends) {
        leave(worker, false);
        return;
    }
    if (!worker->connected && nothing_held) { /* nobody to say goodbye to */
        leave(worker, true);
        return;
    }
    if (!worker_may_call(worker) || worker->releasing)
        return;
    if (worker->to_release.first != NULL)
        release(worker, false);
    else if (nothing_held && read_quiet(worker))
        release(worker, true);
}

/* Without a lease, others may take what we hold: finish it through the gate, then come back under a new name. */
static void advance_rejoin(struct worker *worker)
{
    if (worker->held.count > 0 || !read_quiet(worker) || worker_act(worker, ACTION_REJOIN) == NULL)
        return;
    worker->connected = false;
}

void settle_advance(struct worker *worker)
{
    if (worker->again.first != NULL && worker->now >= worker->again_at) {
        for (struct request *request; (request = request_list_pop(&worker->again)) != NULL;)
            make_ready(worker, request);
        worker->again_at = NEVER;
    }
    while (worker_may_call(worker) && settle_now(worker)) {
        uint32_t before = worker->ready.count;
        settle_some(worker);
        if (worker->ready.count == before)
            break;
    }
    if (worker->draining)
        advance_drain(worker);
    else if (worker->lease_lost && worker_may_call(worker))
        advance_rejoin(worker);
}
