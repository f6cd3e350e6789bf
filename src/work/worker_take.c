/* From a stream entry to the first stage of its request: what is already decided (malformed, a cancel, expired,
 * refused, poison) goes straight to its settle, what is not due yet is parked, suspects wait until they are charged,
 * and only the rest is prepared. */
#include "base/clock.h"
#include "work/worker_stages.h"

enum { TRACK_MOST = 64, PARSE_AGAIN_MS = 1000, RETRY_AFTER_LEAST_MS = 1000, RETRY_AFTER_MOST_MS = 3600 * 1000 };

uint64_t entry_bytes(const struct entry *entry)
{
    uint64_t bytes = entry->oversize_bytes;
    for (size_t i = 0; i < entry->field_count; i++)
        bytes += entry->fields[i].name_length + entry->fields[i].value_length;
    return bytes;
}

/* What an entry costs: on the line and in Redis' answer its fields, whatever of them is kept; then the request. One
 * that was not read weighs nothing here. */
static double weight(const struct entry *entry, const struct request *request)
{
    uint64_t bytes = entry->oversize ? 0 : request->entry_bytes;
    return (double)(bytes > request->bytes ? bytes : request->bytes);
}

static void count(struct worker *worker, const struct request *request)
{
    struct worker_stats *stats = &worker->stats;
    stats->received++;
    stats->reclaimed += request->origin == ORIGIN_RECLAIMED;
    stats->taken_ahead += request->origin == ORIGIN_FAIR;
    stats->unknown_fields += request->unknown_fields;
    stats->ids_ahead += request->ahead;
    if (request->ahead)
        chores_mend_soon(worker);
}

bool take_expired(const struct worker *worker, struct request *request)
{
    uint64_t now_ms = worker_redis_ms(worker);
    if (now_ms == 0 || request->expires_at_ms == 0 || now_ms < request->expires_at_ms)
        return false;
    request_fail(request, CODE_EXPIRED, "expired before it was started");
    return true;
}

/* Not due yet: parked by lua/defer until then, or until it expires if that is earlier. Nothing was tried, so the next
 * run has the same number. */
static bool park(struct worker *worker, struct request *request)
{
    if (request->expires_at_ms != 0 && request->expires_at_ms < request->due_at_ms)
        request->due_at_ms = request->expires_at_ms;
    if (worker_ms_until(worker, request->due_at_ms) == 0)
        return false;
    request->due_ms = 0;
    request->next_attempt = request->attempt;
    settle_as(worker, request, OUTCOME_DEFER);
    return true;
}

/* Behind its track, which is only a courtesy: it is due now, and runs. */
static void start(struct worker *worker, struct request *request)
{
    if (!worker_takes_more(worker)) {
        settle_release(worker, request);
        return;
    }
    if (take_expired(worker, request)) {
        settle_finish(worker, request);
        return;
    }
    if (park(worker, request))
        return;
    if (request->suspect)
        lonely_add(worker, request);
    else
        compute_accept(worker, request);
}

/* How long a refused producer should wait: until what is before it has gone, as far as is known. */
static uint32_t retry_after_ms(const struct worker *worker, enum request_class class)
{
    double rows = 0, rate = pace_rows_per_s(worker);
    for (int before = 0; before <= (int)class; before++)
        rows += (double)worker->pulse.depth[before];
    double wait_ms = rate > 0 ? rows / rate * 1000 : 0;
    return wait_ms < RETRY_AFTER_LEAST_MS  ? RETRY_AFTER_LEAST_MS
           : wait_ms > RETRY_AFTER_MOST_MS ? RETRY_AFTER_MOST_MS
                                           : (uint32_t)wait_ms;
}

void take_refused(struct worker *worker, struct request *request)
{
    request_fail(request, CODE_QUEUE_FULL, "more requests wait for their time than the queue takes; try again later");
    request->retry_after_ms = retry_after_ms(worker, request->class);
    settle_finish(worker, request);
}

static void route(struct worker *worker, struct request *request)
{
    if (request->alone && request->lonely_runs >= POISON_LONELY_RUNS && request->target[0] == '\0')
        request_fail(request, CODE_POISON, "crashed %u workers while running alone", request->lonely_runs);
    if (request->code == CODE_QUEUE_FULL)
        request->retry_after_ms = retry_after_ms(worker, request->class);
    if (request->code != CODE_NONE)
        settle_finish(worker, request);
    else if (request->target[0] != '\0')
        settle_as(worker, request, OUTCOME_CANCEL);
    else if (request->track && worker_takes_more(worker) && worker->tight.level != MEMORY_TRICKLE)
        request_list_push(&worker->to_track, request);
    else
        start(worker, request);
}

void take_entry(struct worker *worker, const struct entry *entry)
{
    struct request *held = held_find(&worker->held, entry->class, entry->id);
    if (held != NULL) { /* new to us once more: the group was made again, or it had been taken ahead of its turn */
        held->delivered_again |= entry->origin != ORIGIN_OWN;
        return;
    }
    struct request *request = request_parse(&worker->options.rules, entry, worker->now);
    if (request == NULL) { /* pending with us and unknown to us: the own list will bring it again */
        read_own_after_ms(worker, PARSE_AGAIN_MS);
        return;
    }
    request->entry_bytes = entry_bytes(entry);
    held_add(&worker->held, request);
    worker->urgent += request->urgent;
    tight_taken(worker);
    worker_weigh(&worker->classes[entry->class].mean_bytes, weight(entry, request));
    worker->classes[entry->class].tenants |= request->tenant[0] != '\0';
    count(worker, request);
    if (entry->vanished)
        settle_gone(worker, request);
    else
        route(worker, request);
}

/* Known to be its own after all: what `_id` had brought with it, a charge of others above all, is forgotten. */
void take_disowned(struct worker *worker, struct request *request)
{
    bool poison = request->code == CODE_POISON && !request->unread;
    request_disown(request);
    worker->stats.disowned++;
    if (poison) {
        request->code = CODE_NONE;
        route(worker, request);
    } else if (request->outcome == OUTCOME_DEFER && request->code == CODE_NONE) {
        request->next_attempt = request->attempt;
        settle_as(worker, request, OUTCOME_DEFER);
    } else if (request->outcome == OUTCOME_GONE || request->outcome == OUTCOME_CANCEL) {
        settle_as(worker, request, request->outcome);
    } else {
        settle_finish(worker, request);
    }
}

void take_tracked(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    worker->tracking = false;
    if (event->failed)
        worker_call_failed(worker);
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        worker->stats.tracked += !event->failed;
        start(worker, request);
    }
}

void take_unstarted(struct worker *worker)
{
    for (struct request *request; (request = request_list_pop(&worker->to_track)) != NULL;)
        settle_release(worker, request);
}

void take_advance(struct worker *worker)
{
    if (worker->tracking || worker->to_track.first == NULL || !worker_may_call(worker))
        return;
    struct action *action = worker_act(worker, ACTION_TRACK);
    if (action == NULL)
        return;
    while (worker->to_track.first != NULL && action->requests.count < TRACK_MOST) {
        struct request *request = request_list_pop(&worker->to_track);
        request->due_ms = worker_ms_until(worker, request->due_at_ms);
        request_list_push(&action->requests, request);
    }
    worker->tracking = true;
}
