/* A pool: threads that take items from one queue, work on them, and put them into a channel.
 *
 *   owner ── thread_pool_put ──► queue ──► threads, each at its slot ──► channel ──► thread_pool_take /
 * thread_pool_wait ── owner
 *
 * The owner is one thread. It never has more items out than the pool's capacity, so neither queue nor channel ever
 * fills up and nobody ever waits for room: the owner may be an event loop.
 *
 * A thread may hold several items at once. The next item is always for the slot that holds least: no thread lays in
 * stock while another one is idle. */
#ifndef SERVE_THREAD_POOL_H
#define SERVE_THREAD_POOL_H

#include <stddef.h>

#include "base/err.h"

struct thread_pool;
struct thread_slot; /* a thread's own place in its pool */

/* How many threads, and what they do. */
struct thread_pool_options {
    const char *name; /* of the threads, at most 11 bytes; a number is put behind it */
    unsigned threads;
    size_t capacity; /* items out at once */
    int wake_fd;     /* an eventfd written when a finished item waits, or -1 */
    /* 0: always. Else only where fewer items than this wait for a thread: an owner who keeps the queue full needs to
     * hear of nothing before, and does not take a core from the threads for each item. */
    size_t wake_below;
    /* What a thread does: one of the two. Thread: the pool's. */
    void (*work)(void *context, void *item);                /* with each item, one after the other */
    void (*serve)(void *context, struct thread_slot *slot); /* all its life; it may leave before the pool ends */
    void *const *contexts;                                  /* [threads], one for each; NULL when none is needed */
};

/* Starts the threads. Owns: the caller ends the pool with thread_pool_stop and thread_pool_free. The contexts stay the
 * caller's and must live until thread_pool_stop. Errors: STATUS_NO_MEMORY, STATUS_IO (no thread); nothing is left
 * behind. */
MUST_CHECK enum status thread_pool_open(const struct thread_pool_options *options, struct thread_pool **out,
                                        struct err *err);

/* Hands an item over; it comes back, worked on, in the order of finishing. */
void thread_pool_put(struct thread_pool *pool, void *item);

/* Likewise, before those that wait. */
void thread_pool_put_first(struct thread_pool *pool, void *item);

/* Takes the next finished item, or NULL when none is there. */
void *thread_pool_take(struct thread_pool *pool);

/* Likewise, but waits for one; NULL when none is out. */
void *thread_pool_wait(struct thread_pool *pool);

/* Takes back the first item that no thread has begun, or NULL: for when no thread will. */
void *thread_pool_take_back(struct thread_pool *pool);

/* Items out: put and not yet taken. */
size_t thread_pool_out(const struct thread_pool *pool);

/* Lets the threads finish what was put, and joins them. Finished items can still be taken. */
void thread_pool_stop(struct thread_pool *pool);

/* Frees a stopped pool. Items that were not taken are the caller's loss. NULL is allowed. */
void thread_pool_free(struct thread_pool *pool);

/* For `serve`. The next item for this slot. With nothing at hand it waits, and NULL means that the pool is being
 * stopped; with something at hand NULL means that there is nothing more for this slot now. */
void *thread_pool_next(struct thread_slot *slot);

/* For `serve`. An item of this slot is finished, whatever became of it. */
void thread_pool_finish(struct thread_slot *slot, void *item);

/* For `serve`. This slot will ask for nothing more, so that nothing is kept for it; what it holds it still finishes. */
void thread_pool_leave(struct thread_slot *slot);

#endif
