/* The housekeeper's work for the whole queue: returns parked requests that are due, and repairs ids ahead of the
 * clock.
 *
 * lua/mend reads no entry whose size is not known: 24 MiB would take it 58 ms, in which Redis does nothing else. So
 * plain commands look first, from whose answers the connection drops large entries, and the script gets the names of
 * the entries that were seen. Entries too large for the script to read become ours by their ids alone, and READ_OWN
 * brings them. */
#ifndef REDIS_QUEUE_CHORES_H
#define REDIS_QUEUE_CHORES_H

#include "redis/queue_task.h"

struct queue_mending {
    uint64_t moved; /* entries that lua/mend has parked since it last set a stream back */
    struct mend_look {
        struct command command; /* the call of lua/mend, without the entries that no answer has named yet */
        uint32_t most;          /* entries of each class that were asked for */
        uint32_t entries;       /* named in the command */
        uint64_t bytes;         /* of the entries that it moves */
        bool large, left;       /* it takes a large one; some were seen but not named */
    } look;                     /* of the mend in progress */
    uint32_t look_most;         /* entries of each class that the next look asks for; 0: one */
    struct entry_id look_behind[CLASS_COUNT]; /* the next look begins after these; 0-0: with the first ahead */
};

void queue_promote(struct task *task); /* parked requests that are due: lua/promote */
void queue_mend(struct task *task);    /* ids ahead of the clock: lua/mend */

#endif
