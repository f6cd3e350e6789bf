/* The pulse: see pulse.c. Only pulse.c writes struct pulse_state. */
#ifndef SCHEDULE_WORKER_PULSE_H
#define SCHEDULE_WORKER_PULSE_H

#include "schedule/worker.h"

struct pulse_state {
    struct pulse last; /* the queue, by the last pulse */
    bool known;        /* one was answered since the connection was made */
    bool out;
    enum housekeeper_rank told_rank; /* sent with the last pulse */
    uint64_t answered_at, at;        /* when the last one was answered; when the next one is due */
};

/* Just connected: sends the first one now. */
void pulse_connected(struct worker *worker);

/* EVENT_PULSE: orders, caps, election. */
void pulse_answered(struct worker *worker, const struct event *event);

/* The time of the next pulse: each second, sooner while requests wait for Redis' memory. Units: monotonic ns. */
uint64_t pulse_due(const struct worker *worker);

/* Sends a pulse if one is due. */
void pulse_advance(struct worker *worker);

#endif
