/* From an entry to its first stage: what becomes of an entry that was read. */
#include "schedule/worker/admit.h"

#include "base/clock.h"
#include "schedule/worker_internal.h"

enum { PARSE_AGAIN_MS = 1000, RETRY_AFTER_MIN_MS = 1000, RETRY_AFTER_MAX_MS = 3600 * 1000 };

uint64_t entry_bytes(const struct entry *entry)
{
    uint64_t bytes = entry->oversize_bytes;
    for (size_t i = 0; i < entry->field_count; i++) {
        bytes += entry->fields[i].name_length + entry->fields[i].value_length;
    }
    return bytes;
}

static void count_entry(struct worker *worker, const struct request *request)
{
    struct worker_stats *stats = &worker->stats;
    stats->requests_received++;
    stats->reclaimed += request->identity.origin == ORIGIN_RECLAIMED;
    stats->strays += request->identity.origin == ORIGIN_STRAY;
    stats->taken_ahead += request->identity.origin == ORIGIN_FAIR;
    stats->ids_ahead += request->identity.ahead;
    if (request->identity.ahead) { chores_mend_soon(worker); }
}

bool admit_expired(const struct worker *worker, struct request *request)
{
    uint64_t now_ms = worker_redis_ms(worker);
    if (now_ms == 0 || request->lifetime.expires_at_ms == 0 || now_ms < request->lifetime.expires_at_ms) {
        return false;
    }
    request_fail(request, CODE_EXPIRED, "expired before it was started");
    return true;
}

/* Parks a request that is not due yet: lua/defer keeps it until then, or until it expires if that is earlier. It was
 * not tried, so the next run has the same number. */
static bool park_request(struct worker *worker, struct request *request)
{
    if (request->lifetime.expires_at_ms != 0 && request->lifetime.expires_at_ms < request->lifetime.due_at_ms) {
        request->lifetime.due_at_ms = request->lifetime.expires_at_ms;
    }
    if (worker_ms_until(worker, request->lifetime.due_at_ms) == 0) { return false; }
    request->lifetime.due_ms = 0;
    request->retry.next_attempt = request->retry.attempt;
    settle_as(worker, request, OUTCOME_DEFER);
    return true;
}

static void start_request(struct worker *worker, struct request *request)
{
    bool stray = request->identity.origin == ORIGIN_STRAY; /* a quiet worker leaves it to others */
    if (!worker_takes_more(worker) || (stray && worker->quiet)) {
        leave_release(worker, request);
        return;
    }
    if (admit_expired(worker, request)) {
        settle_finish(worker, request);
        return;
    }
    if (park_request(worker, request)) { return; }
    if (request->retry.suspect) {
        worker->stats.suspects++;
        quarantine_add(worker, request);
    } else {
        prep_queue_accept(worker, request);
    }
}

/* The time that a refused producer should wait: until the known backlog before it is done. */
static uint32_t retry_after_ms(const struct worker *worker, enum request_class class)
{
    double rows = 0, rate = pace_rows_per_s(worker);
    for (int before = 0; before <= (int)class; before++) { rows += (double)worker->pulse.last.depth[before]; }
    double wait_ms = rate > 0 ? rows / rate * 1000 : 0;
    return wait_ms < RETRY_AFTER_MIN_MS   ? RETRY_AFTER_MIN_MS
           : wait_ms > RETRY_AFTER_MAX_MS ? RETRY_AFTER_MAX_MS
                                          : (uint32_t)wait_ms;
}

void admit_refused(struct worker *worker, struct request *request)
{
    request_fail(request, CODE_QUEUE_FULL, "more requests wait for their time than the queue takes; try again later");
    request->retry.retry_after_ms = retry_after_ms(worker, request->identity.class);
    settle_finish(worker, request);
}

static void route_request(struct worker *worker, struct request *request)
{
    if (request->retry.quarantined && request->identity.target[0] == '\0') {
        (void)quarantine_poisons(request, request->retry.quarantine_runs);
    }
    if (request->retry.code == CODE_QUEUE_FULL) {
        request->retry.retry_after_ms = retry_after_ms(worker, request->identity.class);
    }
    if (request->retry.code != CODE_NONE) {
        settle_finish(worker, request);
    } else if (request->identity.target[0] != '\0') {
        settle_as(worker, request, OUTCOME_CANCEL);
    } else {
        start_request(worker, request);
    }
}

void admit_entry(struct worker *worker, const struct entry *entry)
{
    struct request *held = held_find(&worker->held, entry->class, entry->id);
    if (held) { /* delivered again: the group was recreated, or it was taken ahead of its turn */
        held->lifetime.delivered_again |= entry->origin != ORIGIN_OWN;
        return;
    }
    struct request *request = request_parse(&worker->options.rules, entry, worker->now);
    if (!request) { /* pending with us, but unknown: our own list will bring it again */
        own_read_after_ms(worker, PARSE_AGAIN_MS);
        return;
    }
    request->identity.entry_bytes = entry_bytes(entry);
    held_add(&worker->held, request);
    quarantine_admitted(worker, request);
    memory_admitted(worker);
    /* An entry costs its fields on the wire, kept or not, or the request if that is larger. An oversize one was not
     * read. */
    uint64_t wire = entry->oversize ? 0 : request->identity.entry_bytes;
    read_note_bytes(worker, entry->class, (double)(wire > request->bytes ? wire : request->bytes));
    fairness_admitted(worker, request);
    count_entry(worker, request);
    if (entry->vanished) {
        settle_gone(worker, request);
    } else {
        route_request(worker, request);
    }
}

/* Forgets the data that came with `_id`, above all the recorded runs of another request. */
void admit_disowned(struct worker *worker, struct request *request)
{
    bool poison = request->retry.code == CODE_POISON && !request->lifetime.unread;
    request_disown(request);
    worker->stats.disowned++;
    if (poison) {
        request->retry.code = CODE_NONE;
        route_request(worker, request);
    } else if (request->lifetime.outcome == OUTCOME_DEFER && request->retry.code == CODE_NONE) {
        request->retry.next_attempt = request->retry.attempt;
        settle_as(worker, request, OUTCOME_DEFER);
    } else if (request->lifetime.outcome == OUTCOME_GONE || request->lifetime.outcome == OUTCOME_CANCEL) {
        settle_as(worker, request, request->lifetime.outcome);
    } else {
        settle_finish(worker, request);
    }
}
