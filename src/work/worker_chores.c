/* What is to be done at its time, whatever the requests do: the lease, promotion, ids ahead of the clock, other
 * workers' entries, orphans. */
#include "base/clock.h"
#include "work/worker_stages.h"

enum { SWEEP_LEASES = 4, MEND_MS = 1000 };

/* Dead workers' leases end unannounced; looking this often finds them at most half a second late. */
static uint64_t reclaim_interval_ms(struct worker *worker)
{
    uint32_t interval = worker->options.lease_ms / 4;
    interval = interval < 500 ? interval : 500;
    return interval - policy_random(&worker->policy, interval / 5 + 1);
}

static uint64_t sweep_interval_ms(const struct worker *worker)
{
    return worker->options.sweep_ms != 0 ? worker->options.sweep_ms : (uint64_t)SWEEP_LEASES * worker->options.lease_ms;
}

void chores_waiting(struct worker *worker)
{
    if (worker->reclaim.at == NEVER && !worker->reclaim.out) {
        worker->reclaim.at = worker->now;
    }
}

void chores_elected(struct worker *worker, bool elected)
{
    worker->promote_at = elected ? worker->now : NEVER;
    worker->mend_at = worker->now;
    if (elected && !worker->reclaim.out) {
        worker->reclaim = (struct round){.at = worker->now};
    }
}

/* Who has just connected knows nothing about the others: the server may have restarted and lost all leases. */
void chores_connected(struct worker *worker)
{
    uint32_t sweep_ms = (uint32_t)sweep_interval_ms(worker);
    worker->renew_at = worker_after_ms(worker, worker->options.lease_ms / 3);
    worker->promote_at = worker->reclaim.at = NEVER;
    worker->sweep.at = worker_after_ms(worker, sweep_ms / 2 + policy_random(&worker->policy, sweep_ms / 2 + 1));
    worker->judge_at = worker_after_ms(worker, worker->options.lease_ms);
    pulse_connected(worker);
}

/* --- lease and promotion --- */

void chores_lease(struct worker *worker, const struct event *event)
{
    worker->renewing = false;
    if (event->failed) {
        worker_call_failed(worker);
    } else if (!event->lease_held && !worker->lease_lost) {
        worker->lease_lost = true;
        lonely_forget(worker);
        settle_give_up(worker);
    }
}

static void renew(struct worker *worker)
{
    if (worker_act(worker, ACTION_RENEW) == NULL)
        return;
    worker->renewing = true;
    worker->renew_at = worker_after_ms(worker, worker->options.lease_ms / 3);
}

void chores_promoted(struct worker *worker, const struct event *event)
{
    enum { LEAST_MS = 1, MOST_MS = 1000 };
    worker->promoting = false;
    uint64_t due = event->failed ? MOST_MS : event->promoted.next_due_in_ms;
    due = due < LEAST_MS ? LEAST_MS : due > MOST_MS ? MOST_MS : due;
    uint64_t at = worker_after_ms(worker, due);
    if (worker->pulse.housekeeper && at < worker->promote_at) {
        worker->promote_at = at;
    }
    if (event->failed)
        worker_call_failed(worker);
}

/* --- ids ahead of the clock --- */

/* What has left the streams is due; a class comes back with the call that has set its stream to the present. */
void chores_mended(struct worker *worker, const struct event *event)
{
    worker->mending = false;
    worker->mend_at = worker_after_ms(worker, !event->failed && event->mended.more ? 0 : MEND_MS);
    if (event->failed) {
        worker_call_failed(worker);
    } else if (event->mended.changed && !event->mended.more && worker->pulse.housekeeper) {
        worker->promote_at = worker->now;
    }
}

void chores_mend_soon(struct worker *worker)
{
    if (!worker->mending) {
        worker->mend_at = worker->now;
    }
}

/* Also while the queue is paused: producers must be able to add. */
static void mend(struct worker *worker)
{
    bool may = worker->pulse.housekeeper && worker_takes_more(worker) && !worker->quiet && !worker->mending;
    if (may && worker->now >= worker->mend_at && worker_act(worker, ACTION_MEND) != NULL) {
        worker->mending = true;
    }
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
    if (++round->class == CLASS_COUNT)
        round_ends(worker, round);
}

void chores_claimed(struct worker *worker, const struct event *event)
{
    struct round *round = event->entries.source == READ_SWEEP ? &worker->sweep : &worker->reclaim;
    struct class_state *state = &worker->classes[round->class];
    round->out = false;
    state->asked -= round->asked;
    if (event->failed) { /* what it may have brought is in the own lists */
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

/* A blocked read has asked for all the room there is and may never get it; a few entries are taken beside it. Not more
 * than half of the room, so that the next read need not leave the class out. The housekeeper asks for none rather than
 * not at all: it says then who is dead, for others to take what they held. */
static void round_calls(struct worker *worker, struct round *round, enum action_kind kind)
{
    bool judges = kind == ACTION_RECLAIM && worker->pulse.housekeeper;
    uint32_t room = 0;
    while (worker->now >= round->at && (room = read_room(worker, round->class)) == 0 && !judges)
        round_goes_on(worker, round);
    struct action *action = room == 0 && !judges ? NULL : worker_act(worker, kind);
    if (action == NULL)
        return;
    action->read.class = round->class;
    action->read.count = room / 2 < RECLAIM_MOST ? (room + 1) / 2 : RECLAIM_MOST;
    action->read.judge = worker->pulse.housekeeper && worker->now >= worker->judge_at;
    action->read.after = round->after;
    round->asked = action->read.count;
    round->out = true;
    round->sent = worker->now;
    worker->classes[round->class].asked += round->asked;
}

void chores_advance(struct worker *worker)
{
    if (!worker_may_call(worker) || worker->leaving)
        return;
    if (!worker->renewing && !worker->lease_lost && worker->now >= worker->renew_at)
        renew(worker);
    pulse_advance(worker);
    mend(worker);
    if (!worker_claims(worker))
        return;
    if (!worker->reclaim.out && worker->own_at == NEVER && worker->urgent == 0 && worker->now >= worker->reclaim.at)
        round_calls(worker, &worker->reclaim, ACTION_RECLAIM);
    if (worker_keeps_house(worker) && !worker->sweep.out && worker->own_at == NEVER && worker->now >= worker->sweep.at)
        round_calls(worker, &worker->sweep, ACTION_SWEEP);
    if (!worker->promoting && worker->now >= worker->promote_at && worker_act(worker, ACTION_PROMOTE) != NULL) {
        worker->promoting = true;
        worker->promote_at = NEVER;
    }
}
