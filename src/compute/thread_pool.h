/* Threads that take items from one queue, work on them, and put them into a channel.
 *
 *   owner ── thread_pool_put ──► queue ──► threads, each with its slot ──► channel ──► thread_pool_take ── owner
 *
 * The owner is one thread, which may be an event loop: it never has more items out than the pool's capacity, so neither
 * queue nor channel fills up, and no thread waits for room.
 *
 * A thread may hold several items at once. The next item always goes to the slot that holds least: no thread hoards
 * work while another is idle. */
#ifndef COMPUTE_THREAD_POOL_H
#define COMPUTE_THREAD_POOL_H

#include <stddef.h>

#include "base/err.h"

struct thread_pool;
struct thread_slot; /* the pool's view of one thread */

/* The number of threads, and their work. */
struct thread_pool_options {
    const char *name; /* of the threads, at most 11 bytes; a number is appended */
    unsigned threads;
    size_t capacity; /* items out at once */
    int wake_fd;     /* an eventfd written when a finished item waits, or -1 */
    /* 0: always. Else only while fewer items than this wait for a thread: an owner who keeps the queue full needs no
     * earlier wake-up, which would take a core from the threads for each item. */
    size_t wake_below;
    /* A thread's work; set one of the two. Thread: the pool's. */
    void (*work)(void *context, void *item);                /* called with each item */
    void (*serve)(void *context, struct thread_slot *slot); /* called once; it may return before the pool stops */
    void *contexts; /* [threads] of context_bytes, one for each; NULL for none */
    size_t context_bytes;
};

/* Starts the threads. Owns: the caller ends the pool with thread_pool_close. The contexts stay the
 * caller's and must live until then. Errors: STATUS_NO_MEMORY, STATUS_IO (no thread); nothing is left
 * behind. */
MUST_CHECK enum status thread_pool_open(const struct thread_pool_options *options, struct thread_pool **out,
                                        struct err *err);

/* Puts an item into the queue. Items come back in the order of finishing. */
void thread_pool_put(struct thread_pool *pool, void *item);

/* The same, at the head of the queue. */
void thread_pool_put_first(struct thread_pool *pool, void *item);

/* Takes the next finished item, or NULL when none is there. */
void *thread_pool_take(struct thread_pool *pool);

/* The same, but waits for an item; NULL when none is out. */
void *thread_pool_wait(struct thread_pool *pool);

/* Takes back the first item that no thread has begun, or NULL: for items that no thread will take. */
void *thread_pool_take_back(struct thread_pool *pool);

/* Items out: put and not yet taken. */
size_t thread_pool_out(const struct thread_pool *pool);

/* Lets the threads finish all items, joins them and frees the pool, but no items. NULL is allowed. */
void thread_pool_close(struct thread_pool *pool);

/* For `serve`. The next item for this slot. If the slot holds nothing, this waits, and NULL means that the pool stops.
 * If it holds something, NULL means that there is nothing more for it now. */
void *thread_pool_next(struct thread_slot *slot);

/* For `serve`. Gives back an item of this slot, finished or failed. */
void thread_pool_finish(struct thread_slot *slot, void *item);

/* For `serve`. This slot takes no more items, so none is reserved for it. It still finishes what it holds. */
void thread_pool_leave(struct thread_slot *slot);

#endif
