/* One worker at a time may have the whole process. A suspect that runs alone must be alone in the process, not only
 * in its worker, or one queue's request is blamed for another's crash. So workers ask, one is chosen, all come to rest,
 * it has its turn, and then all continue for a while.
 *
 * The executor passes ACTION_EXCLUSIVE and ACTION_TOGETHER on to these functions, and the answers of exclusive_next to
 * the workers. They are pure: the time is an argument. */
#ifndef SCHEDULE_EXCLUSIVE_H
#define SCHEDULE_EXCLUSIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The workers that may work in this process now. */
enum turn {
    TURN_TOGETHER,  /* all workers */
    TURN_REST,      /* no worker: running work ends, and nothing is read, prepared or cut */
    TURN_EXCLUSIVE, /* only this worker, for its suspects, one at a time */
};

enum { EXCLUSIVE_SLICE_MS = 50 }; /* for one worker's suspects, and at least as long for all other work after them */

/* The state of a worker in struct exclusive. */
struct exclusive_worker {
    bool asks;
    enum turn told;
};

/* The state of one process. Zero at the start except `workers` and `count`. */
struct exclusive {
    struct exclusive_worker *workers; /* [count], zero at the start; the caller owns it */
    size_t count;
    bool held, granted; /* a worker was chosen; all rest, and it got its turn */
    size_t holder;      /* the chosen one, or the last */
    uint64_t opens_ns;  /* no worker is chosen earlier */
};

/* ACTION_EXCLUSIVE. */
void exclusive_ask(struct exclusive *exclusive, size_t who);

/* ACTION_TOGETHER, or the worker has ended: it no longer asks, and gives the process back if it has it. */
void exclusive_end(struct exclusive *exclusive, size_t who, uint64_t now_ns);

/* Returns the next worker that needs an EVENT_TURN, and the turn; false when all are up to date. `at_rest`:
 * worker_rests of all of them. Call it after every step of any worker until it is false, with a new `at_rest` each
 * time. */
bool exclusive_next(struct exclusive *exclusive, uint64_t now_ns, bool at_rest, size_t *who, enum turn *turn);

/* The time to call exclusive_next again even if no worker has stepped; UINT64_MAX: never. Units: monotonic ns. */
uint64_t exclusive_deadline(const struct exclusive *exclusive);

#endif
