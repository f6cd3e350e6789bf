/* Workers of this host whose processes have ended.
 *
 * A worker that was killed cannot give up its lease. Its successor on the same host, or the housekeeper if it runs
 * there, gives it up once the kernel says that there is no such process and the worker has missed two heartbeats. In
 * doubt the lease is left to expire. */
#ifndef REDIS_QUEUE_NEIGHBOURS_H
#define REDIS_QUEUE_NEIGHBOURS_H

#include "redis/queue_task.h"

enum { GONE_MAX = 8 };

struct queue_neighbours {
    char pid_space[64]; /* equal for workers to which a process id means the same process; "": unknown */
    bool looks;         /* the next pulse asks for neighbours even if this worker is not the housekeeper */
    struct gone {
        struct queue *queue;
        char name[QUEUE_WORKER_MAX];
    } gone[GONE_MAX];  /* the last ones; a ring */
    unsigned count;    /* all so far */
    uint64_t until_ns; /* until then their entries are looked for */
};

/* Finds out what this process's ids mean, for the heartbeat. */
void queue_meet_neighbours(struct queue *queue);

/* The next neighbour whose process has ended, while its entries are looked for; NULL: no more. `at` begins at 0. */
const char *queue_gone(const struct queue *queue, unsigned *at);

/* Checks the neighbours that lua/pulse named. One whose process is gone but whose heartbeat is fresh is checked again
 * later. */
void queue_check_neighbours(struct queue *queue, const char *words);

#endif
