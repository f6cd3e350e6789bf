/* What a Redis that is nearly full allows. Replies may be larger than requests, so taking what waits can fill it; but
 * only taking it empties the streams, so nothing here ever ends progress.
 *
 * A request is counted with what Redis will keep of it before it begins. What may begin until the next look at Redis'
 * memory stays below what is left up to the ceiling, an equal part for each worker, and below a part of maxmemory that
 * fits even if others fill Redis meanwhile. From MEMORY_TIGHT_PERCENT on no more is held than batches at work. From
 * MEMORY_TRICKLE_PERCENT on one small batch begins at a time: at once when memory has fallen since the one before,
 * otherwise every few seconds; above the ceiling that is a single request of all workers, and each time twice as late.
 */
#include "base/clock.h"
#include "work/reply.h"
#include "work/worker_stages.h"

enum {
    LOOK_MS = 25,           /* between two looks of all workers together, while some wait for memory */
    TRICKLE_MOST = 16,      /* requests in a turn */
    TRICKLE_MS = 2000,      /* to the next turn, where memory does not fall; above the ceiling, of any worker … */
    TRICKLE_CAP_MS = 60000, /* … and at most */
    REPLY_KEYS = 1536,      /* of Redis, for a reply's key and all of its fields but the vectors */
    UNSEEN_PART = 20,       /* of maxmemory: what all workers together may add between two looks */
};

static uint32_t workers(const struct worker *worker)
{
    return worker->pulse.workers > 1 ? worker->pulse.workers : 1;
}

static uint64_t ceiling(const struct worker *worker)
{
    return worker->pulse.most_bytes / 100 * MEMORY_CEILING_PERCENT;
}

/* What may still be begun. */
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

/* Whether something that was read has not begun. */
static bool holds_unbegun(const struct worker *worker)
{
    bool holds = worker->loners.first != NULL;
    for (int class = 0; class < CLASS_COUNT; class ++) {
        holds |= worker->to_prepare[class].first != NULL || worker->suspects[class].first != NULL;
    }
    return holds;
}

/* Only the housekeeper hears of depths. */
static bool work_waits(const struct worker *worker)
{
    bool waits = holds_unbegun(worker);
    for (int class = 0; class < CLASS_COUNT; class ++) {
        const struct class_state *state = &worker->classes[class];
        waits |= worker->pulse.depth[class] > 0 || state->busy || state->left_out;
    }
    return waits;
}

/* --- looks -------------------------------------------------------------------------------------------------------- */

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

/* Above the ceiling memory has fallen when a usual reply fits into the difference. */
static bool has_fallen(const struct worker *worker, bool above)
{
    uint64_t reply = above ? REPLY_KEYS + worker->options.rules.dim * 16ull : 0;
    return worker->tight.begun == 0 && worker->pulse.used_bytes + reply < worker->tight.turn_used;
}

static void next_turn(struct worker *worker)
{
    struct tight *tight = &worker->tight;
    bool above = worker->pulse.used_bytes >= ceiling(worker), fallen = has_fallen(worker, above);
    if (!above) {
        tight->pause_ms = TRICKLE_MS;
    }
    if (!fallen && worker->now < tight->turn_at) {
        tight->turn_used = worker->pulse.used_bytes > tight->turn_used ? worker->pulse.used_bytes : tight->turn_used;
        return;
    }
    tight->turn_reads = tight->turn_begins = TRICKLE_MOST;
    tight->turn_used = worker->pulse.used_bytes;
    tight->turn_at = worker_after_ms(worker, (uint64_t)tight->pause_ms * (above ? workers(worker) : 1));
    if (above && !fallen) {
        tight->pause_ms = tight->pause_ms * 2 < TRICKLE_CAP_MS ? tight->pause_ms * 2 : TRICKLE_CAP_MS;
    }
}

static enum memory_level level_of(const struct pulse *pulse)
{
    double used = (double)pulse->used_bytes * 100, most = (double)pulse->most_bytes;
    if (most <= 0 || used < most * MEMORY_TIGHT_PERCENT) {
        return MEMORY_ROOM;
    }
    return used < most * MEMORY_TRICKLE_PERCENT ? MEMORY_TIGHT : MEMORY_TRICKLE;
}

void tight_pulsed(struct worker *worker)
{
    struct tight *tight = &worker->tight;
    uint64_t most = worker->pulse.most_bytes, used = worker->pulse.used_bytes;
    uint64_t room = used < ceiling(worker) ? ceiling(worker) - used : 0, unseen = most / UNSEEN_PART;
    bool anew = !trickles(worker);
    tight->ended_then = tight->ended_asked;
    tight->level = level_of(&worker->pulse);
    tight->allowed = most == 0 ? UINT64_MAX : (room < unseen ? room : unseen) / workers(worker);
    if (!trickles(worker)) {
        return;
    }
    if (anew) { /* above the ceiling not at once: it might be a worker that is started again and again */
        tight->pause_ms = TRICKLE_MS;
        tight->turn_at = worker_after_ms(worker, room == 0 ? (uint64_t)TRICKLE_MS * workers(worker) : 0);
        tight->turn_reads = tight->turn_begins = 0;
        tight->turn_used = 0;
    }
    if (tight->turn_begins < TRICKLE_MOST || tight->turn_reads == 0) { /* a turn that nobody needed yet stays */
        next_turn(worker);
    }
}

/* --- what may be read and begun ----------------------------------------------------------------------------------- */

uint32_t tight_reads(const struct worker *worker, uint32_t most)
{
    const struct tight *tight = &worker->tight;
    uint64_t fit = left(worker) / REPLY_KEYS, unbegun = worker->held.count - tight->begun;
    bool first = trickles(worker) ? tight->turn_reads == TRICKLE_MOST : worker->held.count == 0;
    if (trickles(worker) && (holds_unbegun(worker) || tight->turn_reads == 0)) {
        return 0;
    }
    if (trickles(worker) && tight->turn_reads < most) {
        most = tight->turn_reads;
    }
    fit = fit > unbegun ? fit - unbegun : 0;
    if (fit == 0 && first) {
        fit = 1;
    }
    return fit < most ? (uint32_t)fit : most;
}

static size_t reply_bytes(const struct request *request)
{
    return REPLY_KEYS + reply_bound(request) + request->meta_bytes + request->traceparent_bytes;
}

uint32_t tight_begins(const struct worker *worker, const struct request_list *list, uint32_t most)
{
    const struct tight *tight = &worker->tight;
    bool first = trickles(worker) ? tight->turn_begins == TRICKLE_MOST : tight->begun == 0;
    uint64_t bytes = 0;
    uint32_t count = 0, begin = 0;
    if (tight->allowed == UINT64_MAX) {
        return most;
    }
    for (const struct request *request = list->first; request != NULL && count < most; request = request->next) {
        if (request->reply_bytes == 0) {
            bytes += reply_bytes(request);
            bool fits = bytes <= left(worker) || (first && begin == 0);
            if (!fits || (trickles(worker) && begin == tight->turn_begins)) {
                break;
            }
            begin++;
        }
        count++;
    }
    return count;
}

void tight_taken(struct worker *worker)
{
    worker->tight.turn_reads -= worker->tight.turn_reads > 0;
}

void tight_begun(struct worker *worker, struct request *request)
{
    struct tight *tight = &worker->tight;
    if (request->reply_bytes > 0) {
        return;
    }
    request->reply_bytes = reply_bytes(request);
    tight->begun_bytes += request->reply_bytes;
    tight->begun++;
    tight->turn_begins -= tight->turn_begins > 0;
}

/* Of a request that never began an error remains. */
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
