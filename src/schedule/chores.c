/* Chores: calls that the clock brings about. Each worker renews its lease and takes over entries; the housekeeper also
 * promotes parked requests, mends ids ahead of the clock and sweeps for entries without an owner. */
#include "schedule/worker/chores.h"

#include "base/clock.h"
#include "base/random.h"
#include "schedule/worker_internal.h"

enum { RECLAIM_MAX = 64, SWEEP_LEASES = 4, MEND_MS = 2000, MEND_AGAIN_MS = 100, MEND_MAX_MS = 60 * 1000 };

/* Leases of dead workers end silently; this interval finds them at most half a second late. */
static uint64_t reclaim_interval_ms(struct worker *worker)
{
    uint32_t interval = worker->options.lease_ms / 4;
    interval = interval < 500 ? interval : 500;
    return interval - random_next(&worker->random) % (interval / 5 + 1);
}

static uint64_t sweep_interval_ms(const struct worker *worker)
{
    return worker->options.sweep_ms != 0 ? worker->options.sweep_ms : (uint64_t)SWEEP_LEASES * worker->options.lease_ms;
}

/* The time to mend: now, unless mending has just failed, perhaps because Redis closes the connection that it uses. */
static uint64_t mend_time(const struct worker *worker)
{
    uint64_t pause_ms = worker->chores.mends_failed > 0 ? MEND_MS : 0;
    for (uint32_t i = 1; i < worker->chores.mends_failed && pause_ms < MEND_MAX_MS; i++) { pause_ms *= 2; }
    return worker_after_ms(worker, pause_ms < MEND_MAX_MS ? pause_ms : MEND_MAX_MS);
}

/* Chores that the last housekeeper may have left undone are due now for the next one. */
void chores_pulsed(struct worker *worker, bool was_housekeeper)
{
    struct round *reclaim = &worker->chores.reclaim;
    bool is = worker->pulse.last.housekeeper;
    if (was_housekeeper != is) {
        worker->chores.promote_at = is ? worker->now : NEVER;
        worker->chores.mend_at = mend_time(worker);
        if (is && !reclaim->out) { *reclaim = (struct round){.at = worker->now}; }
    }
    if (worker->pulse.last.waiting && reclaim->at == NEVER && !reclaim->out) { /* entries to take over */
        reclaim->at = worker->now;
    }
}

/* --- lease and promotion --- */

void chores_lease(struct worker *worker, const struct event *event)
{
    worker->chores.renewing = false;
    if (event->failed) {
        worker_call_failed(worker);
    } else if (!event->lease_held && !worker->chores.lease_lost) {
        worker->chores.lease_lost = true;
        quarantine_forget(worker);
        leave_unstarted(worker);
    }
}

void chores_promoted(struct worker *worker, const struct event *event)
{
    enum { MIN_MS = 1, MAX_MS = 1000 };
    worker->chores.promoting = false;
    uint64_t due = event->failed ? MAX_MS : event->promoted.next_due_in_ms;
    due = due < MIN_MS ? MIN_MS : due > MAX_MS ? MAX_MS : due;
    if (worker->pulse.last.housekeeper) { chores_expect_due(worker, due); }
    if (event->failed) { worker_call_failed(worker); }
}

void chores_expect_due(struct worker *worker, uint64_t in_ms)
{
    uint64_t at = worker_after_ms(worker, in_ms);
    if (at < worker->chores.promote_at) { worker->chores.promote_at = at; }
}

/* --- ids ahead of the clock --- */

/* Requests that left the streams may be promoted once the last call has set its stream back to the present. A producer
 * that has sent such an id often sends the next one soon, and until that is mended a class may take no entries. */
void chores_mended(struct worker *worker, const struct event *event)
{
    bool more = !event->failed && event->mended.more, changed = !event->failed && event->mended.changed;
    worker->chores.mending = false;
    worker->stats.ids_ahead += event->failed ? 0 : event->mended.moved;
    worker->chores.mends_failed = event->failed ? worker->chores.mends_failed + 1 : 0;
    worker->chores.mend_at = event->failed ? mend_time(worker)
                                           : worker_after_ms(worker, more      ? 0
                                                                     : changed ? MEND_AGAIN_MS
                                                                               : MEND_MS);
    if (!event->failed && event->mended.taken) { own_read_after_ms(worker, 0); }
    if (event->failed) {
        worker_call_failed(worker);
    } else if (changed && !more && worker->pulse.last.housekeeper) {
        worker->chores.promote_at = worker->now;
    }
}

void chores_mend_soon(struct worker *worker)
{
    if (!worker->chores.mending && worker->chores.mends_failed == 0) { worker->chores.mend_at = worker->now; }
}

/* --- rounds: class after class, until there is no more to take --- */

static void round_ends(struct worker *worker, struct round *round)
{
    enum { TAKES_AGAIN_MS = 100 };
    uint64_t at = NEVER;
    if (round == &worker->chores.sweep) {
        at = worker_after_ms(worker, sweep_interval_ms(worker));
    } else if (worker->pulse.last.housekeeper) {
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
    struct round *round = event->entries.source == READ_SWEEP ? &worker->chores.sweep : &worker->chores.reclaim;
    round->out = false;
    worker->chores.asked[round->class] -= round->asked;
    if (event->failed) { /* entries that it may have brought are in our own lists */
        limits_claim_failed(worker);
        if (round == &worker->chores.reclaim) { own_distrust(worker); }
        own_read_again(worker);
        round_ends(worker, round);
        return;
    }
    round->took |= event->entries.count > 0;
    worker->stats.orphans += round == &worker->chores.sweep ? event->entries.count : 0;
    if (!event->entries.more || round->asked == 0) {
        round_goes_on(worker, round);
    } else if (round == &worker->chores.sweep) {
        round->after = event->entries.last;
        round->at = worker->now + CALL_PAUSE * (worker->now - round->sent);
    }
}

/* A blocked read has asked for all the room and may never use it, so a few entries are taken in addition: at most half
 * of the room, so that the next read need not leave the class out. The housekeeper calls even without room: it finds
 * dead workers, and others take their entries. */
static void round_calls(struct worker *worker, struct round *round, enum action_kind kind)
{
    bool judges = kind == ACTION_RECLAIM && worker->pulse.last.housekeeper;
    uint32_t room = 0;
    while (worker->now >= round->at && (room = read_room(worker, round->class)) == 0 && !judges) {
        round_goes_on(worker, round);
    }
    struct action *action = room == 0 && !judges ? NULL : worker_act(worker, kind);
    if (!action) { return; }
    action->read.class = round->class;
    action->read.count = limits_claim(worker, round->class, room / 2 < RECLAIM_MAX ? (room + 1) / 2 : RECLAIM_MAX);
    action->read.judge = worker->pulse.last.housekeeper && worker->now >= worker->chores.judge_at;
    action->read.after = round->after;
    round->asked = action->read.count;
    round->out = true;
    round->sent = worker->now;
    worker->chores.asked[round->class] += round->asked;
}

/* --- when each chore is due --- */

/* After a connect nothing is known about other workers: the server may have restarted and lost all leases. */
void chores_connected(struct worker *worker)
{
    uint32_t sweep_ms = (uint32_t)sweep_interval_ms(worker);
    worker->chores.lease_lost = false;
    worker->chores.renew_at = worker_after_ms(worker, worker->options.lease_ms / 3);
    worker->chores.promote_at = worker->chores.reclaim.at = NEVER;
    worker->chores.sweep.at = worker_after_ms(worker, sweep_ms / 2 + random_next(&worker->random) % (sweep_ms / 2 + 1));
    worker->chores.judge_at = worker_after_ms(worker, worker->options.lease_ms);
}

void chores_advance(struct worker *worker)
{
    if (!worker_may_call(worker) || worker->leave.leaving) { return; }
    bool renews = !worker->chores.renewing && !worker->chores.lease_lost && worker->now >= worker->chores.renew_at;
    if (renews && worker_act(worker, ACTION_RENEW)) {
        worker->chores.renewing = true;
        worker->chores.renew_at = worker_after_ms(worker, worker->options.lease_ms / 3);
    }
    pulse_advance(worker);
    own_advance(worker);
    /* Mends even while the queue is paused, because producers must be able to add entries. */
    bool mends = worker->pulse.last.housekeeper && worker_takes_more(worker) && !worker->quiet &&
                 !worker->chores.mending && !worker->settle.proving;
    struct action *mend = mends && worker->now >= worker->chores.mend_at ? worker_act(worker, ACTION_MEND) : NULL;
    if (mend) {
        mend->redis_ms = worker_redis_ms(worker);
        worker->chores.mending = true;
    }
    if (!worker_claims(worker) || worker->settle.proving) { return; }
    if (!worker->chores.reclaim.out && worker->own.at == NEVER && worker->quarantine.urgent == 0 &&
        worker->now >= worker->chores.reclaim.at) {
        round_calls(worker, &worker->chores.reclaim, ACTION_RECLAIM);
    }
    if (worker_keeps_house(worker) && !worker->chores.sweep.out && worker->own.at == NEVER &&
        worker->now >= worker->chores.sweep.at) {
        round_calls(worker, &worker->chores.sweep, ACTION_SWEEP);
    }
    if (!worker->chores.promoting && worker->now >= worker->chores.promote_at && worker_act(worker, ACTION_PROMOTE)) {
        worker->chores.promoting = true;
        worker->chores.promote_at = NEVER;
    }
}
