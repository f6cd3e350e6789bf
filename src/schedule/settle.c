/* Sends outcomes to Redis.
 *
 * A request stays held until a script has answered that it is done, or that another worker finished it (late). After a
 * broken connection the script is repeated; its gate makes that harmless. */
#include "schedule/worker/settle.h"

#include "base/clock.h"
#include "base/random.h"
#include "schedule/reply.h"
#include "schedule/worker_internal.h"

enum {
    SETTLE_BYTES = 288 * 1024, /* reply bytes in one call, SETTLE_ENTRIES vectors of 384 numbers in JSON: a longer call
                                  delays all other clients */
    LONE_BYTES = 32 * 1024,    /* a longer reply has a call of its own: it may exceed a limit (redis_limits.c) */
    SETTLES_OUT_MAX = 4,       /* calls in flight at once, so that a round trip is not the limit */
    REFUSED_PAUSE_MAX_MS = 10 * 1000, /* between two tries of a request that Redis refuses */
    STUCK_REFUSALS = 10,              /* after this many the request is counted as stuck */
    LEFT_REFUSALS = 3,                /* after this many a leaving worker gives the request back */
};

void settle_open(struct worker *worker)
{
    worker->settle.max = SETTLE_ENTRIES;
    worker->settle.refused_at = NEVER;
}

/* --- the rules of failure: docs/protocol.md, "Errors" --- */

uint32_t settle_backoff_ms(const struct worker_options *options, uint32_t attempt, uint64_t *random)
{
    uint64_t delay = options->backoff_ms;
    for (uint32_t i = 1; i < attempt && delay < options->backoff_cap_ms; i++) { delay *= 2; }
    delay = delay * (800 + random_next(random) % 401) / 1000;
    if (delay > options->backoff_cap_ms) { delay = options->backoff_cap_ms; }
    return delay == 0 ? 1 : (uint32_t)delay;
}

void settle_judge(const struct worker_options *options, struct request *request, uint64_t now_ms, uint64_t *random)
{
    if (request->retry.code == CODE_NONE) {
        request->lifetime.outcome = OUTCOME_DONE;
        return;
    }
    if (request->retry.retryable && request->retry.attempt < request->retry.max_attempts) {
        uint32_t delay_ms = settle_backoff_ms(options, request->retry.attempt, random);
        uint64_t expires_ms = request->lifetime.expires_at_ms;
        if (expires_ms == 0 || now_ms == 0 || now_ms + delay_ms < expires_ms) { /* it would begin in time */
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

/* --- ends --- */

void settle_forget(struct worker *worker, struct request *request)
{
    /* Delivered again after the script found it gone or gave it back: it is pending with us, and no other worker will
     * take it. */
    bool gone = request->lifetime.verdict == VERDICT_LATE || request->lifetime.state == REQUEST_LEAVING;
    if (gone && request->lifetime.delivered_again) { own_read_again(worker); }
    quarantine_ended(worker, request);
    memory_ended(worker, request);
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

/* Returns what a reply adds to the bytes of a call. */
static size_t weigh_reply(const struct request *request)
{
    size_t length = reply_length(request);
    return length > LONE_BYTES ? SETTLE_BYTES + 1 : length;
}

static void push_ready(struct worker *worker, struct request *request)
{
    request->lifetime.state = REQUEST_READY;
    request->lifetime.single = request->lifetime.refusals > 0 || limits_sends_alone(worker, request);
    if (request->lifetime.single) {
        request_list_push(&worker->settle.single, request);
        return;
    }
    worker->settle.ready_bytes += weigh_reply(request);
    request_list_push(&worker->settle.ready, request);
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

static void judge_request(struct worker *worker, struct request *request)
{
    settle_judge(&worker->options, request, worker_redis_ms(worker), &worker->random);
    if (request->lifetime.outcome != OUTCOME_DONE) { buffer_free(&request->output.reply); }
}

void settle_finish(struct worker *worker, struct request *request)
{
    (void)limits_reply_refused(worker, request);
    judge_request(worker, request);
    make_ready(worker, request);
}

void settle_connected(struct worker *worker, enum loss loss)
{
    struct request_list list = worker->settle.single;
    request_list_join(&list, &worker->settle.ready);
    worker->settle.single = (struct request_list){0};
    worker->settle.ready_bytes = 0;
    for (struct request *at = list.first; at != NULL; at = at->next) { limits_reply_unanswered(worker, at, loss); }
    for (struct request *request; (request = request_list_pop(&list)) != NULL;) {
        if (limits_reply_refused(worker, request)) { judge_request(worker, request); }
        push_ready(worker, request);
    }
}

/* --- counting --- */

static void count_outcome(struct worker *worker, const struct request *request)
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
        if (request->retry.next_attempt > request->retry.attempt) {
            stats->retries++;
        } else {
            stats->parked++;
        }
        break;
    case OUTCOME_DEAD:
        stats->dead_letters++;
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

/* Puts off a request that Redis could not settle now. The pauses between tries grow. Meanwhile the request delays no
 * others: neither those in the same call nor, if it is a suspect, those that wait for it. */
static void put_off(struct worker *worker, struct request *request)
{
    uint64_t pause_ms = CALL_FAILED_PAUSE_MS;
    worker->stats.settle_retries++;
    for (uint32_t i = 0; i < request->lifetime.refusals && pause_ms < REFUSED_PAUSE_MAX_MS; i++) { pause_ms *= 2; }
    worker->stats.settle_stuck += ++request->lifetime.refusals == STUCK_REFUSALS;
    request->lifetime.again_ns =
        worker_after_ms(worker, pause_ms < REFUSED_PAUSE_MAX_MS ? pause_ms : REFUSED_PAUSE_MAX_MS);
    request->lifetime.state = REQUEST_READY;
    quarantine_ended(worker, request);
    request_list_push(&worker->settle.refused, request);
    if (request->lifetime.again_ns < worker->settle.refused_at) {
        worker->settle.refused_at = request->lifetime.again_ns;
    }
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
        count_outcome(worker, request);
        if (request->lifetime.outcome == OUTCOME_DEFER) {
            uint64_t in_ms = worker_ms_until(worker, request->lifetime.due_at_ms);
            chores_expect_due(worker, in_ms > request->lifetime.due_ms ? in_ms : request->lifetime.due_ms);
        }
        settle_forget(worker, request);
    } else {
        put_off(worker, request);
    }
}

/* Puts the requests of a failed call back to the front, in smaller calls, in case one of them is the reason. */
static void settle_failed(struct worker *worker, struct request_list *list, bool single)
{
    struct request_list *to = single ? &worker->settle.single : &worker->settle.ready;
    for (struct request *request = list->first; request != NULL; request = request->next) {
        request->lifetime.repeated = request->lifetime.unanswered = true;
        request->lifetime.state = REQUEST_READY;
        worker->settle.ready_bytes += single ? 0 : weigh_reply(request);
    }
    worker_call_failed(worker);
    worker->settle.max = worker->settle.max > 1 ? worker->settle.max / 2 : 1;
    request_list_join(list, to);
    *to = *list;
}

void settle_settled(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    bool single = list.first && list.first->lifetime.single;
    worker->settle.out--;
    if (single) { worker->settle.single_out = worker->settle.proving = false; }
    if (event->failed) {
        settle_failed(worker, &list, single);
        return;
    }
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        apply_verdict(worker, request);
    }
    if (worker->settle.max < SETTLE_ENTRIES) { worker->settle.max *= 2; }
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
        size_t next = weigh_reply(from->first), next_read = bytes_read(from->first);
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
    worker->settle.ready_bytes -= from == &worker->settle.ready ? bytes : 0;
    worker->settle.out++;
    return true;
}

/* The first call is sent at once; while one is out, further ones wait until they are full. So a single request does not
 * wait, and a busy worker sends few large calls. */
static bool settle_now(const struct worker *worker)
{
    if (!worker->settle.ready.first || worker->settle.out >= SETTLES_OUT_MAX) { return false; }
    return worker->settle.out == 0 || worker->settle.ready.count >= worker->settle.max ||
           worker->settle.ready_bytes >= SETTLE_BYTES;
}

/* Tries refused requests again. A leaving worker gives back those that Redis keeps refusing. */
static void advance_again(struct worker *worker)
{
    struct request_list list = worker->settle.refused;
    if (worker->now < worker->settle.refused_at) { return; }
    worker->settle.refused = (struct request_list){0};
    worker->settle.refused_at = NEVER;
    for (struct request *request; (request = request_list_pop(&list)) != NULL;) {
        if (!worker_takes_more(worker) && request->lifetime.refusals >= LEFT_REFUSALS) {
            leave_release(worker, request);
        } else if (worker->now >= request->lifetime.again_ns) {
            make_ready(worker, request);
        } else {
            request_list_push(&worker->settle.refused, request);
            if (request->lifetime.again_ns < worker->settle.refused_at) {
                worker->settle.refused_at = request->lifetime.again_ns;
            }
        }
    }
}

/* A reply with which the connection was lost waits until no claim is out, because the claim's answer may be what Redis
 * cannot send. */
static void settle_single(struct worker *worker)
{
    const struct request *first = worker->settle.single.first;
    bool claims =
        worker->chores.reclaim.out || worker->chores.sweep.out || worker->fairness.calling || worker->chores.mending;
    if (!worker_may_call(worker) || !first || worker->settle.single_out || (first->lifetime.cuts > 0 && claims)) {
        return;
    }
    bool proves = first->lifetime.cuts > 0;
    worker->settle.single_out = settle_some(worker, &worker->settle.single, 1);
    worker->settle.proving = proves && worker->settle.single_out;
}

void settle_advance(struct worker *worker)
{
    advance_again(worker);
    while (worker_may_call(worker) && settle_now(worker)) {
        if (!settle_some(worker, &worker->settle.ready, worker->settle.max)) { break; }
    }
    settle_single(worker);
}
