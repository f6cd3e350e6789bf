/* Redis closes a connection without a message when it sends or receives more there than one of its limits:
 * client-output-buffer-limit, client-query-buffer-limit, proto-max-bulk-len, maxmemory-clients. A worker's login may
 * not read the limits, so they are concluded from events. The only evidence is a server that is the same process as
 * before and has closed one of our two connections, not both (LOSS_READER, LOSS_WRITER). Then:
 *
 * - Large replies are sent one at a time for a while, and no call that may bring a large answer is out on the same
 *   connection. A reply whose connection is closed LIMIT_PROOFS times in this way cannot be sent: its request is
 *   answered too_large, and for a while so is every request whose reply is at least as long.
 * - Our pending entries are listed by id, and those that are not held are read alone. An entry whose connection is
 *   closed LIMIT_PROOFS times in this way cannot be read: it is answered too_large, unread; for a while one such time
 *   is enough.
 * - Other answers are requested in smaller pieces.
 *
 * A restarted server cancels all of this, and a connection that ends in any other way is no evidence. */
#include "schedule/worker/redis_limits.h"

#include "base/clock.h"
#include "schedule/reply.h"
#include "schedule/worker_internal.h"

enum {
    LIMIT_PROOFS = 3,
    LARGE_BYTES = 64 << 10,     /* no limit on the bytes that a client sends is below 1 MiB, except maxmemory-clients */
    ANSWER_MAX_BYTES = 4 << 20, /* of one answer: Redis does nothing else while it writes one */
    ANSWER_MIN_BYTES = 32 << 10,
    ANSWER_GROWS_MS = 10 * 60 * 1000,
    WARY_MS = 60 * 1000,
};

void limits_open(struct worker *worker)
{
    worker->limits = (struct redis_limits){.answer_bytes = ANSWER_MAX_BYTES};
}

uint64_t limits_answer_bytes(const struct worker *worker)
{
    return worker->limits.answer_bytes;
}

uint32_t limits_claim(const struct worker *worker, enum request_class class, uint32_t most)
{
    return worker->limits.answer_bytes < ANSWER_MAX_BYTES && most > 0 ? read_max(worker, class, most) : most;
}

/* The limit may have been raised, or the connection closed by hand. */
void limits_asked(struct worker *worker)
{
    struct redis_limits *limits = &worker->limits;
    if (limits->answer_bytes == ANSWER_MAX_BYTES || worker->now < limits->answer_grows_at) { return; }
    limits->answer_bytes *= 2;
    limits->answer_grows_at = worker_after_ms(worker, ANSWER_GROWS_MS);
}

static void shrink_answers(struct worker *worker)
{
    struct redis_limits *limits = &worker->limits;
    limits->answer_grows_at = worker_after_ms(worker, ANSWER_GROWS_MS);
    if (limits->answer_bytes > ANSWER_MIN_BYTES) { limits->answer_bytes /= 2; }
}

static bool same_entry(const struct cut_entry *entry, enum request_class class, struct entry_id id)
{
    return entry->class == class && entry_id_compare(entry->id, id) == 0;
}

void limits_reads_alone(struct worker *worker, enum request_class class, struct entry_id id)
{
    worker->limits.alone = (struct cut_entry){.class = class, .id = id};
}

void limits_own_answered(struct worker *worker, bool failed, bool entries)
{
    struct redis_limits *limits = &worker->limits;
    limits->alone_lost = failed && entry_id_is_set(limits->alone.id);
    limits->read_lost |= failed && entries;
}

void limits_new_answered(struct worker *worker, bool failed)
{
    worker->limits.read_lost = failed;
}

void limits_claim_failed(struct worker *worker)
{
    worker->limits.claim_lost = true;
}

void limits_connected(struct worker *worker, enum loss loss)
{
    struct redis_limits *limits = &worker->limits;
    struct cut_entry *entry = &limits->entry;
    if (loss == LOSS_RESTART) {
        limits_open(worker);
    } else if (loss == LOSS_READER) {
        if (limits->read_lost) { shrink_answers(worker); }
        if (limits->alone_lost) {
            uint32_t cuts = same_entry(entry, limits->alone.class, limits->alone.id) ? entry->cuts : 0;
            *entry = (struct cut_entry){limits->alone.class, limits->alone.id, cuts + 1};
        }
    } else if (loss == LOSS_WRITER && limits->claim_lost) {
        shrink_answers(worker);
    }
    limits->own_by_id = loss == LOSS_READER || loss == LOSS_WRITER;
    limits->read_lost = limits->alone_lost = limits->claim_lost = false;
}

bool limits_entry_refused(struct worker *worker, enum request_class class, struct entry_id id)
{
    struct redis_limits *limits = &worker->limits;
    uint32_t proofs = worker->now < limits->entries_until ? 1 : LIMIT_PROOFS;
    if (!same_entry(&limits->entry, class, id) || limits->entry.cuts < proofs) { return false; }
    limits->entries_until = worker_after_ms(worker, WARY_MS);
    return true;
}

bool limits_sends_alone(const struct worker *worker, const struct request *request)
{
    return reply_length(request) >= LARGE_BYTES && worker->now < worker->limits.wary_until;
}

bool limits_reply_refused(const struct worker *worker, struct request *request)
{
    const struct redis_limits *limits = &worker->limits;
    size_t length = reply_length(request);
    if (worker->now >= limits->replies_until || length < limits->reply_bytes || request->retry.code != CODE_NONE) {
        return false;
    }
    request_fail(request, CODE_TOO_LARGE,
                 "Redis closes the connection on which its reply of %zu bytes is sent: that is more than its "
                 "proto-max-bulk-len, client-query-buffer-limit or maxmemory-clients allows",
                 length);
    return true;
}

void limits_reply_unanswered(struct worker *worker, struct request *request, enum loss loss)
{
    struct redis_limits *limits = &worker->limits;
    bool was_out = request->lifetime.unanswered, large = reply_length(request) >= LARGE_BYTES;
    request->lifetime.unanswered = false;
    if (loss == LOSS_RESTART) { request->lifetime.cuts = 0; }
    if (loss != LOSS_WRITER || !was_out || !large) { return; }
    limits->wary_until = worker_after_ms(worker, WARY_MS);
    /* The first time, other replies may have been on their way, too. */
    if (request->lifetime.cuts == 0 || request->lifetime.single) { request->lifetime.cuts++; }
    if (request->lifetime.cuts <= LIMIT_PROOFS) { return; }
    limits->reply_bytes = reply_length(request);
    limits->replies_until = worker_after_ms(worker, WARY_MS);
}
