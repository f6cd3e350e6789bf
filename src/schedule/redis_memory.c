/* The limits of a nearly full Redis. Replies may be larger than requests, so serving the waiting requests
 * can fill Redis; but only serving them empties the streams, so nothing here ever stops progress.
 *
 * Before a request begins, the bytes that Redis will keep of it are counted. The requests that may begin until the next
 * look at Redis' memory stay below the room up to the ceiling, an equal part for each worker, and below a part of
 * maxmemory that fits even if others fill Redis meanwhile. The room is divided among all workers of this daemon's
 * queues. Workers of other queues on the same Redis are unknown here, so no part is larger than an eighth: as long as
 * there are no more than eight in all, or all daemons serve the same queues, the parts add up to the room at most. From
 * MEMORY_LOW_PERCENT on no more is held than the running batches. From MEMORY_CRITICAL_PERCENT on one small batch
 * begins at a time: at once if memory has fallen since the last one, otherwise every few seconds; above the ceiling it
 * is one request of all workers, with a pause that doubles each time. */
#include "schedule/worker/redis_memory.h"

#include "base/clock.h"
#include "base/json.h"
#include "schedule/reply.h"
#include "schedule/worker_internal.h"

enum {
    LOOK_MS = 25,              /* between two looks by any worker, while some wait for memory */
    STREAM_TOKEN = 96,         /* bytes in Redis for a token in a stream of tokens, and in the record of those sent */
    TURN_MAX = 16,             /* requests in a turn */
    TURN_PAUSE_MS = 2000,      /* to the next turn if memory does not fall; above the ceiling, to that of any worker */
    TURN_PAUSE_MAX_MS = 60000, /* the longest such pause */
    REPLY_KEYS = 1536,         /* bytes in Redis for a reply's key and all fields but the vectors */
    UNSEEN_PART = 20,          /* the part of maxmemory (1 in 20) that all workers together may add between two looks */
    SHARERS_MIN = 8,           /* the least number of parts into which that is divided */
};

static uint32_t count_queue_workers(const struct worker *worker)
{
    return worker->pulse.last.workers > 1 ? worker->pulse.last.workers : 1;
}

/* The number of workers of all this daemon's queues, if all daemons serve the same queues. */
static uint32_t count_sharers(const struct worker *worker)
{
    return count_queue_workers(worker) * (worker->options.queues > 1 ? worker->options.queues : 1);
}

static uint64_t ceiling_bytes(const struct worker *worker)
{
    return worker->pulse.last.most_bytes / 100 * MEMORY_CEILING_PERCENT;
}

/* The bytes of replies that may still begin. */
static uint64_t bytes_left(const struct worker *worker)
{
    const struct redis_memory *memory = &worker->memory;
    uint64_t out = memory->begun_bytes - memory->ended_then;
    return memory->allowed == UINT64_MAX ? UINT64_MAX : memory->allowed > out ? memory->allowed - out : 0;
}

static bool is_critical(const struct worker *worker)
{
    return worker->memory.level == MEMORY_CRITICAL;
}

/* Returns whether a held request has not begun. */
static bool holds_unbegun(const struct worker *worker)
{
    bool holds = worker->quarantine.waiting.first;
    for (int c = 0; c < CLASS_COUNT; c++) {
        holds |= worker->prep.waiting[c].first != NULL || worker->quarantine.suspects[c].first;
    }
    return holds;
}

/* Returns whether work waits, here or in Redis; only the housekeeper knows depths. */
static bool work_waits(const struct worker *worker)
{
    bool waits = holds_unbegun(worker);
    for (int c = 0; c < CLASS_COUNT; c++) {
        const struct read_class *state = &worker->read.classes[c];
        waits |= worker->pulse.last.depth[c] > 0 || state->busy || state->left_out;
    }
    return waits;
}

/* --- looks --- */

void memory_open(struct worker *worker)
{
    worker->memory.allowed = UINT64_MAX; /* nothing is claimed before the first pulse, which sets it */
}

uint64_t memory_look_ms(const struct worker *worker)
{
    enum { REGULAR_MS = 1000 };
    const struct redis_memory *memory = &worker->memory;
    uint64_t look_ms = (uint64_t)LOOK_MS * count_queue_workers(worker);
    bool scarce = is_critical(worker) ? memory->turn_begins < TURN_MAX : bytes_left(worker) < memory->allowed / 2;
    return scarce && look_ms < REGULAR_MS && work_waits(worker) ? look_ms : REGULAR_MS;
}

void memory_asked(struct worker *worker)
{
    worker->memory.ended_asked = worker->memory.ended_bytes;
}

/* Above the ceiling, memory counts as fallen only if a usual reply of every worker fits into the difference, because
 * all may see it. */
static bool has_fallen(const struct worker *worker, bool above)
{
    uint64_t replies = above ? (REPLY_KEYS + worker->options.rules.dim * 16ull) * count_sharers(worker) : 0;
    return worker->memory.begun == 0 && worker->pulse.last.used_bytes + replies < worker->memory.turn_used;
}

static void next_turn(struct worker *worker)
{
    struct redis_memory *memory = &worker->memory;
    bool above = worker->pulse.last.used_bytes >= ceiling_bytes(worker), fallen = has_fallen(worker, above);
    if (!above) { memory->pause_ms = TURN_PAUSE_MS; }
    if (!fallen && worker->now < memory->turn_at) {
        memory->turn_used =
            worker->pulse.last.used_bytes > memory->turn_used ? worker->pulse.last.used_bytes : memory->turn_used;
        return;
    }
    memory->turn_reads = memory->turn_begins = TURN_MAX;
    memory->turn_used = worker->pulse.last.used_bytes;
    memory->turn_at = worker_after_ms(worker, (uint64_t)memory->pause_ms * (above ? count_sharers(worker) : 1));
    if (above && !fallen) {
        memory->pause_ms = memory->pause_ms * 2 < TURN_PAUSE_MAX_MS ? memory->pause_ms * 2 : TURN_PAUSE_MAX_MS;
    }
}

static enum memory_level memory_level_of(const struct pulse *pulse)
{
    double used = (double)pulse->used_bytes * 100, most = (double)pulse->most_bytes;
    if (most <= 0 || used < most * MEMORY_LOW_PERCENT) { return MEMORY_ROOM; }
    return used < most * MEMORY_CRITICAL_PERCENT ? MEMORY_LOW : MEMORY_CRITICAL;
}

void memory_pulsed(struct worker *worker)
{
    struct redis_memory *memory = &worker->memory;
    uint64_t most = worker->pulse.last.most_bytes, used = worker->pulse.last.used_bytes;
    uint64_t room = used < ceiling_bytes(worker) ? ceiling_bytes(worker) - used : 0, unseen = most / UNSEEN_PART;
    uint32_t parts = count_sharers(worker) > SHARERS_MIN ? count_sharers(worker) : SHARERS_MIN;
    bool anew = !is_critical(worker);
    memory->ended_then = memory->ended_asked;
    memory->level = memory_level_of(&worker->pulse.last);
    memory->allowed = most == 0 ? UINT64_MAX : (room < unseen ? room : unseen) / parts;
    if (!is_critical(worker)) { return; }
    if (anew) { /* not at once above the ceiling: the worker may be one that restarts again and again */
        memory->pause_ms = TURN_PAUSE_MS;
        memory->turn_at = worker_after_ms(worker, room == 0 ? (uint64_t)TURN_PAUSE_MS * count_sharers(worker) : 0);
        memory->turn_reads = memory->turn_begins = 0;
        memory->turn_used = 0;
    }
    /* A turn that was not used yet is kept. It is over, too, if all requests that were read in it ended before they
     * began. */
    if (memory->turn_begins < TURN_MAX || memory->turn_reads < TURN_MAX) { next_turn(worker); }
}

/* --- how much may be read and begun --- */

uint32_t memory_reads(const struct worker *worker, uint32_t most)
{
    const struct redis_memory *memory = &worker->memory;
    uint64_t fit = bytes_left(worker) / REPLY_KEYS, unbegun = worker->held.count - memory->begun;
    bool first = is_critical(worker) ? memory->turn_reads == TURN_MAX : worker->held.count == 0;
    if (is_critical(worker) && (holds_unbegun(worker) || memory->turn_reads == 0)) { return 0; }
    if (is_critical(worker) && memory->turn_reads < most) { most = memory->turn_reads; }
    fit = fit > unbegun ? fit - unbegun : 0;
    if (fit == 0 && first) { fit = 1; }
    return fit < most ? (uint32_t)fit : most;
}

void memory_admitted(struct worker *worker)
{
    worker->memory.turn_reads -= worker->memory.turn_reads > 0;
}

static size_t reply_bytes(const struct request *request)
{
    const struct request_echoes echoes = request_echoes(request);
    size_t bytes = REPLY_KEYS + reply_bound(request) * (request->output.into ? 2 : 1);
    if (request->writing && request->output.stream[0]) { bytes += STREAM_TOKEN * reply_most_tokens(request); }
    for (int i = 0; i < REQUEST_ECHOES; i++) {
        bytes += JSON_ESCAPE_BYTES * echoes.fields[i].length; /* `info` may escape each of them */
    }
    return bytes;
}

uint32_t memory_begins(const struct worker *worker, const struct request_list *list, uint32_t most)
{
    const struct redis_memory *memory = &worker->memory;
    bool first = is_critical(worker) ? memory->turn_begins == TURN_MAX : memory->begun == 0;
    uint64_t bytes = 0;
    uint32_t count = 0, begin = 0;
    if (memory->allowed == UINT64_MAX) { return most; }
    for (const struct request *request = list->first; request != NULL && count < most; request = request->next) {
        if (request->reply_bytes == 0) {
            bytes += reply_bytes(request);
            bool fits = bytes <= bytes_left(worker) || (first && begin == 0);
            if (!fits || (is_critical(worker) && begin == memory->turn_begins)) { break; }
            begin++;
        }
        count++;
    }
    return count;
}

void memory_begun(struct worker *worker, struct request *request)
{
    struct redis_memory *memory = &worker->memory;
    if (request->reply_bytes > 0) { return; }
    request->reply_bytes = reply_bytes(request);
    memory->begun_bytes += request->reply_bytes;
    memory->begun++;
    memory->turn_begins -= memory->turn_begins > 0;
}

/* A request that never began leaves an error reply. */
void memory_ended(struct worker *worker, struct request *request)
{
    struct redis_memory *memory = &worker->memory;
    if (request->reply_bytes > 0) {
        memory->begun--;
    } else {
        request->reply_bytes = REPLY_KEYS;
        memory->begun_bytes += REPLY_KEYS;
    }
    memory->ended_bytes += request->reply_bytes;
}
