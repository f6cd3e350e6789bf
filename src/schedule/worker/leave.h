/* Giving requests back, and the end of the worker: see leave.c. Only leave.c writes struct leave. */
#ifndef SCHEDULE_WORKER_LEAVE_H
#define SCHEDULE_WORKER_LEAVE_H

#include "schedule/worker.h"

/* Requests to give back, and how far the worker has ended. */
struct leave {
    struct request_list to_release;
    bool releasing; /* ACTION_RELEASE is out */
    bool leaving;   /* it is the last one */
    bool draining, exited;
    uint64_t drain_ends; /* NEVER: not draining */
    enum status status;  /* of the exit */
};

/* Starts as a worker that stays. */
void leave_open(struct worker *worker);

/* Queues a request to be given back unfinished. */
void leave_release(struct worker *worker, struct request *request);

/* EVENT_RELEASED: requests were given back. */
void leave_released(struct worker *worker, const struct event *event);

/* Releases all requests that have not started. Requests with rows out follow when the last row is back. */
void leave_unstarted(struct worker *worker);

/* Begins to leave: gives back requests that have not started and exits when the others are done, at the latest after
 * timeout_ms. A further call can only shorten that time. A status other than STATUS_OK becomes that of the exit. */
void leave_drain(struct worker *worker, uint64_t timeout_ms, enum status status);

/* Sends releases, and finishes a drain or rejoins when nothing is held. */
void leave_advance(struct worker *worker);

#endif
