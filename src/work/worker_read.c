/* The stream side: how many entries to ask for and when, the own pending list after a reconnect, other workers' leases,
 * and our own. One read is out at a time, and it always blocks: a blocking read of a stream that has entries returns at
 * once with as many as were asked for, so a busy queue never waits and an idle one costs one call per read_block_ms. */
#include "base/clock.h"
#include "work/worker_state.h"

static uint64_t after_ms(const struct worker *worker, uint64_t ms)
{
    return worker->now + ms * NS_PER_MS;
}

/* Dead workers' leases end unannounced; looking this often finds them at most half a second late. */
static uint64_t reclaim_interval_ms(struct worker *worker)
{
    uint32_t interval = worker->options.lease_ms / 4;
    interval = interval < 500 ? interval : 500;
    return interval - policy_random(&worker->policy, interval / 5 + 1);
}

void read_own_again(struct worker *worker)
{
    worker->own_at = worker->now;
    worker->own_after = (struct entry_id){0};
    worker->own_anew = worker->reading_own;
}

void read_connected(struct worker *worker, const struct event *event)
{
    worker->connected = true;
    worker_clock(worker, event->redis_ms);
    worker->lease_lost = false;
    worker->quiet_until = 0;
    read_own_again(worker);
    worker->renew_at = after_ms(worker, worker->options.lease_ms / 3);
    worker->promote_at = worker->reclaim_at = worker->now;
    /* Who has just connected knows nothing about the others: the server may have restarted and lost all leases. */
    worker->judge_at = after_ms(worker, worker->options.lease_ms);
}

/* What an entry costs: on the line and in Redis' answer its fields, whatever of them is kept; then the request. */
static double weight(const struct entry *entry, const struct request *request)
{
    size_t bytes = 0;
    for (size_t i = 0; i < entry->field_count; i++)
        bytes += entry->fields[i].name_length + entry->fields[i].value_length;
    return (double)(bytes > request->bytes ? bytes : request->bytes);
}

static void take_entry(struct worker *worker, const struct entry *entry, enum entry_origin origin)
{
    struct request *held = held_find(&worker->held, entry->class, entry->id);
    if (held != NULL) { /* new to us once more: the group was lost, made again, and has delivered it again */
        held->delivered_again |= origin != ORIGIN_OWN;
        return;
    }
    struct entry seen = *entry;
    seen.origin = origin;
    struct request *request = request_parse(&worker->options.rules, &seen, worker->now);
    if (request == NULL) { /* pending with us and unknown to us: the own list will bring it again */
        worker->own_at = after_ms(worker, 1000);
        worker->own_after = (struct entry_id){0};
        return;
    }
    held_add(&worker->held, request);
    worker_weigh(&worker->mean_bytes, weight(entry, request));
    worker->stats.received++;
    worker->stats.reclaimed += origin == ORIGIN_RECLAIMED;
    worker->stats.unknown_fields += request->unknown_fields;
    if (request->alone && request->lonely_runs >= POISON_LONELY_RUNS)
        request_fail(request, CODE_POISON, "crashed %u workers while running alone", request->lonely_runs);
    if (request->code != CODE_NONE)
        settle_finish(worker, request);
    else if (request->alone)
        lonely_add(worker, request);
    else
        compute_accept(worker, request);
}

static void own_answered(struct worker *worker, const struct event *event)
{
    worker->reading_own = false;
    if (worker->own_anew) {
        read_own_again(worker);
        return;
    }
    if (event->failed) {
        worker->own_count = worker->own_count > 1 ? worker->own_count / 2 : 1;
        return;
    }
    if (event->entries.more) {
        worker->own_after = event->entries.last;
        return;
    }
    worker->own_at = NEVER;
    worker->own_count = OWN_MOST;
    worker->reclaim_unsure = false;
}

static void answered(struct worker *worker, const struct event *event)
{
    switch (event->entries.source) {
    case READ_NEW:
        worker->reading = false;
        if (event->failed) /* what it may have brought is in the own list */
            read_own_again(worker);
        break;
    case READ_OWN:
        own_answered(worker, event);
        break;
    case READ_RECLAIM:
        worker->reclaiming = false;
        worker->reclaim_asked = 0;
        worker->reclaim_unsure |= event->failed;
        worker->reclaim_at = worker->now;
        if (event->failed || !event->entries.more)
            worker->reclaim_at = after_ms(worker, reclaim_interval_ms(worker));
        if (event->failed)
            read_own_again(worker);
        break;
    case READ_SHED:
    case READ_FAIR:
    case READ_SWEEP:
        break;
    }
}

void read_entries(struct worker *worker, const struct event *event)
{
    enum read_source source = event->entries.source;
    bool unsure = worker->reclaim_unsure;
    answered(worker, event);
    if (event->failed) {
        worker_call_failed(worker);
        return;
    }
    if (!worker_takes_more(worker)) /* the last release gives them back, or others reclaim them: our lease is gone */
        return;
    for (size_t i = 0; i < event->entries.count; i++) {
        const struct entry *entry = &event->entries.entries[i];
        enum entry_origin origin = source == READ_NEW       ? ORIGIN_NEW
                                   : source == READ_RECLAIM ? entry->origin
                                   : unsure                 ? ORIGIN_RECLAIMED
                                                            : ORIGIN_OWN;
        take_entry(worker, entry, origin);
    }
}

void read_lease(struct worker *worker, const struct event *event)
{
    worker->renewing = false;
    if (event->failed)
        worker_call_failed(worker);
    else if (!event->lease_held) {
        worker->lease_lost = true;
        lonely_forget(worker);
        worker_unblock(worker);
    }
}

void read_promoted(struct worker *worker, const struct event *event)
{
    enum { LEAST_MS = 5, MOST_MS = 1000 };
    worker->promoting = false;
    uint64_t due = event->failed ? MOST_MS : event->promoted.next_due_in_ms;
    due = due < LEAST_MS ? LEAST_MS : due > MOST_MS ? MOST_MS : due;
    worker->promote_at = after_ms(worker, due);
    if (event->failed)
        worker_call_failed(worker);
}

/* How many entries of the moving mean fit into `tokens` and `bytes`. */
static uint32_t entries_in(const struct worker *worker, double tokens, double bytes)
{
    double by_tokens = tokens / (worker->mean_tokens < 1 ? 1 : worker->mean_tokens);
    double by_bytes = bytes / (worker->mean_bytes < 1 ? 1 : worker->mean_bytes);
    double entries = by_tokens < by_bytes ? by_tokens : by_bytes;
    return entries < 0 ? 0 : entries > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)entries;
}

/* Entries that may be asked for beside `out` ones. Who holds nothing may always ask for one, however heavy entries are.
 */
static uint32_t room(const struct worker *worker, uint32_t out)
{
    const struct worker_options *options = &worker->options;
    uint32_t entries = entries_in(worker, (double)options->credit_tokens - (double)worker->held.tokens,
                                  (double)options->credit_bytes - (double)worker->held.bytes);
    if (worker->held.count == 0 && out == 0 && entries == 0)
        return 1;
    return entries > out ? entries - out : 0;
}

static void read_more(struct worker *worker)
{
    uint32_t count = room(worker, worker->reclaim_asked);
    uint32_t whole = entries_in(worker, worker->options.credit_tokens, (double)worker->options.credit_bytes);
    uint32_t worthwhile =
        whole / 4 < READ_MOST / 4 ? whole / 4 : READ_MOST / 4; /* few large reads, not many small ones */
    if (count == 0 || count < worthwhile)
        return;
    struct action *action = worker_act(worker, ACTION_READ);
    if (action == NULL)
        return;
    action->read.counts[CLASS_NORMAL] = action->read.count = count < READ_MOST ? count : READ_MOST;
    action->read.block_ms = worker->options.read_block_ms;
    worker->reading = true;
}

static void read_own(struct worker *worker)
{
    struct action *action = worker_act(worker, ACTION_READ_OWN);
    if (action == NULL)
        return;
    action->read.class = CLASS_NORMAL;
    action->read.count = worker->own_count;
    action->read.after = worker->own_after;
    worker->reading_own = true;
}

/* A blocked read has asked for all the room there is and may never get it; a few reclaimed entries are taken beside it.
 */
static void reclaim(struct worker *worker)
{
    uint32_t count = room(worker, 0);
    struct action *action = count == 0 ? NULL : worker_act(worker, ACTION_RECLAIM);
    if (action == NULL) {
        worker->reclaim_at = after_ms(worker, reclaim_interval_ms(worker));
        return;
    }
    action->read.class = CLASS_NORMAL;
    action->read.count = count < RECLAIM_MOST ? count : RECLAIM_MOST;
    action->read.judge = worker->now >= worker->judge_at;
    worker->reclaim_asked = action->read.count;
    worker->reclaiming = true;
}

static void renew(struct worker *worker)
{
    if (worker_act(worker, ACTION_RENEW) == NULL)
        return;
    worker->renewing = true;
    worker->renew_at = after_ms(worker, worker->options.lease_ms / 3);
}

bool read_quiet(const struct worker *worker)
{
    return !worker->reading && !worker->reading_own && !worker->reclaiming && !worker->renewing && !worker->promoting;
}

void read_advance(struct worker *worker)
{
    if (!worker_may_call(worker) || worker->leaving)
        return;
    if (!worker->renewing && !worker->lease_lost && worker->now >= worker->renew_at)
        renew(worker);
    if (!worker_takes_more(worker))
        return;
    if (worker->now >= worker->own_at) {
        if (!worker->reading && !worker->reading_own)
            read_own(worker);
    } else if (!worker->reading && !worker->reading_own && !worker->quiet) {
        read_more(worker);
    }
    if (worker->quiet)
        return;
    if (!worker->reclaiming && worker->own_at == NEVER && worker->now >= worker->reclaim_at)
        reclaim(worker);
    if (!worker->promoting && worker->now >= worker->promote_at && worker_act(worker, ACTION_PROMOTE) != NULL)
        worker->promoting = true;
}
