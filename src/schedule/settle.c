/* Sends outcomes to Redis, and ends the worker: drain, release, rejoin, exit.
 *
 * A request stays held until a script has answered that it is done, or that another worker finished it (late). After a
 * broken connection the script is repeated; its gate makes that harmless. */
#include "base/clock.h"
#include "base/random.h"
#include "schedule/worker_internal.h"

enum {
    AGAIN_CAP_MS = 10 * 1000, /* between two tries of a request that Redis refuses */
    STUCK_REFUSALS = 10,      /* after this many the request is counted as stuck */
    LEFT_REFUSALS = 3,        /* after this many a leaving worker gives the request back */
};

/* --- the rules of failure: docs/protocol.md, "Errors" --- */

uint32_t policy_random(uint64_t *random, uint32_t below)
{
    return (uint32_t)(random_next(random) % below);
}

uint32_t policy_backoff_ms(const struct worker_options *options, uint32_t attempt, uint64_t *random)
{
    uint64_t delay = options->backoff_ms;
    for (uint32_t i = 1; i < attempt && delay < options->backoff_cap_ms; i++) { delay *= 2; }
    delay = delay * (800 + policy_random(random, 401)) / 1000;
    if (delay > options->backoff_cap_ms) { delay = options->backoff_cap_ms; }
    return delay == 0 ? 1 : (uint32_t)delay;
}

/* Returns whether a run after this delay would begin before the request expires. */
static bool in_time(const struct request *request, uint64_t now_ms, uint32_t delay_ms)
{
    return request->lifetime.expires_at_ms == 0 || now_ms == 0 || now_ms + delay_ms < request->lifetime.expires_at_ms;
}

void policy_judge(const struct worker_options *options, struct request *request, uint64_t now_ms, uint64_t *random)
{
    if (request->retry.code == CODE_NONE) {
        request->lifetime.outcome = OUTCOME_DONE;
        return;
    }
    if (request->retry.retryable && request->retry.attempt < request->retry.max_attempts) {
        uint32_t delay_ms = policy_backoff_ms(options, request->retry.attempt, random);
        if (in_time(request, now_ms, delay_ms)) {
            request->lifetime.outcome = OUTCOME_DEFER;
            request->lifetime.due_ms = delay_ms;
            request->retry.next_attempt = request->retry.attempt + 1;
            return;
        }
    }
    bool dead = request->retry.retryable || request->retry.code == CODE_POISON;
    request->lifetime.outcome = dead ? OUTCOME_DEAD : OUTCOME_ERROR;
    if (request->output.ttl_s < options->rules.error_ttl_s) { request->output.ttl_s = options->rules.error_ttl_s; }
}

enum reply_code policy_code(enum status status)
{
    switch (status) {
    case STATUS_NO_MEMORY:
        return CODE_OUT_OF_MEMORY;
    case STATUS_DEVICE_LOST:
        return CODE_DEVICE_LOST;
    case STATUS_TIMEOUT:
        return CODE_TIMEOUT;
    case STATUS_NON_FINITE:
        return CODE_NON_FINITE;
    default:
        return CODE_INTERNAL;
    }
}

/* --- ends --- */

void settle_forget(struct worker *worker, struct request *request)
{
    /* Delivered again after the script found it gone or gave it back: it is pending with us, and no other worker will
     * take it. */
    bool gone = request->lifetime.verdict == VERDICT_LATE || request->lifetime.state == REQUEST_LEAVING;
    if (gone && request->lifetime.delivered_again) { read_own_again(worker); }
    quarantine_ended(worker, request);
    tight_ended(worker, request);
    held_remove(&worker->held, request);
    request_free(request);
}

/* Returns whether the id may belong to another entry now: it is ahead of the clock and was delivered a second time, so
 * perhaps ours was moved (lua/mend) and its id reused. The entry pending with us under that id is read again. */
static bool was_replaced(const struct request *request)
{
    bool ahead = request->identity.seen_ms != 0 && request->identity.entry.ms > request->identity.seen_ms + AHEAD_MS;
    return ahead && request->lifetime.delivered_again;
}

static void push_ready(struct worker *worker, struct request *request)
{
    request->lifetime.state = REQUEST_READY;
    request->lifetime.alone = request->lifetime.refusals > 0 || limits_sends_alone(worker, request);
    if (request->lifetime.alone) {
        request_list_push(&worker->ready_single, request);
        return;
    }
    worker->ready_bytes += request->output.reply.length;
    request_list_push(&worker->ready, request);
}

static void make_ready(struct worker *worker, struct request *request)
{
    if (was_replaced(request)) {
        request->lifetime.verdict = VERDICT_LATE;
        worker->stats.late++;
        settle_forget(worker, request);
        return;
    }
    push_ready(worker, request);
}

void settle_as(struct worker *worker, struct request *request, enum outcome outcome)
{
    request->lifetime.outcome = outcome;
    make_ready(worker, request);
}

void settle_gone(struct worker *worker, struct request *request)
{
    request->retry.code = CODE_NONE;
    request_fail(request, CODE_INTERNAL, "its message was deleted from the stream");
    buffer_free(&request->output.reply);
    settle_as(worker, request, OUTCOME_GONE);
}

static void judge(struct worker *worker, struct request *request)
{
    policy_judge(&worker->options, request, worker_redis_ms(worker), &worker->random);
    if (request->lifetime.outcome != OUTCOME_DONE) { buffer_free(&request->output.reply); }
}

void settle_finish(struct worker *worker, struct request *request)
{
    (void)limits_reply_refused(worker, request);
    judge(worker, request);
    make_ready(worker, request);
}

void settle_connected(struct worker *worker, enum loss loss)
{
    struct request_list list = worker->ready_single;
    request_list_join(&list, &worker->ready);
    worker->ready_single = (struct request_list){0};
    worker->ready_bytes = 0;
    for (struct request *at = list.first; at != NULL; at = at->next) { limits_reply_unanswered(worker, at, loss); }
    for (struct request *request; (request = request_list_pop(&list)) != NULL;) {
        if (limits_reply_refused(worker, request)) { judge(worker, request); }
        push_ready(worker, request);
    }
}

void settle_release(struct worker *worker, struct request *request)
{
    quarantine_ended(worker, request);
    request->lifetime.state = REQUEST_LEAVING;
    request_list_push(&worker->to_release, request);
}

/* --- counting --- */

static void count(struct worker *worker, const struct request *request)
{
    struct worker_stats *stats = &worker->stats;
    if (request->lifetime.verdict == VERDICT_LATE && !request->lifetime.repeated) {
        stats->late++;
        return;
    }
    pace_answered(worker, request);
    stats->ignored_fields += request->identity.ignored && request->lifetime.outcome != OUTCOME_DEFER &&
                             request->lifetime.outcome != OUTCOME_CANCEL;
    switch (request->lifetime.outcome) {
    case OUTCOME_DONE:
        stats->done++;
        break;
    case OUTCOME_ERROR:
        stats->errors++;
        stats->expired += request->retry.code == CODE_EXPIRED;
        stats->shed += request->retry.code == CODE_QUEUE_FULL;
        break;
    case OUTCOME_DEFER:
        ++*(request->retry.next_attempt > request->retry.attempt ? &stats->deferred : &stats->parked);
        break;
    case OUTCOME_DEAD:
        stats->dead++;
        break;
    case OUTCOME_GONE:
        stats->vanished++;
        break;
    case OUTCOME_CANCEL:
        ++*(request->lifetime.verdict == VERDICT_NOTHING ? &stats->nothing_to_cancel : &stats->cancelled);
        break;
    }
}

/* --- answers --- */

/* Makes the next promotion earlier if a deferred request is due before it. */
static void expect_due(struct worker *worker, const struct request *request)
{
    uint64_t in_ms = worker_ms_until(worker, request->lifetime.due_at_ms);
    if (request->lifetime.outcome != OUTCOME_DEFER) { return; }
    uint64_t due = worker_after_ms(worker, in_ms > request->lifetime.due_ms ? in_ms : request->lifetime.due_ms);
    if (due < worker->promote_at) { worker->promote_at = due; }
}

/* Puts off a request that Redis could not settle now. The pauses between tries grow. Meanwhile the request delays no
 * others: neither those in the same call nor, if it is a suspect, those that wait for it. */
static void put_off(struct worker *worker, struct request *request)
{
    uint64_t pause_ms = PAUSE_MS;
    worker->stats.again++;
    for (uint32_t i = 0; i < request->lifetime.refusals && pause_ms < AGAIN_CAP_MS; i++) { pause_ms *= 2; }
    worker->stats.stuck += ++request->lifetime.refusals == STUCK_REFUSALS;
    request->lifetime.again_ns = worker_after_ms(worker, pause_ms < AGAIN_CAP_MS ? pause_ms : AGAIN_CAP_MS);
    request->lifetime.state = REQUEST_READY;
    quarantine_ended(worker, request);
    request_list_push(&worker->again, request);
    if (request->lifetime.again_ns < worker->again_at) { worker->again_at = request->lifetime.again_ns; }
}

static void apply_verdict(struct worker *worker, struct request *request)
{
    if (request->lifetime.verdict == VERDICT_NOT_ITS_NAME && request->identity.borrowed_name) {
        admit_disowned(worker, request);
    } else if (request->lifetime.verdict == VERDICT_LATER_FULL && request->retry.code == CODE_NONE) {
        admit_refused(worker, request);
    } else if (request->lifetime.verdict == VERDICT_GONE && request->lifetime.outcome != OUTCOME_GONE) {
        settle_gone(worker, request);
    } else if (request->lifetime.verdict <= VERDICT_LATE) {
        count(worker, request);
        expect_due(worker, request);
        settle_forget(worker, request);
    } else {
        put_off(worker, request);
    }
}

/* Puts the requests of a failed call back to the front, in smaller calls, in case one of them is the reason. */
static void settle_failed(struct worker *worker, struct request_list *list, bool alone)
{
    struct request_list *to = alone ? &worker->ready_single : &worker->ready;
    for (struct request *request = list->first; request != NULL; request = request->next) {
        request->lifetime.repeated = request->lifetime.unanswered = true;
        request->lifetime.state = REQUEST_READY;
        worker->ready_bytes += alone ? 0 : request->output.reply.length;
    }
    worker_call_failed(worker);
    worker->settle_most = worker->settle_most > 1 ? worker->settle_most / 2 : 1;
    request_list_join(list, to);
    *to = *list;
}

void settle_settled(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    bool alone = list.first && list.first->lifetime.alone;
    worker->settles_out--;
    worker->single_out &= !alone;
    worker->limits.proving &= !alone;
    if (event->failed) {
        settle_failed(worker, &list, alone);
        return;
    }
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        apply_verdict(worker, request);
    }
    if (worker->settle_most < SETTLE_ENTRIES) { worker->settle_most *= 2; }
}

/* --- calls --- */

/* The bytes of its entry that the script reads: a dead or parked request is kept with all its fields. */
static size_t bytes_read(const struct request *request)
{
    bool kept = request->lifetime.outcome == OUTCOME_DEFER || request->lifetime.outcome == OUTCOME_DEAD;
    return kept ? request->identity.entry_bytes : 0;
}

/* Sends the first requests of a list. False, with nothing taken, when memory ran out. */
static bool settle_some(struct worker *worker, struct request_list *from, uint32_t most)
{
    struct action *action = worker_act(worker, ACTION_SETTLE);
    if (!action) { return false; }
    size_t bytes = 0, read = 0;
    while (from->first && action->requests.count < most) {
        size_t next = from->first->output.reply.length, next_read = bytes_read(from->first);
        if (action->requests.count > 0 &&
            (bytes + next > SETTLE_BYTES || (next_read > 0 && read + next_read > LOOK_BYTES))) {
            break;
        }
        struct request *request = request_list_pop(from);
        request->lifetime.state = REQUEST_SETTLING;
        request->lifetime.verdict = VERDICT_DONE;
        request->lifetime.unanswered = false;
        request_list_push(&action->requests, request);
        bytes += next;
        read += next_read;
    }
    worker->ready_bytes -= from == &worker->ready ? bytes : 0;
    worker->settles_out++;
    return true;
}

/* The first call is sent at once; while one is out, further ones wait until they are full. So a single request does not
 * wait, and a busy worker sends few large calls. */
static bool settle_now(const struct worker *worker)
{
    if (!worker->ready.first || worker->settles_out >= SETTLES_OUT) { return false; }
    return worker->settles_out == 0 || worker->ready.count >= worker->settle_most ||
           worker->ready_bytes >= SETTLE_BYTES;
}

static void leave(struct worker *worker, bool clean)
{
    struct action *action = worker_act(worker, ACTION_EXIT);
    if (!action) { return; /* out of memory: the next step tries again */ }
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
    if (last) { leave(worker, true); }
}

void settle_drain(struct worker *worker, uint64_t timeout_ms, enum status status)
{
    uint64_t ends = worker_after_ms(worker, timeout_ms);
    if (status != STATUS_OK) { worker->exit_status = status; }
    if (ends < worker->drain_ends) { worker->drain_ends = ends; }
    if (worker->draining) { return; }
    worker->draining = true;
    run_unstarted(worker);
}

static void release(struct worker *worker, bool last)
{
    struct action *action = worker_act(worker, ACTION_RELEASE);
    if (!action) { return; }
    size_t read = 0;
    action->last = last;
    for (; worker->to_release.first != NULL && action->requests.count < RELEASE_ENTRIES && read < LOOK_BYTES;) {
        read += worker->to_release.first->identity.entry_bytes;
        request_list_push(&action->requests, request_list_pop(&worker->to_release));
    }
    worker->releasing = true;
    worker->leaving = last;
}

/* Returns whether no call but settles is out. */
static bool quiet(const struct worker *worker)
{
    bool reads = worker->reading || worker->reading_own || worker->reclaim.out || worker->sweep.out || worker->sharing;
    return !reads && !worker->renewing && !worker->promoting && !worker->mending && !worker->pulsing &&
           !worker->strays.listing;
}

static void advance_drain(struct worker *worker)
{
    bool nothing_held = worker->held.count == 0;
    if (worker->now >= worker->drain_ends) {
        leave(worker, false);
    } else if (!worker->connected && nothing_held) { /* there is no server to tell */
        leave(worker, true);
    } else if (worker_may_call(worker) && !worker->releasing && nothing_held && quiet(worker)) {
        release(worker, true);
    }
}

/* Without a lease, other workers may take the entries that we hold. Running work is settled through the gate and the
 * rest is given back under the old name, which clears our recorded runs; then we rejoin under a new name. */
static void advance_rejoin(struct worker *worker)
{
    if (worker->held.count > 0 || !quiet(worker) || !worker_act(worker, ACTION_REJOIN)) { return; }
    worker->connected = false;
}

/* Tries refused requests again. A leaving worker gives back those that Redis keeps refusing. */
static void advance_again(struct worker *worker)
{
    struct request_list list = worker->again;
    if (worker->now < worker->again_at) { return; }
    worker->again = (struct request_list){0};
    worker->again_at = NEVER;
    for (struct request *request; (request = request_list_pop(&list)) != NULL;) {
        if (!worker_takes_more(worker) && request->lifetime.refusals >= LEFT_REFUSALS) {
            settle_release(worker, request);
        } else if (worker->now >= request->lifetime.again_ns) {
            make_ready(worker, request);
        } else {
            request_list_push(&worker->again, request);
            if (request->lifetime.again_ns < worker->again_at) { worker->again_at = request->lifetime.again_ns; }
        }
    }
}

/* A reply with which the connection was lost waits until no claim is out, because the claim's answer may be what Redis
 * cannot send. */
static void settle_single(struct worker *worker)
{
    const struct request *first = worker->ready_single.first;
    bool claims = worker->reclaim.out || worker->sweep.out || worker->sharing || worker->mending;
    if (!worker_may_call(worker) || !first || worker->single_out || (first->lifetime.cuts > 0 && claims)) { return; }
    bool proves = first->lifetime.cuts > 0;
    worker->single_out = settle_some(worker, &worker->ready_single, 1);
    worker->limits.proving = proves && worker->single_out;
}

void settle_advance(struct worker *worker)
{
    advance_again(worker);
    while (worker_may_call(worker) && settle_now(worker)) {
        if (!settle_some(worker, &worker->ready, worker->settle_most)) { break; }
    }
    settle_single(worker);
    if (worker_may_call(worker) && !worker->releasing && worker->to_release.first) { release(worker, false); }
    if (worker->draining) {
        advance_drain(worker);
    } else if (worker->lease_lost && worker_may_call(worker)) {
        advance_rejoin(worker);
    }
}
