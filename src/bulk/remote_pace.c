/* What is done once a second with the figures that the workers publish in `meta`: entries that nobody has read, and how
 * long one that came now would wait.
 *
 * They also tell whether Redis still knows what was asked: an entry is read about when they say, and then takes as long
 * as others did. Who may only do what a producer may cannot look into the stream, so that after FLUSHALL, or a restart
 * that has lost the last second, silence is all there is to notice. What is asked again in vain is computed twice, and
 * nothing else is wrong with it: so each time that takes twice as long. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "bulk/remote_state.h"

enum { FORGOTTEN_MS = 5000, WAITING_FACTOR = 16, STALE_MS = 5000, REPEATS_MAX = 10 };

enum field { DEPTH, WAIT, PUBLISHED, FIELDS };

void remote_shrink(struct remote *remote)
{
    unsigned limit = atomic_load(&remote->limit) / 2;
    atomic_store(&remote->limit, limit > REMOTE_LEAST ? limit : REMOTE_LEAST);
}

void remote_heard(struct remote *remote, const struct ask *ask, uint64_t now_ms)
{
    uint64_t took_ms = ask->sent_ms > 0 ? now_ms - ask->sent_ms : 0;
    remote->heard_ms = now_ms;
    remote->slowest_ms -= remote->slowest_ms / 16; /* an outage is forgotten again */
    remote->slowest_ms = took_ms > remote->slowest_ms ? took_ms : remote->slowest_ms;
}

/* More requests where the workers have read all that there were, fewer where many wait: of us or of others. */
static void pace(struct remote *remote, uint64_t waiting)
{
    unsigned limit = atomic_load(&remote->limit), out = atomic_load(&remote->out);
    if (waiting <= limit / 4 && out >= limit)
        atomic_store(&remote->limit, 2 * limit < REMOTE_MOST ? 2 * limit : REMOTE_MOST);
    else if (waiting > limit + (unsigned)REMOTE_MOST)
        remote_shrink(remote);
}

/* Whether a worker is there: it publishes each second. */
static bool is_fresh(struct remote *remote, const struct resp_value *published, uint64_t now_ms)
{
    if (published->bytes == NULL)
        return false;
    if (!resp_equals(published, remote->published)) {
        snprintf(remote->published, sizeof remote->published, "%s", published->bytes);
        remote->published_ms = now_ms;
    }
    return now_ms - remote->published_ms < STALE_MS;
}

/* Sends again what should have ended long ago. While anything of this job ends, the workers are at it; and while as
 * much waits as this job has asked for, it may be all of that (of a queue that is paused). */
static void ask_forgotten(struct remote *remote, uint64_t waiting, uint64_t wait_ms, uint64_t now_ms)
{
    uint64_t patience_ms = FORGOTTEN_MS + REMOTE_BATCH_ROWS * wait_ms + 2 * remote->slowest_ms;
    patience_ms *= waiting >= atomic_load(&remote->out) ? WAITING_FACTOR : 1;
    for (struct ask *ask = remote->asks; ask != NULL; ask = ask->next) {
        uint64_t since_ms = ask->sent_ms > remote->heard_ms ? ask->sent_ms : remote->heard_ms;
        if (ask->state == ASK_NEW || now_ms - since_ms < patience_ms << ask->repeats)
            continue;
        ask->state = ASK_NEW; /* its reply is looked for before it is sent */
        ask->repeats += ask->repeats < REPEATS_MAX;
    }
}

enum status remote_look_around(struct remote *remote, uint64_t now_ms, struct err *err)
{
    char key[256];
    const struct resp_value *reply;
    const char *const words[] = {"HMGET", key, "depth_low", "wait_ms_low", "published_at"};
    remote->looked_ms = now_ms;
    for (struct ask *ask = remote->asks; ask != NULL; ask = ask->next)
        if (ask->state == ASK_SENT)
            ask->state = ASK_LOOKED;
    snprintf(key, sizeof key, "sluice:{%s}:meta", remote->options.queue);
    TRY(client_command(remote->client, FIELDS + 2, words, NULL, &reply, err));
    if (reply->type != RESP_ARRAY || reply->count != FIELDS)
        return STATUS_OK;
    const struct resp_value *items = reply->items;
    uint64_t waiting = remote_number(&items[DEPTH]);
    pace(remote, waiting);
    bool works = items[WAIT].bytes != NULL && items[WAIT].bytes[0] != '-'; /* -1: nobody does */
    if (is_fresh(remote, &items[PUBLISHED], now_ms) && works)
        ask_forgotten(remote, waiting, remote_number(&items[WAIT]), now_ms);
    return STATUS_OK;
}
