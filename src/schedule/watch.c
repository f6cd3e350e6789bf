/* Events that only time brings about. Fixed windows end, rows expire, and a batch that hangs ends the
 * worker, because nothing else can end that batch. */
#include "schedule/worker/watch.h"

#include "base/clock.h"
#include "schedule/worker_internal.h"

enum { HANG_GRACE_MS = 200 };

static uint64_t watched_since(const struct batch *batch)
{
    uint64_t stepped = atomic_load_explicit(&batch->stepped_ns, memory_order_relaxed);
    return stepped > batch->watched_ns ? stepped : batch->watched_ns;
}

/* The time at which the first of the running batches has taken too long. Background batches may be slow. */
static uint64_t hangs_at(const struct worker *worker)
{
    enum { BACKGROUND_FACTOR = 10 };
    uint64_t timeout_ns = worker->options.compute_timeout_ms * NS_PER_MS, first = NEVER;
    for (const struct batch *batch = worker->cut.running.first; batch != NULL && timeout_ns > 0; batch = batch->next) {
        uint64_t ends = watched_since(batch) + (batch->background ? BACKGROUND_FACTOR : 1) * timeout_ns;
        if (batch->watched_ns != 0 && ends < first) { first = ends; }
    }
    return first;
}

void watch_slept(struct worker *worker, uint64_t late_ns)
{
    enum { STOPPED_MS = 50 };
    if (late_ns <= STOPPED_MS * NS_PER_MS) { return; }
    worker->watch.hang_seen = 0;
    for (struct batch *batch = worker->cut.running.first; batch != NULL; batch = batch->next) {
        if (batch->watched_ns != 0) { batch->watched_ns = watched_since(batch) + late_ns; }
    }
}

/* If this process was stopped, an overdue batch may be back already, so it gets a little more time. */
bool watch_ends(struct worker *worker)
{
    if (worker->now < hangs_at(worker)) {
        worker->watch.hang_seen = 0;
    } else if (worker->watch.hang_seen == 0) {
        worker->watch.hang_seen = worker->now;
    }
    if (worker->watch.hang_seen == 0 || worker->now < worker->watch.hang_seen + HANG_GRACE_MS * NS_PER_MS) {
        return false;
    }
    leave_drain(worker, 0,
                STATUS_TIMEOUT); /* any held request may be the cause: the next worker gets them as suspects */
    return true;
}

/* Ends expired requests with all their rows. All rows are read first, because each points to its request, which may be
 * freed once it is finished. */
void watch_expired(struct worker *worker)
{
    struct request_list expired = {0};
    for (struct row *row = window_take_expired(&worker->window); row != NULL; row = row->next) {
        struct request *request = row->request;
        if (request->retry.code != CODE_NONE) { /* failed by an earlier row */
            continue;
        }
        request_fail(request, CODE_EXPIRED, "expired before it was started");
        rows_drop(worker, request);
        request_list_push(&expired, request);
    }
    for (struct request *request; (request = request_list_pop(&expired)) != NULL;) { settle_finish(worker, request); }
}

/* Answers expired rows even if no batch is cut, but only every EXPIRE_MS, because it reads all waiting rows. */
void watch_advance(struct worker *worker)
{
    enum { EXPIRE_MS = 50 };
    struct window *window = &worker->window;
    uint64_t now_ms = worker_redis_ms(worker);
    if (window->expires_at_ms == 0 || now_ms < window->expires_at_ms || worker->now < worker->watch.expire_at) {
        return;
    }
    worker->watch.expire_at = worker->now + EXPIRE_MS * NS_PER_MS;
    window_expire(window, now_ms);
    watch_expired(worker);
}

static uint64_t expiry_at(const struct worker *worker)
{
    enum { FAR_MS = 24 * 3600 * 1000 };
    uint64_t expires_ms = worker->window.expires_at_ms, now_ms = worker_redis_ms(worker);
    if (expires_ms == 0 || now_ms == 0) { return NEVER; }
    uint64_t in_ms = expires_ms > now_ms ? expires_ms - now_ms : 0;
    uint64_t at = worker->now + (in_ms < FAR_MS ? in_ms : FAR_MS) * NS_PER_MS;
    return at > worker->watch.expire_at ? at : worker->watch.expire_at;
}

uint64_t watch_deadline(const struct worker *worker)
{
    uint64_t next = hangs_at(worker), expires = expiry_at(worker);
    if (worker->watch.hang_seen != 0) { next = worker->watch.hang_seen + HANG_GRACE_MS * NS_PER_MS; }
    next = expires < next ? expires : next;
    if (worker->options.window_fixed && worker->window.rows > 0) {
        uint64_t ends = window_oldest_ns(&worker->window) + worker->options.window_ms * NS_PER_MS;
        next = ends < next ? ends : next;
    }
    return next;
}
