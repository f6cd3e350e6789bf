/* The pulse of each second: what the worker says of itself, what Redis knows of the queue, and what an operator wants.
 * Until the first one is answered nothing is claimed, because the queue may be paused. */
#include "base/clock.h"
#include "work/worker_stages.h"

enum { PULSE_MS = 1000 };

/* Where leases are short more than once a second, so that a housekeeper that dies has a successor before its own lease
 * is over. */
static uint32_t pulse_ms(const struct worker *worker)
{
    uint32_t quarter = worker->options.lease_ms / 4;
    return quarter == 0 ? 1 : quarter < PULSE_MS ? quarter : PULSE_MS;
}

static enum housekeeper_rank rank(const struct worker *worker)
{
    if (!worker_takes_more(worker)) {
        return RANK_NONE;
    }
    if (worker->quiet) {
        return RANK_PUBLISHES;
    }
    return worker->now >= worker->judge_at ? RANK_JUDGES : RANK_WORKS;
}

void pulse_connected(struct worker *worker)
{
    worker->pulse_at = worker->now;
    worker->pulse_known = worker->pulse.housekeeper = false;
}

static struct heartbeat heartbeat(const struct worker *worker)
{
    struct worker_stats stats = worker_stats(worker);
    bool tight = worker->tight.level != MEMORY_ROOM && worker->pulse.most_bytes > 0;
    return (struct heartbeat){
        .state = worker->draining ? "draining"
                 : worker->quiet  ? "quiet"
                 : tight          ? "tight"
                                  : "running",
        .memory_percent =
            tight ? (uint32_t)((double)worker->pulse.used_bytes * 100 / (double)worker->pulse.most_bytes) : 0,
        .held = stats.held,
        .waiting = stats.waiting,
        .computing = stats.computing,
        .devices = stats.devices,
        .devices_lost = stats.devices_lost,
        .done = stats.done,
        .errors = stats.errors,
        .dead = stats.dead,
        .rows_per_s = pace_rows_per_s(worker),
        .rank = rank(worker),
        .elected_ms = 3 * pulse_ms(worker),
    };
}

static void obey(struct worker *worker, enum worker_command command)
{
    switch (command) {
    case COMMAND_QUIET:
        worker->quiet = true;
        break;
    case COMMAND_RESUME:
        worker->quiet = false;
        break;
    case COMMAND_DRAIN:
        settle_drain(worker, worker->options.shutdown_timeout_ms, STATUS_OK);
        break;
    case COMMAND_STOP:
        settle_drain(worker, 0, STATUS_OK);
        break;
    case COMMAND_NONE:
        break;
    }
}

void pulse_answered(struct worker *worker, const struct event *event)
{
    worker->pulsing = false;
    worker->pulsed_at = worker->now;
    worker->pulse_at = worker_after_ms(worker, pulse_ms(worker));
    worker->pulse_known = true; /* one that fails leaves things as they were: it must not stop the work */
    if (event->failed) {
        worker_call_failed(worker);
        return;
    }
    bool kept = worker->pulse.housekeeper;
    worker->pulse = event->pulse;
    worker_clock(worker, event->pulse.redis_ms);
    obey(worker, event->pulse.command);
    share_pulsed(worker);
    if (kept != worker->pulse.housekeeper) {
        chores_elected(worker, !kept);
    }
    if (worker->pulse.waiting) {
        chores_waiting(worker);
    }
    tight_pulsed(worker);
}

uint64_t pulse_due(const struct worker *worker)
{
    uint64_t look_at = worker->pulsed_at + tight_look_ms(worker) * NS_PER_MS;
    return look_at < worker->pulse_at ? look_at : worker->pulse_at;
}

/* Who signs off must not come back into the list of workers by a late heartbeat. A housekeeper that can no longer be it
 * says so at once. */
void pulse_advance(struct worker *worker)
{
    bool leaves = !worker_takes_more(worker) && worker->held.count == 0;
    bool gives_up = worker->pulse.housekeeper && rank(worker) < worker->told_rank;
    if (worker->pulsing || leaves || (worker->now < pulse_due(worker) && !gives_up))
        return;
    struct action *action = worker_act(worker, ACTION_PULSE);
    if (action == NULL)
        return;
    action->heartbeat = heartbeat(worker);
    worker->told_rank = action->heartbeat.rank;
    tight_asked(worker);
    worker->pulsing = true;
}
