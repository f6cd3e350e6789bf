/* Events that only time brings about: see watch.c. Only watch.c writes struct watch. */
#ifndef SCHEDULE_WORKER_WATCH_H
#define SCHEDULE_WORKER_WATCH_H

#include "schedule/worker.h"

struct watch {
    uint64_t hang_seen; /* when a batch was first seen overdue; 0: none is */
    uint64_t expire_at; /* the earliest time of the next check for expired rows */
};

/* Returns whether a batch hangs; the worker then exits without giving anything back. */
bool watch_ends(struct worker *worker);

/* Notes that this process, with its compute threads, was stopped for a while: that time counts against no batch. */
void watch_slept(struct worker *worker, uint64_t late_ns);

/* Answers the requests whose rows the window has put aside as expired. */
void watch_expired(struct worker *worker);

/* Looks for expired rows while no batch is cut. */
void watch_advance(struct worker *worker);

/* The time when the next batch hangs, row expires or fixed window ends. Units: monotonic ns; NEVER: none. */
uint64_t watch_deadline(const struct worker *worker);

#endif
