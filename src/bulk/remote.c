/* The two ends of the executor: what the job calls, and the thread's connection to Redis. */
#include "bulk/remote.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bulk/remote_state.h"

enum { TIMEOUT_MS = 5000, DOWN_MS = 60000, PAUSE_MS = 200 };
/* How long after a stop answers are waited for. */
enum { STOP_MS = 5000 };

static bool remote_has_room(const struct executor *executor)
{
    const struct remote *remote = (const struct remote *)executor;
    return atomic_load(&remote->out) < atomic_load(&remote->limit);
}

static void remote_put(struct executor *executor, struct bulk_batch *batch)
{
    struct remote *remote = (struct remote *)executor;
    atomic_fetch_add(&remote->out, 1);
    pthread_mutex_lock(&remote->lock);
    remote->inbox[remote->in_count++] = batch;
    pthread_mutex_unlock(&remote->lock);
}

static struct bulk_batch *remote_take(struct executor *executor)
{
    struct remote *remote = (struct remote *)executor;
    struct bulk_batch *batch = NULL;
    if (remote->options.stop != NULL && *remote->options.stop != 0)
        atomic_store(&remote->stopping, true);
    pthread_mutex_lock(&remote->lock);
    if (remote->out_count > 0) {
        batch = remote->outbox[0];
        memmove(remote->outbox, remote->outbox + 1, --remote->out_count * sizeof(struct bulk_batch *));
    }
    pthread_mutex_unlock(&remote->lock);
    if (batch == NULL)
        return NULL;
    atomic_fetch_sub(&remote->out, 1);
    return batch;
}

/* The connection is gone: what Redis has got of the requests is not known. */
static void lose(struct remote *remote)
{
    client_close(remote->client);
    remote->client = NULL;
    for (struct ask *ask = remote->asks; ask != NULL; ask = ask->next)
        if (ask->state == ASK_LOOKED)
            ask->state = ASK_SENT;
}

static bool connect_again(struct remote *remote, struct err *err)
{
    uint64_t now_ms = clock_now_ms();
    if (remote->down_ms == 0)
        remote->down_ms = now_ms;
    enum status status = client_open(remote->options.address, TIMEOUT_MS, &remote->client, err);
    if (status == STATUS_OK) {
        remote->down_ms = 0;
        remote->looked_ms = 0;
        remote->heard_ms = clock_now_ms();
        return true;
    }
    remote->client = NULL;
    if (status == STATUS_DENIED || status == STATUS_NO_MEMORY || now_ms - remote->down_ms > DOWN_MS)
        remote_fail_all(remote, status, err->message);
    poll(NULL, 0, PAUSE_MS);
    return false;
}

/* Ctrl-C: answers that come soon are taken, others are there when the job goes on. */
static void look_at_stop(struct remote *remote)
{
    if (!atomic_load(&remote->stopping))
        return;
    uint64_t now_ms = clock_now_ms();
    if (remote->stopped_ms == 0)
        remote->stopped_ms = now_ms;
    if (now_ms - remote->stopped_ms > STOP_MS)
        remote_fail_all(remote, STATUS_UNAVAILABLE, "stopped before the queue had answered everything");
}

static void *serve(void *context)
{
    struct remote *remote = context;
    struct err err;
    while (!atomic_load(&remote->closing)) {
        remote_take_inbox(remote);
        look_at_stop(remote);
        if (remote->client == NULL && !connect_again(remote, &err))
            continue;
        enum status status = remote_turn(remote, &err);
        if (status == STATUS_OK)
            continue;
        lose(remote);
        poll(NULL, 0, PAUSE_MS);
        if (status == STATUS_DENIED || status == STATUS_INTERNAL || status == STATUS_NO_MEMORY)
            remote_fail_all(remote, status, err.message);
    }
    remote_fail_all(remote, STATUS_UNAVAILABLE, "stopped");
    client_close(remote->client);
    return NULL;
}

static void remote_close(struct executor *executor)
{
    struct remote *remote = (struct remote *)executor;
    atomic_store(&remote->closing, true);
    pthread_join(remote->thread, NULL);
    pthread_mutex_destroy(&remote->lock);
    free(remote);
}

static const struct executor_ops remote_ops = {remote_has_room, remote_put, remote_take, remote_close};

enum status remote_open(const struct remote_options *options, struct executor **out, struct err *err)
{
    struct remote *remote = calloc(1, sizeof *remote);
    if (remote == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the executor");
    remote->executor = (struct executor){.ops = &remote_ops, .batches = REMOTE_MOST};
    remote->options = *options;
    atomic_init(&remote->limit, REMOTE_FIRST);
    pthread_mutex_init(&remote->lock, NULL);
    if (pthread_create(&remote->thread, NULL, serve, remote) != 0) {
        pthread_mutex_destroy(&remote->lock);
        free(remote);
        return err_set(err, STATUS_IO, "cannot start a thread");
    }
    *out = &remote->executor;
    return STATUS_OK;
}
