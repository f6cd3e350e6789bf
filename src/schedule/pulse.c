/* The pulse: each second the worker reports its state and gets the state of the queue and an operator's orders. Nothing
 * is claimed before the first answer, because the queue may be paused. */
#include "schedule/worker/pulse.h"

#include "base/clock.h"
#include "schedule/worker_internal.h"

enum { PULSE_MS = 1000 };

/* Less than a second if leases are short, so that a dead housekeeper has a successor before its lease ends. */
static uint32_t pulse_ms(const struct worker *worker)
{
    uint32_t quarter = worker->options.lease_ms / 4;
    return quarter == 0 ? 1 : quarter < PULSE_MS ? quarter : PULSE_MS;
}

static enum housekeeper_rank housekeeper_rank_of(const struct worker *worker)
{
    if (!worker_takes_more(worker)) { return RANK_NONE; }
    if (worker->quiet) { return RANK_PUBLISHES; }
    return worker->now >= worker->chores.judge_at ? RANK_JUDGES : RANK_WORKS;
}

static struct heartbeat make_heartbeat(const struct worker *worker)
{
    bool low = worker->memory.level != MEMORY_ROOM && worker->pulse.last.most_bytes > 0;
    return (struct heartbeat){
        .state = worker->leave.draining ? "draining"
                 : worker->quiet        ? "quiet"
                 : low                  ? "tight"
                                        : "running",
        .memory_percent =
            low ? (uint32_t)((double)worker->pulse.last.used_bytes * 100 / (double)worker->pulse.last.most_bytes) : 0,
        .stats = worker_stats(worker),
        .rows_per_s = pace_rows_per_s(worker),
        .max_inputs = worker->options.rules.max_inputs,
        .max_text_bytes = worker->options.rules.max_text_bytes,
        .rank = housekeeper_rank_of(worker),
        .elected_ms = 3 * pulse_ms(worker),
    };
}

/* Nothing is claimed before the first one is answered. */
void pulse_connected(struct worker *worker)
{
    worker->pulse.at = worker->now;
    worker->pulse.known = worker->pulse.last.housekeeper = false;
}

void pulse_answered(struct worker *worker, const struct event *event)
{
    worker->pulse.out = false;
    worker->pulse.answered_at = worker->now;
    worker->pulse.at = worker_after_ms(worker, pulse_ms(worker));
    worker->pulse.known = true; /* a failed pulse changes nothing and must not stop the work */
    if (event->failed) {
        worker_call_failed(worker);
        return;
    }
    bool kept = worker->pulse.last.housekeeper;
    worker->pulse.last = event->pulse;
    worker_clock(worker, event->pulse.redis_ms);
    worker_obey(worker, event->pulse.command);
    fairness_pulsed(worker);
    chores_pulsed(worker, kept);
    memory_pulsed(worker);
}

uint64_t pulse_due(const struct worker *worker)
{
    uint64_t look_at = worker->pulse.answered_at + memory_look_ms(worker) * NS_PER_MS;
    return look_at < worker->pulse.at ? look_at : worker->pulse.at;
}

/* A late heartbeat must not bring a leaving worker back to the list of workers. A housekeeper that loses rank reports
 * that at once. */
void pulse_advance(struct worker *worker)
{
    bool leaves = !worker_takes_more(worker) && worker->held.count == 0;
    bool gives_up = worker->pulse.last.housekeeper && housekeeper_rank_of(worker) < worker->pulse.told_rank;
    if (worker->pulse.out || leaves || (worker->now < pulse_due(worker) && !gives_up)) { return; }
    struct action *action = worker_act(worker, ACTION_PULSE);
    if (!action) { return; }
    action->heartbeat = make_heartbeat(worker);
    worker->pulse.told_rank = action->heartbeat.rank;
    memory_asked(worker);
    worker->pulse.out = true;
}
