/* A crew: threads that take items from one queue, work on them, and put them into a channel.
 *
 *   owner ── crew_put ──► queue ──► threads, each at its seat ──► channel ──► crew_take / crew_wait ── owner
 *
 * The owner is one thread. It never has more items out than the crew's capacity, so neither queue nor channel ever
 * fills up and nobody ever waits for room: the owner may be an event loop.
 *
 * A thread may hold several items at once. The next item is always for the seat that holds least: no thread lays in
 * stock while another one is idle. */
#ifndef SERVE_THREAD_POOL_H
#define SERVE_THREAD_POOL_H

#include <stddef.h>

#include "base/err.h"

struct crew;
struct crew_seat; /* a thread's own place in its crew */

/* How many threads, and what they do. */
struct crew_options {
    const char *name; /* of the threads, at most 11 bytes; a number is put behind it */
    unsigned threads;
    size_t capacity; /* items out at once */
    int wake_fd;     /* an eventfd written when a finished item waits, or -1 */
    /* 0: always. Else only where fewer items than this wait for a thread: an owner who keeps the queue full needs to
     * hear of nothing before, and does not take a core from the threads for each item. */
    size_t wake_below;
    /* What a thread does: one of the two. Thread: the crew's. */
    void (*work)(void *context, void *item);              /* with each item, one after the other */
    void (*serve)(void *context, struct crew_seat *seat); /* all its life; it may leave before the crew ends */
    void *const *contexts;                                /* [threads], one for each; NULL when none is needed */
};

/* Starts the threads. Owns: the caller ends the crew with crew_stop and crew_free. The contexts stay the caller's and
 * must live until crew_stop. Errors: STATUS_NO_MEMORY, STATUS_IO (no thread); nothing is left behind. */
MUST_CHECK enum status crew_open(const struct crew_options *options, struct crew **out, struct err *err);

/* Hands an item over; it comes back, worked on, in the order of finishing. */
void crew_put(struct crew *crew, void *item);

/* Likewise, before those that wait. */
void crew_put_first(struct crew *crew, void *item);

/* Takes the next finished item, or NULL when none is there. */
void *crew_take(struct crew *crew);

/* Likewise, but waits for one; NULL when none is out. */
void *crew_wait(struct crew *crew);

/* Takes back the first item that no thread has begun, or NULL: for when no thread will. */
void *crew_take_back(struct crew *crew);

/* Items out: put and not yet taken. */
size_t crew_out(const struct crew *crew);

/* Lets the threads finish what was put, and joins them. Finished items can still be taken. */
void crew_stop(struct crew *crew);

/* Frees a stopped crew. Items that were not taken are the caller's loss. NULL is allowed. */
void crew_free(struct crew *crew);

/* For `serve`. The next item for this seat. With nothing at hand it waits, and NULL means that the crew is being
 * stopped; with something at hand NULL means that there is nothing more for this seat now. */
void *crew_next(struct crew_seat *seat);

/* For `serve`. An item of this seat is finished, whatever became of it. */
void crew_finish(struct crew_seat *seat, void *item);

/* For `serve`. This seat will ask for nothing more, so that nothing is kept for it; what it holds it still finishes. */
void crew_leave(struct crew_seat *seat);

#endif
