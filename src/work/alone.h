/* Who has the whole process: a suspect that runs alone must be alone in the process, not in its worker only, or the
 * crash of one queue's request is put down to another's. So the workers of a process ask, one of them is chosen, all
 * come to rest, it has its turn, and then all go on, for a while at least.
 *
 * The executor drives it: it carries ACTION_ALONE and ACTION_TOGETHER here, and what alone_next says to the workers.
 * Pure; time is handed in. */
#ifndef WORK_ALONE_H
#define WORK_ALONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "work/worker.h"

enum { ALONE_SLICE_MS = 50 }; /* of one worker's suspects, and at least of everybody's work behind it */

/* A worker, as it is known here. */
struct alone_worker {
    bool asks;
    enum turn told;
};

/* All of a process. Zero but for `workers` and `count` at the start. */
struct alone {
    struct alone_worker *workers; /* [count], zero at the start; the caller's */
    size_t count;
    bool held, granted; /* somebody was chosen; all rest, and it was told */
    size_t holder;      /* or who was it last */
    uint64_t opens_ns;  /* nobody is chosen before */
};

/* ACTION_ALONE. */
void alone_ask(struct alone *alone, size_t who);

/* ACTION_TOGETHER, or the worker has ended: it wants nothing any more, and gives back what it has. */
void alone_end(struct alone *alone, size_t who, uint64_t now_ns);

/* The next worker that is to be told something, and what (EVENT_TURN); false when all know all there is to know.
 * `at_rest`: whether worker_rests is true of all of them. Repeat it, each time anew, after every step of any worker. */
bool alone_next(struct alone *alone, uint64_t now_ns, bool at_rest, size_t *who, enum turn *turn);

/* When to call it again though no worker has moved; UINT64_MAX: then not. Units: monotonic ns. */
uint64_t alone_deadline(const struct alone *alone);

#endif
