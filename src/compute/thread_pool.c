/* One mutex guards the ring of items and the number that each slot holds. So an item never goes to a thread while a
 * thread that holds less is about to take it. */
#include "compute/thread_pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/channel.h"
#include "base/system.h"

struct thread_slot {
    struct thread_pool *pool;
    void *context;
    pthread_t id;
    size_t holds; /* items taken but not finished */
    bool left;    /* it takes nothing more */
};

struct thread_pool {
    char name[12]; /* of the threads, before their numbers */
    void (*work)(void *context, void *item);
    void (*serve)(void *context, struct thread_slot *slot);
    size_t capacity, wake_below;
    int wake_fd;      /* written by this file if wake_below is set, else by the channel */
    size_t items_out; /* the owner's count; only its thread reads it */
    struct channel *out;

    pthread_mutex_t lock; /* of all below, and of the slots' `holds` and `left` */
    pthread_cond_t not_empty, ends;
    void **items; /* [capacity], a ring, the next at `first` */
    size_t first, count;
    bool stopping;

    unsigned running;
    struct thread_slot slots[];
};

/* ---- the threads' side ---- */

/* The number of waiting items that belong to slots which hold less than this one. A slot that holds none takes any. */
static size_t count_lacking(const struct thread_slot *slot)
{
    const struct thread_pool *pool = slot->pool;
    size_t count = 0;
    if (slot->holds == 0) { return 0; }
    for (unsigned i = 0; i < pool->running; i++) {
        if (!pool->slots[i].left && pool->slots[i].holds < slot->holds) { count += slot->holds - pool->slots[i].holds; }
    }
    return count;
}

static void *pop_item(struct thread_pool *pool)
{
    void *item = pool->items[pool->first];
    pool->first = (pool->first + 1) % pool->capacity;
    pool->count--;
    return item;
}

void *thread_pool_next(struct thread_slot *slot)
{
    struct thread_pool *pool = slot->pool;
    void *item = NULL;
    pthread_mutex_lock(&pool->lock);
    while (slot->holds == 0 && pool->count == 0 && !pool->stopping) {
        pthread_cond_wait(&pool->not_empty, &pool->lock);
    }
    if (pool->count > count_lacking(slot)) {
        item = pop_item(pool);
        slot->holds++;
    }
    pthread_mutex_unlock(&pool->lock);
    return item;
}

void thread_pool_finish(struct thread_slot *slot, void *item)
{
    const struct thread_pool *pool = slot->pool;
    pthread_mutex_lock(&slot->pool->lock);
    assert(slot->holds > 0);
    slot->holds--;
    bool low = pool->count < pool->wake_below;
    pthread_mutex_unlock(&slot->pool->lock);
    bool sent = channel_send(pool->out, item);
    assert(sent); /* nobody closes `out`, and it has room for every item */
    const uint64_t one = 1;
    while (low && sent && write(pool->wake_fd, &one, sizeof one) < 0 && errno == EINTR) { continue; }
}

void thread_pool_leave(struct thread_slot *slot)
{
    pthread_mutex_lock(&slot->pool->lock);
    slot->left = true;
    pthread_mutex_unlock(&slot->pool->lock);
}

static void work_one_by_one(void *context, struct thread_slot *slot)
{
    void *item;
    while ((item = thread_pool_next(slot))) {
        slot->pool->work(context, item);
        thread_pool_finish(slot, item);
    }
}

/* A thread names itself. To name another one is to write to /proc, and the state that the kernel then keeps there makes
 * a process that waits for a killed one spin until the nicest thread of that one has run once more.
 * A thread that has left waits here until thread_pool_close joins it. */
static void *thread_main(void *argument)
{
    struct thread_slot *slot = argument;
    struct thread_pool *pool = slot->pool;
    char name[16];
    snprintf(name, sizeof name, "%s-%u", pool->name, (unsigned)(slot - pool->slots) % 1000);
    pthread_setname_np(pthread_self(), name);
    (pool->serve ? pool->serve : work_one_by_one)(slot->context, slot);
    pthread_mutex_lock(&pool->lock);
    slot->left = true;
    while (!pool->stopping) { pthread_cond_wait(&pool->ends, &pool->lock); }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* ---- opening ---- */

static enum status start_threads(struct thread_pool *pool, const struct thread_pool_options *options, struct err *err)
{
    int failed = 0;
    pthread_mutex_lock(&pool->lock); /* no thread counts slots before all are filled in */
    for (unsigned i = 0; i < options->threads && failed == 0; i++) {
        struct thread_slot *slot = &pool->slots[i];
        slot->pool = pool;
        slot->context = options->contexts ? (char *)options->contexts + i * options->context_bytes : NULL;
        failed = thread_start(&slot->id, thread_main, slot);
        if (failed != 0) { break; }
        pool->running++;
    }
    pthread_mutex_unlock(&pool->lock);
    if (failed != 0) {
        return err_set(err, STATUS_IO, "cannot start a %s thread: %s", options->name, strerror(failed));
    }
    return STATUS_OK;
}

enum status thread_pool_open(const struct thread_pool_options *options, struct thread_pool **out, struct err *err)
{
    struct thread_pool *pool = calloc(1, sizeof *pool + options->threads * sizeof pool->slots[0]);
    if (!pool) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u %s threads", options->threads, options->name);
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->not_empty, NULL);
    pthread_cond_init(&pool->ends, NULL);
    snprintf(pool->name, sizeof pool->name, "%s", options->name);
    pool->work = options->work;
    pool->serve = options->serve;
    pool->capacity = options->capacity;
    pool->wake_below = options->wake_fd < 0 ? 0 : options->wake_below;
    pool->wake_fd = options->wake_fd;
    pool->items = calloc(options->capacity, sizeof(void *));
    enum status status = STATUS_OK;
    if (!pool->items) { status = err_set(err, STATUS_NO_MEMORY, "no memory for a queue of %zu", options->capacity); }
    if (status == STATUS_OK) {
        status = channel_open(options->capacity, pool->wake_below > 0 ? -1 : options->wake_fd, &pool->out, err);
    }
    if (status == STATUS_OK) { status = start_threads(pool, options, err); }
    if (status != STATUS_OK) {
        thread_pool_close(pool);
        return status;
    }
    *out = pool;
    return STATUS_OK;
}

/* ---- the owner's side ---- */

static void put_at(struct thread_pool *pool, void *item, bool first)
{
    assert(pool->items_out < pool->capacity);
    pool->items_out++;
    pthread_mutex_lock(&pool->lock);
    if (first) { pool->first = (pool->first + pool->capacity - 1) % pool->capacity; }
    pool->items[first ? pool->first : (pool->first + pool->count) % pool->capacity] = item;
    pool->count++;
    pthread_cond_signal(&pool->not_empty);
    pthread_mutex_unlock(&pool->lock);
}

void thread_pool_put(struct thread_pool *pool, void *item)
{
    put_at(pool, item, false);
}

void thread_pool_put_first(struct thread_pool *pool, void *item)
{
    put_at(pool, item, true);
}

static void *count_taken(struct thread_pool *pool, void *item)
{
    pool->items_out -= item != NULL;
    return item;
}

void *thread_pool_take(struct thread_pool *pool)
{
    return count_taken(pool, channel_try_receive(pool->out));
}

void *thread_pool_wait(struct thread_pool *pool)
{
    return pool->items_out == 0 ? NULL : count_taken(pool, channel_receive(pool->out));
}

void *thread_pool_take_back(struct thread_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    void *item = pool->count == 0 ? NULL : pop_item(pool);
    pthread_mutex_unlock(&pool->lock);
    return count_taken(pool, item);
}

size_t thread_pool_out(const struct thread_pool *pool)
{
    return pool->items_out;
}

void thread_pool_close(struct thread_pool *pool)
{
    if (!pool) { return; }
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->not_empty);
    pthread_cond_broadcast(&pool->ends);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->running; i++) { pthread_join(pool->slots[i].id, NULL); }
    channel_free(pool->out);
    free(pool->items);
    pthread_cond_destroy(&pool->ends);
    pthread_cond_destroy(&pool->not_empty);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
