/* Housekeeping: everything that runs by the clock. The lease, the pulse, promotion, ids ahead of
 * the clock, dead workers' entries, orphans; shedding and fair shares; fixed windows, rows that expire, batches
 * that hang. */
#include <string.h>

#include "base/clock.h"
#include "schedule/worker_internal.h"

enum { SWEEP_LEASES = 4, MEND_MS = 2000, MEND_AGAIN_MS = 100, MEND_CAP_MS = 60 * 1000 };

/* Leases of dead workers end silently; this interval finds them at most half a second late. */
static uint64_t reclaim_interval_ms(struct worker *worker)
{
    uint32_t interval = worker->options.lease_ms / 4;
    interval = interval < 500 ? interval : 500;
    return interval - policy_random(&worker->random, interval / 5 + 1);
}

static uint64_t sweep_interval_ms(const struct worker *worker)
{
    return worker->options.sweep_ms != 0 ? worker->options.sweep_ms : (uint64_t)SWEEP_LEASES * worker->options.lease_ms;
}

/* The time to mend: now, unless mending has just failed, perhaps because Redis closes the connection that it uses. */
static uint64_t mend_time(const struct worker *worker)
{
    uint64_t pause_ms = worker->mends_failed > 0 ? MEND_MS : 0;
    for (uint32_t i = 1; i < worker->mends_failed && pause_ms < MEND_CAP_MS; i++) { pause_ms *= 2; }
    return worker_after_ms(worker, pause_ms < MEND_CAP_MS ? pause_ms : MEND_CAP_MS);
}

/* The worker has become the housekeeper, and chores that the last one may have left undone are due now; or it no longer
 * is. */
static void chores_elected(struct worker *worker, bool elected)
{
    worker->promote_at = elected ? worker->now : NEVER;
    worker->mend_at = mend_time(worker);
    if (elected && !worker->reclaim.out) { worker->reclaim = (struct round){.at = worker->now}; }
}

/* --- lease and promotion --- */

void chores_lease(struct worker *worker, const struct event *event)
{
    worker->renewing = false;
    if (event->failed) {
        worker_call_failed(worker);
    } else if (!event->lease_held && !worker->lease_lost) {
        worker->lease_lost = true;
        quarantine_forget(worker);
        run_unstarted(worker);
    }
}

void chores_promoted(struct worker *worker, const struct event *event)
{
    enum { LEAST_MS = 1, MOST_MS = 1000 };
    worker->promoting = false;
    uint64_t due = event->failed ? MOST_MS : event->promoted.next_due_in_ms;
    due = due < LEAST_MS ? LEAST_MS : due > MOST_MS ? MOST_MS : due;
    uint64_t at = worker_after_ms(worker, due);
    if (worker->pulse.housekeeper && at < worker->promote_at) { worker->promote_at = at; }
    if (event->failed) { worker_call_failed(worker); }
}

/* --- ids ahead of the clock --- */

/* Requests that left the streams may be promoted once the last call has set its stream back to the present. A producer
 * that has sent such an id often sends the next one soon, and until that is mended a class may take no entries. */
void chores_mended(struct worker *worker, const struct event *event)
{
    bool more = !event->failed && event->mended.more, changed = !event->failed && event->mended.changed;
    worker->mending = false;
    worker->stats.ids_ahead += event->failed ? 0 : event->mended.moved;
    worker->mends_failed = event->failed ? worker->mends_failed + 1 : 0;
    worker->mend_at = event->failed ? mend_time(worker)
                                    : worker_after_ms(worker, more      ? 0
                                                              : changed ? MEND_AGAIN_MS
                                                                        : MEND_MS);
    if (!event->failed && event->mended.taken) { read_own_after_ms(worker, 0); }
    if (event->failed) {
        worker_call_failed(worker);
    } else if (changed && !more && worker->pulse.housekeeper) {
        worker->promote_at = worker->now;
    }
}

void chores_mend_soon(struct worker *worker)
{
    if (!worker->mending && worker->mends_failed == 0) { worker->mend_at = worker->now; }
}

/* --- rounds: class after class, until there is no more to take --- */

static void round_ends(struct worker *worker, struct round *round)
{
    enum { TAKES_AGAIN_MS = 100 };
    uint64_t at = NEVER;
    if (round == &worker->sweep) {
        at = worker_after_ms(worker, sweep_interval_ms(worker));
    } else if (worker->pulse.housekeeper) {
        at = worker_after_ms(worker, reclaim_interval_ms(worker));
    } else if (round->took) {
        at = worker_after_ms(worker, TAKES_AGAIN_MS);
    }
    *round = (struct round){.at = at};
}

static void round_goes_on(struct worker *worker, struct round *round)
{
    round->after = (struct entry_id){0};
    if (++round->class == CLASS_COUNT) { round_ends(worker, round); }
}

void chores_claimed(struct worker *worker, const struct event *event)
{
    struct round *round = event->entries.source == READ_SWEEP ? &worker->sweep : &worker->reclaim;
    struct class_state *state = &worker->classes[round->class];
    round->out = false;
    state->asked -= round->asked;
    if (event->failed) { /* entries that it may have brought are in our own lists */
        worker->limits.claim_lost = true;
        worker->reclaim_unsure |= round == &worker->reclaim;
        read_own_again(worker);
        round_ends(worker, round);
        return;
    }
    round->took |= event->entries.count > 0;
    worker->stats.orphans += round == &worker->sweep ? event->entries.count : 0;
    if (!event->entries.more || round->asked == 0) {
        round_goes_on(worker, round);
    } else if (round == &worker->sweep) {
        round->after = event->entries.last;
        round->at = worker->now + CALL_PAUSE * (worker->now - round->sent);
    }
}

/* A blocked read has asked for all the room and may never use it, so a few entries are taken in addition: at most half
 * of the room, so that the next read need not leave the class out. The housekeeper calls even without room: it finds
 * dead workers, and others take their entries. */
static void round_calls(struct worker *worker, struct round *round, enum action_kind kind)
{
    bool judges = kind == ACTION_RECLAIM && worker->pulse.housekeeper;
    uint32_t room = 0;
    while (worker->now >= round->at && (room = read_room(worker, round->class)) == 0 && !judges) {
        round_goes_on(worker, round);
    }
    struct action *action = room == 0 && !judges ? NULL : worker_act(worker, kind);
    if (!action) { return; }
    action->read.class = round->class;
    action->read.count = limits_claim(worker, round->class, room / 2 < RECLAIM_MOST ? (room + 1) / 2 : RECLAIM_MOST);
    action->read.judge = worker->pulse.housekeeper && worker->now >= worker->judge_at;
    action->read.after = round->after;
    round->asked = action->read.count;
    round->out = true;
    round->sent = worker->now;
    worker->classes[round->class].asked += round->asked;
}

/* --- share: more work than can be done. The newest requests above a class's cap are refused (shed), and if one
 * tenant's entries fill a class, those of others are claimed ahead of their turn (fair).
 *
 * A stream is first in, first out. While a class has a backlog, a scan goes through its unread entries piece by piece
 * and claims some of those whose tenants hold little here. A pass that reaches the end restarts where the last one
 * found its first entry: the entries before that belong to tenants that have enough. After the first pass, every second
 * search is in the entries that have come since, so that a tenant who submits ten requests now is found at once. The
 * housekeeper sets aside entries for which it has no room, and every worker takes from those. --- */

enum {
    SHED_MOST = 64,
    SHED_READY_MOST =
        4 * SETTLE_ENTRIES, /* refused requests that wait for their settle, beyond which no more are taken */
    FAIR_MOST = 64,
    FAIR_EVERY_MS = 100,
    FAIR_PAUSE_MS = 1,   /* between two calls, at most: on a busy machine a call's duration says little about Redis */
    FAIR_IDLE_MS = 5000, /* after a pass that found nothing */
};

/* --- shed --- */

/* A pulse has brought depths and caps: notes the classes whose newest entries must be refused. */
static void share_pulsed(struct worker *worker)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        struct class_state *state = &worker->classes[c];
        uint64_t cap = worker->pulse.cap[c], depth = worker->pulse.depth[c];
        state->over_cap = cap > 0 && depth > cap;
        state->shed_before = (struct entry_id){0};
        if (depth == 0) { state->tenants = false; }
    }
}

/* Nothing is shed while our own pending lists are read: entries taken to be refused would come back as our own and be
 * served. */
static bool may_shed(const struct worker *worker)
{
    return worker->pulse.housekeeper && worker_takes_more(worker) && worker->own_at == NEVER && !worker->quiet &&
           worker->turn == TURN_TOGETHER && !worker->sharing && worker->ready.count < SHED_READY_MOST;
}

static void shed(struct worker *worker, enum request_class class)
{
    struct class_state *state = &worker->classes[class];
    struct action *action = worker_act(worker, ACTION_SHED);
    if (!action) { return; }
    action->read.class = class;
    action->read.count = limits_claim(worker, class, SHED_MOST); /* waiting cancels come with the refused requests */
    action->read.cap = worker->pulse.cap[class];
    action->read.after = state->shed_after;
    action->read.before = state->shed_before;
    worker->sharing = true;
}

/* --- fair --- */

/* Finds the tenants that hold enough of the class to keep a compute thread busy for a while; others may be served ahead
 * of them. */
static uint32_t find_enough(struct worker *worker, enum request_class class)
{
    uint64_t tokens[ENOUGH_MOST] = {0}, enough = worker->options.max_batch_tokens;
    uint32_t known = 0, count = 0;
    double part = read_credit_tokens(worker, class) / 8;
    if ((double)enough > part) { enough = (uint64_t)part; }
    for (uint32_t i = 0; i <= worker->held.mask; i++) {
        for (const struct request *at = worker->held.buckets[i]; at != NULL; at = at->chain) {
            uint32_t tenant = 0;
            if (at->identity.class != class) { continue; }
            while (tenant < known && strcmp(worker->enough[tenant], at->identity.tenant) != 0) { tenant++; }
            if (tenant == ENOUGH_MOST) { continue; }
            if (tenant == known) { memcpy(worker->enough[known++], at->identity.tenant, sizeof(at->identity.tenant)); }
            tokens[tenant] += at->tokens;
        }
    }
    for (uint32_t i = 0; i < known; i++) {
        if (tokens[i] >= enough) { memmove(worker->enough[count++], worker->enough[i], sizeof(worker->enough[i])); }
    }
    return count;
}

/* Returns whether one tenant may block others here: more requests wait than are held, and they name tenants. */
static bool crowded(const struct worker *worker, enum request_class class)
{
    const struct class_state *state = &worker->classes[class];
    return state->tenants && worker->pulse.depth[class] > 0 && (state->busy || state->left_out);
}

static void fair(struct worker *worker, enum request_class class, uint32_t room)
{
    struct class_state *state = &worker->classes[class];
    struct action *action = worker_act(worker, ACTION_FAIR);
    if (!action) { return; }
    state->fair_at_tail = state->fair_tail_known && (!state->fair_at_tail || worker->now < state->fair_pass_at);
    action->read.class = class;
    action->read.count = limits_claim(worker, class, room < FAIR_MOST ? room : FAIR_MOST);
    action->read.after = state->fair_at_tail ? state->fair_tail : state->fair_after;
    action->read.enough_count = find_enough(worker, class);
    action->read.enough = (const char(*)[TENANT_MAX + 1]) worker->enough;
    worker->shared_at = worker->now;
    worker->shared_aside = room == 0;
    worker->sharing = true;
}

/* A search continues after a pause in proportion to its cost; a finished one starts again later. */
static void fair_pause(struct worker *worker, struct class_state *state, const struct event *event)
{
    uint64_t pause = CALL_PAUSE * (worker->now - worker->shared_at), most = FAIR_PAUSE_MS * NS_PER_MS;
    struct entry_id from = state->fair_at_tail ? state->fair_tail : state->fair_after, to = event->entries.last;
    bool moved = to.ms != from.ms || to.seq != from.seq; /* it does not move if enough entries are set aside */
    bool goes_on = !event->failed && event->entries.more && moved;
    pause = pause < most ? pause : most;
    state->fair_at = worker->now + (goes_on ? pause : FAIR_EVERY_MS * NS_PER_MS);
}

static void fair_answered(struct worker *worker, struct class_state *state, const struct event *event)
{
    fair_pause(worker, state, event);
    if (event->failed) {
        read_own_again(worker);
        return;
    }
    if (state->fair_at_tail) {
        state->fair_tail = event->entries.last;
        return;
    }
    bool aside = worker->shared_aside;
    if ((event->entries.count > 0 || aside) && !state->fair_found) {
        state->fair_found = true;
        state->fair_first = aside ? state->fair_after : event->entries.entries[0].id;
    }
    state->fair_after = event->entries.last;
    if (event->entries.more) { return; }
    if (!state->fair_tail_known) { state->fair_tail = event->entries.last; }
    state->fair_tail_known = true;
    if (!state->fair_found) { state->fair_pass_at = worker_after_ms(worker, FAIR_IDLE_MS); }
    state->fair_after = state->fair_first;
    state->fair_found = false;
}

/* --- both --- */

void share_answered(struct worker *worker, const struct event *event)
{
    struct class_state *state = &worker->classes[event->entries.class];
    worker->sharing = false;
    worker->limits.claim_lost |= event->failed;
    if (event->entries.source == READ_FAIR) {
        fair_answered(worker, state, event);
        return;
    }
    state->over_cap = !event->failed && event->entries.more;
    if (event->failed) {
        read_own_again(worker);
    } else {
        state->shed_after = event->entries.last;
        state->shed_before = event->entries.first;
    }
}

uint64_t share_deadline(const struct worker *worker)
{
    uint64_t next = NEVER;
    for (int c = 0; c < CLASS_COUNT && worker_keeps_house(worker); c++) {
        if (crowded(worker, (enum request_class)c) && worker->classes[c].fair_at < next) {
            next = worker->classes[c].fair_at;
        }
    }
    return next;
}

void share_advance(struct worker *worker)
{
    if (!worker_may_call(worker) || worker->leaving || worker->limits.proving) { return; }
    for (int c = 0; c < CLASS_COUNT; c++) {
        if (worker->classes[c].over_cap && may_shed(worker)) { shed(worker, (enum request_class)c); }
    }
    for (int c = 0; c < CLASS_COUNT; c++) {
        uint32_t room = read_room_ahead(worker, (enum request_class)c);
        bool lets =
            worker_keeps_house(worker) && worker->tight.level != MEMORY_TRICKLE; /* in a trickle Redis refuses it */
        if (lets && !worker->sharing && worker->now >= worker->classes[c].fair_at &&
            crowded(worker, (enum request_class)c)) {
            fair(worker, (enum request_class)c, room);
        }
    }
}

/* --- pulse: each second the worker reports its state and gets the state of the queue and an operator's orders. Nothing
 * is claimed before the first answer, because the queue may be paused --- */

enum { PULSE_MS = 1000 };

/* Less than a second if leases are short, so that a dead housekeeper has a successor before its lease ends. */
static uint32_t pulse_ms(const struct worker *worker)
{
    uint32_t quarter = worker->options.lease_ms / 4;
    return quarter == 0 ? 1 : quarter < PULSE_MS ? quarter : PULSE_MS;
}

static enum housekeeper_rank rank(const struct worker *worker)
{
    if (!worker_takes_more(worker)) { return RANK_NONE; }
    if (worker->quiet) { return RANK_PUBLISHES; }
    return worker->now >= worker->judge_at ? RANK_JUDGES : RANK_WORKS;
}

static struct heartbeat heartbeat(const struct worker *worker)
{
    bool tight = worker->tight.level != MEMORY_ROOM && worker->pulse.most_bytes > 0;
    return (struct heartbeat){
        .state = worker->draining ? "draining"
                 : worker->quiet  ? "quiet"
                 : tight          ? "tight"
                                  : "running",
        .memory_percent =
            tight ? (uint32_t)((double)worker->pulse.used_bytes * 100 / (double)worker->pulse.most_bytes) : 0,
        .stats = worker_stats(worker),
        .rows_per_s = pace_rows_per_s(worker),
        .max_inputs = worker->options.rules.max_inputs,
        .max_text_bytes = worker->options.rules.max_text_bytes,
        .rank = rank(worker),
        .elected_ms = 3 * pulse_ms(worker),
    };
}

void pulse_answered(struct worker *worker, const struct event *event)
{
    worker->pulsing = false;
    worker->pulsed_at = worker->now;
    worker->pulse_at = worker_after_ms(worker, pulse_ms(worker));
    worker->pulse_known = true; /* a failed pulse changes nothing and must not stop the work */
    if (event->failed) {
        worker_call_failed(worker);
        return;
    }
    bool kept = worker->pulse.housekeeper;
    worker->pulse = event->pulse;
    worker_clock(worker, event->pulse.redis_ms);
    worker_obey(worker, event->pulse.command);
    share_pulsed(worker);
    if (kept != worker->pulse.housekeeper) { chores_elected(worker, !kept); }
    if (worker->pulse.waiting && worker->reclaim.at == NEVER && !worker->reclaim.out) { /* entries to take over */
        worker->reclaim.at = worker->now;
    }
    tight_pulsed(worker);
}

uint64_t pulse_due(const struct worker *worker)
{
    uint64_t look_at = worker->pulsed_at + tight_look_ms(worker) * NS_PER_MS;
    return look_at < worker->pulse_at ? look_at : worker->pulse_at;
}

/* A late heartbeat must not bring a leaving worker back to the list of workers. A housekeeper that loses rank reports
 * that at once. */
static void pulse_advance(struct worker *worker)
{
    bool leaves = !worker_takes_more(worker) && worker->held.count == 0;
    bool gives_up = worker->pulse.housekeeper && rank(worker) < worker->told_rank;
    if (worker->pulsing || leaves || (worker->now < pulse_due(worker) && !gives_up)) { return; }
    struct action *action = worker_act(worker, ACTION_PULSE);
    if (!action) { return; }
    action->heartbeat = heartbeat(worker);
    worker->told_rank = action->heartbeat.rank;
    tight_asked(worker);
    worker->pulsing = true;
}

/* --- when each chore is due --- */

/* After a connect nothing is known about other workers: the server may have restarted and lost all leases. */
void chores_connected(struct worker *worker)
{
    uint32_t sweep_ms = (uint32_t)sweep_interval_ms(worker);
    worker->renew_at = worker_after_ms(worker, worker->options.lease_ms / 3);
    worker->promote_at = worker->reclaim.at = NEVER;
    worker->sweep.at = worker_after_ms(worker, sweep_ms / 2 + policy_random(&worker->random, sweep_ms / 2 + 1));
    worker->judge_at = worker_after_ms(worker, worker->options.lease_ms);
    worker->pulse_at = worker->now; /* the first is sent now, and nothing is claimed before it is answered */
    worker->pulse_known = worker->pulse.housekeeper = false;
}

void chores_advance(struct worker *worker)
{
    if (!worker_may_call(worker) || worker->leaving) { return; }
    bool renews = !worker->renewing && !worker->lease_lost && worker->now >= worker->renew_at;
    if (renews && worker_act(worker, ACTION_RENEW)) {
        worker->renewing = true;
        worker->renew_at = worker_after_ms(worker, worker->options.lease_ms / 3);
    }
    pulse_advance(worker);
    strays_advance(worker);
    /* Mends even while the queue is paused, because producers must be able to add entries. */
    bool mends = worker->pulse.housekeeper && worker_takes_more(worker) && !worker->quiet && !worker->mending &&
                 !worker->limits.proving;
    struct action *mend = mends && worker->now >= worker->mend_at ? worker_act(worker, ACTION_MEND) : NULL;
    if (mend) {
        mend->redis_ms = worker_redis_ms(worker);
        worker->mending = true;
    }
    if (!worker_claims(worker) || worker->limits.proving) { return; }
    if (!worker->reclaim.out && worker->own_at == NEVER && worker->urgent == 0 && worker->now >= worker->reclaim.at) {
        round_calls(worker, &worker->reclaim, ACTION_RECLAIM);
    }
    if (worker_keeps_house(worker) && !worker->sweep.out && worker->own_at == NEVER &&
        worker->now >= worker->sweep.at) {
        round_calls(worker, &worker->sweep, ACTION_SWEEP);
    }
    if (!worker->promoting && worker->now >= worker->promote_at && worker_act(worker, ACTION_PROMOTE)) {
        worker->promoting = true;
        worker->promote_at = NEVER;
    }
}

/* --- watch: events that only time brings about. Fixed windows end, rows expire, and a batch that hangs ends the
 * worker, because nothing else can end that batch --- */

enum { HANG_GRACE_MS = 200 };

/* The time at which the first of the running batches has taken too long. Background batches may be slow. */
static uint64_t hangs_at(const struct worker *worker)
{
    enum { BACKGROUND_FACTOR = 10 };
    uint64_t timeout_ns = worker->options.compute_timeout_ms * NS_PER_MS, first = NEVER;
    for (const struct batch *batch = worker->running.first; batch != NULL && timeout_ns > 0; batch = batch->next) {
        uint64_t ends = batch->watched_ns + (batch->background ? BACKGROUND_FACTOR : 1) * timeout_ns;
        if (batch->watched_ns != 0 && ends < first) { first = ends; }
    }
    return first;
}

void watch_slept(struct worker *worker, uint64_t late_ns)
{
    enum { STOPPED_MS = 50 };
    if (late_ns <= STOPPED_MS * NS_PER_MS) { return; }
    worker->hang_seen = 0;
    for (struct batch *batch = worker->running.first; batch != NULL; batch = batch->next) {
        batch->watched_ns += batch->watched_ns != 0 ? late_ns : 0;
    }
}

/* If this process was stopped, an overdue batch may be back already, so it gets a little more time. */
bool watch_ends(struct worker *worker)
{
    if (worker->now < hangs_at(worker)) {
        worker->hang_seen = 0;
    } else if (worker->hang_seen == 0) {
        worker->hang_seen = worker->now;
    }
    if (worker->hang_seen == 0 || worker->now < worker->hang_seen + HANG_GRACE_MS * NS_PER_MS) { return false; }
    settle_drain(worker, 0,
                 STATUS_TIMEOUT); /* any held request may be the cause: the next worker gets them as suspects */
    return true;
}

/* Ends expired requests with all their rows. All rows are read first, because each points to its request, which may be
 * freed once it is finished. */
void watch_expired(struct worker *worker)
{
    struct request_list expired = {0};
    for (struct row *row = window_take_expired(&worker->window); row != NULL; row = row->next) {
        struct request *request = row->request;
        if (request->retry.code != CODE_NONE) { /* failed by an earlier row */
            continue;
        }
        request_fail(request, CODE_EXPIRED, "expired before it was started");
        rows_drop(worker, request);
        request_list_push(&expired, request);
    }
    for (struct request *request; (request = request_list_pop(&expired)) != NULL;) { settle_finish(worker, request); }
}

/* Answers expired rows even if no batch is cut, but only every EXPIRE_MS, because it reads all waiting rows. */
void watch_advance(struct worker *worker)
{
    enum { EXPIRE_MS = 50 };
    struct window *window = &worker->window;
    uint64_t now_ms = worker_redis_ms(worker);
    if (window->expires_at_ms == 0 || now_ms < window->expires_at_ms || worker->now < worker->expire_at) { return; }
    worker->expire_at = worker->now + EXPIRE_MS * NS_PER_MS;
    window_expire(window, now_ms);
    watch_expired(worker);
}

static uint64_t expiry_at(const struct worker *worker)
{
    enum { FAR_MS = 24 * 3600 * 1000 };
    uint64_t expires_ms = worker->window.expires_at_ms, now_ms = worker_redis_ms(worker);
    if (expires_ms == 0 || now_ms == 0) { return NEVER; }
    uint64_t in_ms = expires_ms > now_ms ? expires_ms - now_ms : 0;
    uint64_t at = worker->now + (in_ms < FAR_MS ? in_ms : FAR_MS) * NS_PER_MS;
    return at > worker->expire_at ? at : worker->expire_at;
}

uint64_t watch_deadline(const struct worker *worker)
{
    uint64_t next = hangs_at(worker), expires = expiry_at(worker);
    if (worker->hang_seen != 0) { next = worker->hang_seen + HANG_GRACE_MS * NS_PER_MS; }
    next = expires < next ? expires : next;
    if (worker->options.window_fixed && worker->window.rows > 0) {
        uint64_t ends = window_oldest_ns(&worker->window) + worker->options.window_ms * NS_PER_MS;
        next = ends < next ? ends : next;
    }
    return next;
}
