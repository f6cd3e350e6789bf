/* From a stream entry to the first stage of its request. A request whose outcome is known (malformed, a cancel,
 * expired, refused, poison) is settled at once, one that is not due is parked, a suspect waits until its run is
 * recorded, and all others are prepared. */
#include "base/clock.h"
#include "schedule/reply.h"
#include "schedule/worker_internal.h"

/* --- memory: the limits of a nearly full Redis. Replies may be larger than requests, so serving the waiting requests
 * can fill Redis; but only serving them empties the streams, so nothing here ever stops progress.
 *
 * Before a request begins, the bytes that Redis will keep of it are counted. The requests that may begin until the next
 * look at Redis' memory stay below the room up to the ceiling, an equal part for each worker, and below a part of
 * maxmemory that fits even if others fill Redis meanwhile. The room is divided among all workers of this daemon's
 * queues. Workers of other queues on the same Redis are unknown here, so no part is larger than an eighth: as long as
 * there are no more than eight in all, or all daemons serve the same queues, the parts add up to the room at most. From
 * MEMORY_TIGHT_PERCENT on no more is held than the running batches. From MEMORY_TRICKLE_PERCENT on one small batch
 * begins at a time: at once if memory has fallen since the last one, otherwise every few seconds; above the ceiling it
 * is one request of all workers, with a pause that doubles each time. --- */

enum {
    LOOK_MS = 25,           /* between two looks by any worker, while some wait for memory */
    TRICKLE_MOST = 16,      /* requests in a turn */
    TRICKLE_MS = 2000,      /* to the next turn if memory does not fall; above the ceiling, to that of any worker */
    TRICKLE_CAP_MS = 60000, /* the longest such pause */
    REPLY_KEYS = 1536,      /* bytes in Redis for a reply's key and all fields but the vectors */
    UNSEEN_PART = 20,       /* the part of maxmemory (1 in 20) that all workers together may add between two looks */
    SHARERS_LEAST = 8,      /* the least number of parts into which that is divided */
};

static uint32_t workers(const struct worker *worker)
{
    return worker->pulse.workers > 1 ? worker->pulse.workers : 1;
}

/* The number of workers of all this daemon's queues, if all daemons serve the same queues. */
static uint32_t sharers(const struct worker *worker)
{
    return workers(worker) * (worker->options.queues > 1 ? worker->options.queues : 1);
}

static uint64_t ceiling(const struct worker *worker)
{
    return worker->pulse.most_bytes / 100 * MEMORY_CEILING_PERCENT;
}

/* The bytes of replies that may still begin. */
static uint64_t left(const struct worker *worker)
{
    const struct tight *tight = &worker->tight;
    uint64_t out = tight->begun_bytes - tight->ended_then;
    return tight->allowed == UINT64_MAX ? UINT64_MAX : tight->allowed > out ? tight->allowed - out : 0;
}

static bool trickles(const struct worker *worker)
{
    return worker->tight.level == MEMORY_TRICKLE;
}

/* Returns whether a held request has not begun. */
static bool holds_unbegun(const struct worker *worker)
{
    bool holds = worker->quarantine.first;
    for (int c = 0; c < CLASS_COUNT; c++) { holds |= worker->to_prepare[c].first != NULL || worker->suspects[c].first; }
    return holds;
}

/* Returns whether work waits, here or in Redis; only the housekeeper knows depths. */
static bool work_waits(const struct worker *worker)
{
    bool waits = holds_unbegun(worker);
    for (int c = 0; c < CLASS_COUNT; c++) {
        const struct class_state *state = &worker->classes[c];
        waits |= worker->pulse.depth[c] > 0 || state->busy || state->left_out;
    }
    return waits;
}

/* --- looks --- */

uint64_t tight_look_ms(const struct worker *worker)
{
    enum { REGULAR_MS = 1000 };
    const struct tight *tight = &worker->tight;
    uint64_t look_ms = (uint64_t)LOOK_MS * workers(worker);
    bool scarce = trickles(worker) ? tight->turn_begins < TRICKLE_MOST : left(worker) < tight->allowed / 2;
    return scarce && look_ms < REGULAR_MS && work_waits(worker) ? look_ms : REGULAR_MS;
}

void tight_asked(struct worker *worker)
{
    worker->tight.ended_asked = worker->tight.ended_bytes;
}

/* Above the ceiling, memory counts as fallen only if a usual reply of every worker fits into the difference, because
 * all may see it. */
static bool has_fallen(const struct worker *worker, bool above)
{
    uint64_t replies = above ? (REPLY_KEYS + worker->options.rules.dim * 16ull) * sharers(worker) : 0;
    return worker->tight.begun == 0 && worker->pulse.used_bytes + replies < worker->tight.turn_used;
}

static void next_turn(struct worker *worker)
{
    struct tight *tight = &worker->tight;
    bool above = worker->pulse.used_bytes >= ceiling(worker), fallen = has_fallen(worker, above);
    if (!above) { tight->pause_ms = TRICKLE_MS; }
    if (!fallen && worker->now < tight->turn_at) {
        tight->turn_used = worker->pulse.used_bytes > tight->turn_used ? worker->pulse.used_bytes : tight->turn_used;
        return;
    }
    tight->turn_reads = tight->turn_begins = TRICKLE_MOST;
    tight->turn_used = worker->pulse.used_bytes;
    tight->turn_at = worker_after_ms(worker, (uint64_t)tight->pause_ms * (above ? sharers(worker) : 1));
    if (above && !fallen) {
        tight->pause_ms = tight->pause_ms * 2 < TRICKLE_CAP_MS ? tight->pause_ms * 2 : TRICKLE_CAP_MS;
    }
}

static enum memory_level level_of(const struct pulse *pulse)
{
    double used = (double)pulse->used_bytes * 100, most = (double)pulse->most_bytes;
    if (most <= 0 || used < most * MEMORY_TIGHT_PERCENT) { return MEMORY_ROOM; }
    return used < most * MEMORY_TRICKLE_PERCENT ? MEMORY_TIGHT : MEMORY_TRICKLE;
}

void tight_pulsed(struct worker *worker)
{
    struct tight *tight = &worker->tight;
    uint64_t most = worker->pulse.most_bytes, used = worker->pulse.used_bytes;
    uint64_t room = used < ceiling(worker) ? ceiling(worker) - used : 0, unseen = most / UNSEEN_PART;
    uint32_t parts = sharers(worker) > SHARERS_LEAST ? sharers(worker) : SHARERS_LEAST;
    bool anew = !trickles(worker);
    tight->ended_then = tight->ended_asked;
    tight->level = level_of(&worker->pulse);
    tight->allowed = most == 0 ? UINT64_MAX : (room < unseen ? room : unseen) / parts;
    if (!trickles(worker)) { return; }
    if (anew) { /* not at once above the ceiling: the worker may be one that restarts again and again */
        tight->pause_ms = TRICKLE_MS;
        tight->turn_at = worker_after_ms(worker, room == 0 ? (uint64_t)TRICKLE_MS * sharers(worker) : 0);
        tight->turn_reads = tight->turn_begins = 0;
        tight->turn_used = 0;
    }
    /* A turn that was not used yet is kept. It is over, too, if all requests that were read in it ended before they
     * began. */
    if (tight->turn_begins < TRICKLE_MOST || tight->turn_reads < TRICKLE_MOST) { next_turn(worker); }
}

/* --- how much may be read and begun --- */

uint32_t tight_reads(const struct worker *worker, uint32_t most)
{
    const struct tight *tight = &worker->tight;
    uint64_t fit = left(worker) / REPLY_KEYS, unbegun = worker->held.count - tight->begun;
    bool first = trickles(worker) ? tight->turn_reads == TRICKLE_MOST : worker->held.count == 0;
    if (trickles(worker) && (holds_unbegun(worker) || tight->turn_reads == 0)) { return 0; }
    if (trickles(worker) && tight->turn_reads < most) { most = tight->turn_reads; }
    fit = fit > unbegun ? fit - unbegun : 0;
    if (fit == 0 && first) { fit = 1; }
    return fit < most ? (uint32_t)fit : most;
}

static size_t reply_bytes(const struct request *request)
{
    size_t vectors = reply_bound(request) * (request->output.into ? 2 : 1);
    return REPLY_KEYS + vectors + request->identity.meta_bytes + request->identity.traceparent_bytes +
           request->identity.tracestate_bytes + request->identity.ignored_bytes;
}

uint32_t tight_begins(const struct worker *worker, const struct request_list *list, uint32_t most)
{
    const struct tight *tight = &worker->tight;
    bool first = trickles(worker) ? tight->turn_begins == TRICKLE_MOST : tight->begun == 0;
    uint64_t bytes = 0;
    uint32_t count = 0, begin = 0;
    if (tight->allowed == UINT64_MAX) { return most; }
    for (const struct request *request = list->first; request != NULL && count < most; request = request->next) {
        if (request->reply_bytes == 0) {
            bytes += reply_bytes(request);
            bool fits = bytes <= left(worker) || (first && begin == 0);
            if (!fits || (trickles(worker) && begin == tight->turn_begins)) { break; }
            begin++;
        }
        count++;
    }
    return count;
}

void tight_begun(struct worker *worker, struct request *request)
{
    struct tight *tight = &worker->tight;
    if (request->reply_bytes > 0) { return; }
    request->reply_bytes = reply_bytes(request);
    tight->begun_bytes += request->reply_bytes;
    tight->begun++;
    tight->turn_begins -= tight->turn_begins > 0;
}

/* A request that never began leaves an error reply. */
void tight_ended(struct worker *worker, struct request *request)
{
    struct tight *tight = &worker->tight;
    if (request->reply_bytes > 0) {
        tight->begun--;
    } else {
        request->reply_bytes = REPLY_KEYS;
        tight->begun_bytes += REPLY_KEYS;
    }
    tight->ended_bytes += request->reply_bytes;
}

/* --- from an entry to its first stage --- */

enum { PARSE_AGAIN_MS = 1000, RETRY_AFTER_LEAST_MS = 1000, RETRY_AFTER_MOST_MS = 3600 * 1000 };

uint64_t entry_bytes(const struct entry *entry)
{
    uint64_t bytes = entry->oversize_bytes;
    for (size_t i = 0; i < entry->field_count; i++) {
        bytes += entry->fields[i].name_length + entry->fields[i].value_length;
    }
    return bytes;
}

/* The cost of an entry: its fields on the wire and in Redis' answer, kept or not; or the request, if that is larger. An
 * oversize entry was not read and has no fields here. */
static double weight(const struct entry *entry, const struct request *request)
{
    uint64_t bytes = entry->oversize ? 0 : request->identity.entry_bytes;
    return (double)(bytes > request->bytes ? bytes : request->bytes);
}

static void count(struct worker *worker, const struct request *request)
{
    struct worker_stats *stats = &worker->stats;
    stats->received++;
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
static bool park(struct worker *worker, struct request *request)
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

static void start(struct worker *worker, struct request *request)
{
    bool stray = request->identity.origin == ORIGIN_STRAY; /* a quiet worker leaves it to others */
    if (!worker_takes_more(worker) || (stray && worker->quiet)) {
        settle_release(worker, request);
        return;
    }
    if (admit_expired(worker, request)) {
        settle_finish(worker, request);
        return;
    }
    if (park(worker, request)) { return; }
    if (request->retry.suspect) {
        worker->stats.suspects++;
        quarantine_add(worker, request);
    } else {
        run_accept(worker, request);
    }
}

/* The time that a refused producer should wait: until the known backlog before it is done. */
static uint32_t retry_after_ms(const struct worker *worker, enum request_class class)
{
    double rows = 0, rate = pace_rows_per_s(worker);
    for (int before = 0; before <= (int)class; before++) { rows += (double)worker->pulse.depth[before]; }
    double wait_ms = rate > 0 ? rows / rate * 1000 : 0;
    return wait_ms < RETRY_AFTER_LEAST_MS  ? RETRY_AFTER_LEAST_MS
           : wait_ms > RETRY_AFTER_MOST_MS ? RETRY_AFTER_MOST_MS
                                           : (uint32_t)wait_ms;
}

void admit_refused(struct worker *worker, struct request *request)
{
    request_fail(request, CODE_QUEUE_FULL, "more requests wait for their time than the queue takes; try again later");
    request->retry.retry_after_ms = retry_after_ms(worker, request->identity.class);
    settle_finish(worker, request);
}

static void route(struct worker *worker, struct request *request)
{
    if (request->retry.quarantined && request->retry.quarantine_runs >= POISON_RUNS &&
        request->identity.target[0] == '\0') {
        request_fail(request, CODE_POISON, "crashed %u workers while running alone", request->retry.quarantine_runs);
    }
    if (request->retry.code == CODE_QUEUE_FULL) {
        request->retry.retry_after_ms = retry_after_ms(worker, request->identity.class);
    }
    if (request->retry.code != CODE_NONE) {
        settle_finish(worker, request);
    } else if (request->identity.target[0] != '\0') {
        settle_as(worker, request, OUTCOME_CANCEL);
    } else {
        start(worker, request);
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
        read_own_after_ms(worker, PARSE_AGAIN_MS);
        return;
    }
    request->identity.entry_bytes = entry_bytes(entry);
    held_add(&worker->held, request);
    worker->urgent += request->retry.urgent;
    worker->tight.turn_reads -= worker->tight.turn_reads > 0;
    worker_weigh(&worker->classes[entry->class].mean_bytes, weight(entry, request));
    worker->classes[entry->class].tenants |= request->identity.tenant[0] != '\0';
    count(worker, request);
    if (entry->vanished) {
        settle_gone(worker, request);
    } else {
        route(worker, request);
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
        route(worker, request);
    } else if (request->lifetime.outcome == OUTCOME_DEFER && request->retry.code == CODE_NONE) {
        request->retry.next_attempt = request->retry.attempt;
        settle_as(worker, request, OUTCOME_DEFER);
    } else if (request->lifetime.outcome == OUTCOME_GONE || request->lifetime.outcome == OUTCOME_CANCEL) {
        settle_as(worker, request, request->lifetime.outcome);
    } else {
        settle_finish(worker, request);
    }
}
