/* What time alone brings about while rows wait and batches run: windows that are fixed end, rows expire, and a batch
 * that hangs ends the worker, because nothing else can end that batch. */
#include "base/clock.h"
#include "work/worker_stages.h"

enum { HANG_GRACE_MS = 200 };

/* The compute threads take batches in turn, so the first so many are being run, as far as this thread can know. */
void watch_batches(struct worker *worker)
{
    uint32_t slots = worker->options.engine_slots;
    for (struct batch *batch = worker->running.first; batch != NULL; batch = batch->next) {
        if (batch->watched_ns == 0 && !batch->waits && (slots > 0 || batch->spare))
            batch->watched_ns = worker->now;
        slots -= slots > 0 && !batch->spare;
    }
}

/* When the first of the batches that are being run has taken too long. Spare time may be scarce. */
static uint64_t hangs_at(const struct worker *worker)
{
    enum { SPARE_FACTOR = 10 };
    uint64_t timeout_ns = worker->options.compute_timeout_ms * NS_PER_MS, first = NEVER;
    for (const struct batch *batch = worker->running.first; batch != NULL && timeout_ns > 0; batch = batch->next) {
        uint64_t ends = batch->watched_ns + (batch->spare ? SPARE_FACTOR : 1) * timeout_ns;
        if (batch->watched_ns != 0 && ends < first)
            first = ends;
    }
    return first;
}

void watch_slept(struct worker *worker, uint64_t late_ns)
{
    enum { STOPPED_MS = 50 };
    if (late_ns <= STOPPED_MS * NS_PER_MS)
        return;
    worker->hang_seen = 0;
    for (struct batch *batch = worker->running.first; batch != NULL; batch = batch->next)
        batch->watched_ns += batch->watched_ns != 0 ? late_ns : 0;
}

/* A batch that is overdue may be back already, if this process had been stopped: it gets a moment more to be seen. */
bool watch_ends(struct worker *worker)
{
    if (worker->now < hangs_at(worker))
        worker->hang_seen = 0;
    else if (worker->hang_seen == 0)
        worker->hang_seen = worker->now;
    if (worker->hang_seen == 0 || worker->now < worker->hang_seen + HANG_GRACE_MS * NS_PER_MS)
        return false;
    settle_drain(worker, 0, STATUS_TIMEOUT); /* it may be any of what is held: the next worker has them as suspects */
    return true;
}

/* Requests that may not start any more, with all their rows. */
void watch_expired(struct worker *worker)
{
    for (struct row *row = window_take_expired(&worker->window), *next; row != NULL; row = next) {
        struct request *request = row->request;
        next = row->next;
        if (request->code != CODE_NONE) /* by a row before this one */
            continue;
        request_fail(request, CODE_EXPIRED, "expired before it was started");
        rows_drop(worker, request);
        settle_finish(worker, request);
    }
}

/* A row that expires is answered then, also when no batch is cut; not more often than this, for it costs a look at all
 * that wait. */
void watch_advance(struct worker *worker)
{
    enum { EXPIRE_MS = 50 };
    struct window *window = &worker->window;
    uint64_t now_ms = worker_redis_ms(worker);
    if (window->expires_at_ms == 0 || now_ms < window->expires_at_ms || worker->now < worker->expire_at)
        return;
    worker->expire_at = worker->now + EXPIRE_MS * NS_PER_MS;
    window_expire(window, now_ms);
    watch_expired(worker);
}

static uint64_t expiry_at(const struct worker *worker)
{
    enum { FAR_MS = 24 * 3600 * 1000 };
    uint64_t expires_ms = worker->window.expires_at_ms, now_ms = worker_redis_ms(worker);
    if (expires_ms == 0 || now_ms == 0)
        return NEVER;
    uint64_t in_ms = expires_ms > now_ms ? expires_ms - now_ms : 0;
    uint64_t at = worker->now + (in_ms < FAR_MS ? in_ms : FAR_MS) * NS_PER_MS;
    return at > worker->expire_at ? at : worker->expire_at;
}

uint64_t watch_deadline(const struct worker *worker)
{
    uint64_t next = hangs_at(worker), expires = expiry_at(worker);
    if (worker->hang_seen != 0)
        next = worker->hang_seen + HANG_GRACE_MS * NS_PER_MS;
    next = expires < next ? expires : next;
    if (worker->options.window_fixed && worker->window.rows > 0) {
        uint64_t ends = window_oldest_ns(&worker->window) + worker->options.window_ms * NS_PER_MS;
        next = ends < next ? ends : next;
    }
    return next;
}
