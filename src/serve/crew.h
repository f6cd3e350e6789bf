/* A crew: threads that take items from one channel, work on them, and put them into another.
 *
 *   owner ── crew_put ──► in ──► threads ──► out ──► crew_take / crew_wait ── owner
 *
 * The owner is one thread. It never has more items out than the crew's capacity, so neither channel ever fills up and
 * nobody ever waits for room: the owner may be an event loop. */
#ifndef SERVE_CREW_H
#define SERVE_CREW_H

#include <stddef.h>

#include "base/err.h"

struct crew;

struct crew_options {
    const char *name; /* of the threads, at most 11 bytes; a number is put behind it */
    unsigned threads;
    size_t capacity;                         /* items out at once */
    int wake_fd;                             /* an eventfd written when a finished item waits, or -1 */
    void (*work)(void *context, void *item); /* Thread: the crew's; must handle every item */
    void *const *contexts;                   /* [threads], one for each; NULL when work needs none */
};

/* Starts the threads. Owns: the caller ends the crew with crew_stop and crew_free. The contexts stay the caller's and
 * must live until crew_stop. Errors: STATUS_NO_MEMORY, STATUS_IO (no thread); nothing is left behind. */
MUST_CHECK enum status crew_open(const struct crew_options *options, struct crew **out, struct err *err);

/* Hands an item over; it comes back, worked on, in the order of finishing. */
void crew_put(struct crew *crew, void *item);

/* The next finished item: NULL when none is there (crew_take), after waiting for one (crew_wait; NULL when none is
 * out). */
void *crew_take(struct crew *crew);
void *crew_wait(struct crew *crew);

/* Items out: put and not yet taken. */
size_t crew_out(const struct crew *crew);

/* Lets the threads finish what was put, and joins them. Finished items can still be taken. */
void crew_stop(struct crew *crew);

/* Frees a stopped crew. Items that were not taken are the caller's loss. NULL is allowed. */
void crew_free(struct crew *crew);

#endif
