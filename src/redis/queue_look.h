/* The counts of /metrics and /depth: the requests in a queue, counted with plain commands after each pulse. The worker
 * decides nothing by them, so an error only leaves a number 0. */
#ifndef REDIS_QUEUE_LOOK_H
#define REDIS_QUEUE_LOOK_H

#include "redis/day_counts.h"
#include "redis/pause.h"
#include "redis/queue_task.h"

/* The counts that Redis gave with the last pulse. `redis_ms` 0: not known yet, or no longer. */
struct queue_look {
    uint64_t redis_ms;                                  /* Redis unix ms of that pulse */
    uint64_t unread[CLASS_COUNT], pending[CLASS_COUNT]; /* entries that nobody has read; entries that a worker has */
    struct entry_id oldest[CLASS_COUNT]; /* the oldest pending one, else the oldest unread one; 0-0: none */
    int64_t wait_ms[CLASS_COUNT];        /* estimated for a new entry; -1: unknown */
    uint64_t cap[CLASS_COUNT];           /* 0: none */
    uint64_t later, due, dead;           /* parked requests; those of them that are due; dead letters */
    struct day_counts today;             /* ended with any worker since Redis' midnight in UTC */
    struct pause pause;
};

enum { LOOK_COMMANDS = 13 + CLASS_COUNT };

struct queue_looking {
    struct look_call {
        struct queue *queue;
        size_t which;
    } calls[LOOK_COMMANDS];
    struct queue_look next, last; /* `next` becomes `last` when all commands are answered */
    unsigned out;                 /* commands without an answer */
    bool failed;                  /* one of them got no answer */
    bool large[CLASS_COUNT];      /* the oldest unread entry was large at the last look */
    unsigned looks;
    uint64_t asked_ms; /* monotonic; when it asked last */
};

/* The latest counts; lives as long as the queue. */
const struct queue_look *queue_looked(const struct queue *queue);

/* Counts the queue's requests, after the answer to a pulse. Units: Redis unix ms. */
void queue_look_now(struct queue *queue, uint64_t redis_ms);

/* Forgets the counts, which are old, when the queue is up again. */
void queue_look_start(struct queue *queue);

#endif
