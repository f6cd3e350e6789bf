/* The pulse, once a second, sends our heartbeat and receives the state of the queue and of Redis' memory.
 *
 * Its script and INFO are sent together and become one event. The worker acts on Redis' memory; this file only logs it.
 */
#ifndef REDIS_QUEUE_PULSE_H
#define REDIS_QUEUE_PULSE_H

#include "redis/queue_task.h"

struct queue_pulsing {
    char coming[32];                  /* an order, until the worker gets it, when both answers have come */
    bool memory_low, memory_critical; /* as last logged */
    uint64_t evicts_ns;               /* when the policy was logged last; 0: it is noeviction */
    uint64_t skipped;                 /* keys of a wrong type, as last logged */
    char precisions[64]; /* of the queue's workers, as last logged; "": equal, or we are not the housekeeper */
};

void queue_pulse(struct task *task); /* heartbeat, counters, orders, election: lua/pulse */

/* Sends the counts now, because the worker leaves and there is no next pulse. */
void queue_count_last(struct queue *queue);

#endif
