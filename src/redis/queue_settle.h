/* Sends requests to Redis and receives their verdicts: settle, defer, charge (records a run before it starts).
 *
 * One ACTION_SETTLE becomes a script call for each stream and each script. The answer to the last call ends the action.
 */
#ifndef REDIS_QUEUE_SETTLE_H
#define REDIS_QUEUE_SETTLE_H

#include "redis/queue_task.h"

struct queue_settling {
    uint64_t stage_from_ns; /* no staging before this time: Redis refused it */
    struct buffer info;     /* of one reply after the other, to reuse its memory */
    struct logged {
        uint64_t lines, unlogged; /* since the last pulse */
    } refusals, retries;
    uint64_t ignored_ns; /* when ignored fields were logged last; 0: never */
};

void queue_settle(struct task *task);     /* replies, errors, retries, cancels: lua/settle, defer, cancel */
void queue_record_run(struct task *task); /* runs of suspects, before they start: lua/charge */

/* Call it when Redis refused, or would refuse, staged replies: for a while replies travel in their settle. */
void queue_not_staged(struct queue *queue);

/* Logs how many refusals and retries were not logged one by one, and starts over. */
void queue_log_unlogged(struct queue *queue);

#endif
