/* What the thread does again and again: every request is looked at when its end was heard of, and once a second. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bulk/remote_state.h"

enum { BLOCK_MS = 20, LOOK_MS = 1000, PIPELINE = 16 };

static void deliver(struct remote *remote, struct bulk_batch *batch)
{
    uint64_t one = 1;
    pthread_mutex_lock(&remote->lock);
    remote->outbox[remote->out_count++] = batch;
    pthread_mutex_unlock(&remote->lock);
    if (write(remote->options.wake_fd, &one, sizeof one) < 0)
        return; /* the job looks now and then anyway */
}

/* Takes an ask out of the list; the last one of its batch ends that. */
static void finish(struct remote *remote, struct ask **link)
{
    struct ask *ask = *link;
    *link = ask->next;
    if (--ask->batch->asks == 0)
        deliver(remote, ask->batch);
    free(ask);
}

void remote_fail_all(struct remote *remote, enum status status, const char *message)
{
    while (remote->asks != NULL) {
        struct bulk_batch *batch = remote->asks->batch;
        batch->status = err_set(&batch->err, status, "%s", message);
        finish(remote, &remote->asks);
    }
}

static struct ask *new_ask(struct remote *remote, struct bulk_batch *batch)
{
    struct ask *ask = calloc(1, sizeof *ask);
    if (ask == NULL)
        return NULL;
    batch->asks++;
    ask->batch = batch;
    ask->next = remote->asks;
    remote->asks = ask;
    return ask;
}

/* A batch as requests that are not too large. */
static bool split(struct remote *remote, struct bulk_batch *batch)
{
    struct ask *ask = NULL;
    size_t bytes = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        size_t more = batch->pieces[i]->row.text_bytes;
        if (ask == NULL || ask->count == REMOTE_BATCH_ROWS || bytes + more > REMOTE_BATCH_BYTES) {
            if (ask != NULL)
                ask_name(ask, remote->options.job);
            ask = new_ask(remote, batch);
            bytes = 0;
        }
        if (ask == NULL)
            return false;
        ask->rows[ask->count++] = i;
        bytes += more;
    }
    ask_name(ask, remote->options.job);
    return true;
}

void remote_take_inbox(struct remote *remote)
{
    struct bulk_batch *batches[REMOTE_MOST];
    pthread_mutex_lock(&remote->lock);
    unsigned count = remote->in_count;
    memcpy(batches, remote->inbox, count * sizeof(struct bulk_batch *));
    remote->in_count = 0;
    pthread_mutex_unlock(&remote->lock);
    for (unsigned i = 0; i < count; i++) {
        if (split(remote, batches[i]))
            continue;
        batches[i]->status =
            err_set(&batches[i]->err, STATUS_NO_MEMORY, "no memory for a request of %u texts", batches[i]->count);
        if (batches[i]->asks == 0) {
            deliver(remote, batches[i]);
            continue;
        }
        for (struct ask **link = &remote->asks; *link != NULL;)
            if ((*link)->batch == batches[i])
                finish(remote, link);
            else
                link = &(*link)->next;
    }
}

static bool halve(struct remote *remote, struct ask *ask)
{
    struct ask *other = new_ask(remote, ask->batch);
    if (other == NULL)
        return false;
    uint32_t half = ask->count / 2;
    other->count = ask->count - half;
    memcpy(other->rows, ask->rows + half, other->count * sizeof ask->rows[0]);
    ask->count = half;
    ask->state = ASK_NEW;
    ask_name(ask, remote->options.job);
    ask_name(other, remote->options.job);
    return true;
}

/* What became of a request whose reply was read. True when it is no longer in the list. */
static bool settle(struct remote *remote, struct ask **link, enum ask_end end)
{
    struct ask *ask = *link;
    if (end == ASK_FULL)
        remote_shrink(remote);
    if (end == ASK_HALVE && !halve(remote, ask)) {
        ask->batch->status = err_set(&ask->batch->err, STATUS_NO_MEMORY, "no memory for a request");
        end = ASK_STOP;
    }
    if (end != ASK_DONE && end != ASK_STOP)
        return false;
    for (link = &remote->asks; *link != ask;) /* there may be a new one before it */
        link = &(*link)->next;
    finish(remote, link);
    return true;
}

static bool wants_look(const struct ask *ask, uint64_t now_ms)
{
    return ask->state == ASK_LOOKED || (ask->state == ASK_NEW && ask->due_ms <= now_ms);
}

/* Reads the replies of up to PIPELINE requests; those that have none and were not sent are sent. */
static enum status look_some(struct remote *remote, struct ask *const *some, unsigned count, struct err *err)
{
    const struct resp_value *reply;
    struct client *client = remote->client;
    char ended[PIPELINE][sizeof some[0]->id];
    struct ask *unsent[PIPELINE];
    unsigned ended_count = 0, unsent_count = 0;
    uint64_t now_ms = clock_now_ms();
    for (unsigned i = 0; i < count; i++)
        TRY(ask_look(some[i], &remote->options, client, err));
    for (unsigned i = 0; i < count; i++) {
        TRY(client_receive(client, &reply, err));
        memcpy(ended[ended_count], some[i]->id, sizeof ended[0]);
        enum ask_end end = ask_take(some[i], reply, &remote->options, now_ms);
        if (end == ASK_OPEN && some[i]->state == ASK_NEW)
            unsent[unsent_count++] = some[i];
        else if (end == ASK_OPEN)
            some[i]->state = ASK_SENT;
        if (end == ASK_OPEN)
            continue;
        ended_count++;
        remote_heard(remote, some[i], now_ms);
        struct ask **link = &remote->asks;
        while (*link != some[i])
            link = &(*link)->next;
        settle(remote, link, end);
    }
    for (unsigned i = 0; i < unsent_count; i++)
        TRY(ask_send(unsent[i], &remote->options, client, err));
    for (unsigned i = 0; i < ended_count; i++)
        TRY(ask_forget(ended[i], &remote->options, client, err));
    for (unsigned i = 0; i < unsent_count; i++) {
        TRY(client_receive(client, &reply, err));
        if (remote->cursor[0] == '\0' && reply->bytes != NULL) /* notices are not older than the first request */
            snprintf(remote->cursor, sizeof remote->cursor, "%llu-0", (unsigned long long)remote_number(reply) - 1);
        unsent[i]->state = ASK_SENT;
        unsent[i]->sent_ms = now_ms;
    }
    for (unsigned i = 0; i < ended_count; i++)
        TRY(client_receive(client, &reply, err));
    return STATUS_OK;
}

static enum status look(struct remote *remote, struct err *err)
{
    for (unsigned count = PIPELINE; count == PIPELINE;) {
        struct ask *some[PIPELINE];
        uint64_t now_ms = clock_now_ms();
        count = 0;
        for (struct ask *ask = remote->asks; ask != NULL && count < PIPELINE; ask = ask->next)
            if (wants_look(ask, now_ms))
                some[count++] = ask;
        if (count > 0)
            TRY(look_some(remote, some, count, err));
    }
    return STATUS_OK;
}

/* Waits a moment for ends of requests: entries of `id status entry`. */
static enum status listen(struct remote *remote, struct err *err)
{
    char key[256], block[16];
    snprintf(key, sizeof key, "sluice:{%s}:results:bulk", remote->options.queue);
    snprintf(block, sizeof block, "%d", (int)BLOCK_MS);
    const char *const words[] = {"XREAD", "COUNT", "1000", "BLOCK", block, "STREAMS", key, remote->cursor};
    const struct resp_value *reply;
    TRY(client_send(remote->client, 8, words, NULL, BLOCK_MS, err));
    TRY(client_receive(remote->client, &reply, err));
    if (reply->type != RESP_ARRAY || reply->count == 0 || reply->items[0].count != 2)
        return STATUS_OK;
    const struct resp_value *entries = &reply->items[0].items[1];
    for (size_t i = 0; i < entries->count; i++) {
        const struct resp_value *entry = &entries->items[i];
        if (entry->count != 2 || entry->items[0].bytes == NULL)
            continue;
        snprintf(remote->cursor, sizeof remote->cursor, "%.60s", entry->items[0].bytes);
        const struct resp_value *fields = &entry->items[1];
        if (fields->count < 2)
            continue;
        for (struct ask *ask = remote->asks; ask != NULL; ask = ask->next)
            if (ask->state == ASK_SENT && resp_equals(&fields->items[1], ask->id))
                ask->state = ASK_LOOKED;
    }
    return STATUS_OK;
}

enum status remote_turn(struct remote *remote, struct err *err)
{
    TRY(look(remote, err));
    uint64_t now_ms = clock_now_ms();
    if (now_ms - remote->looked_ms >= LOOK_MS)
        TRY(remote_look_around(remote, now_ms, err));
    if (remote->cursor[0] != '\0')
        return listen(remote, err);
    poll(NULL, 0, BLOCK_MS);
    return STATUS_OK;
}
