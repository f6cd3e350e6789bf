/* Chores: see chores.c. Only chores.c writes struct chores. */
#ifndef SCHEDULE_WORKER_CHORES_H
#define SCHEDULE_WORKER_CHORES_H

#include "schedule/worker.h"

/* A chore that goes through the classes, one call at a time. */
struct round {
    bool out;
    uint64_t at;
    enum request_class class;
    struct entry_id after;
    uint32_t asked;
    uint64_t sent; /* when the call that is out was sent */
    bool took;     /* it has taken something since it began */
};

/* The state of all chores. */
struct chores {
    bool lease_lost;
    bool renewing, promoting, mending; /* calls that are out */
    uint64_t renew_at, promote_at, mend_at, judge_at;
    uint32_t mends_failed; /* in a row */
    struct round reclaim, sweep;
    uint32_t asked[CLASS_COUNT]; /* entries that a reclaim or sweep in flight may bring */
};

/* Just connected: schedules every chore. */
void chores_connected(struct worker *worker);

/* EVENT_ENTRIES of READ_RECLAIM or READ_SWEEP: continues the round, with the next class or after its pause. */
void chores_claimed(struct worker *worker, const struct event *event);

/* EVENT_LEASE: renewed, or lost. */
void chores_lease(struct worker *worker, const struct event *event);

/* EVENT_PROMOTED: parked requests are back in their streams. */
void chores_promoted(struct worker *worker, const struct event *event);

/* EVENT_MENDED: ids ahead of the clock left the streams. */
void chores_mended(struct worker *worker, const struct event *event);

/* A pulse was answered: begins chores, if this worker was elected or entries wait to be taken over. */
void chores_pulsed(struct worker *worker, bool was_housekeeper);

/* Promotes at the latest in `in_ms`, because a parked request is due then. */
void chores_expect_due(struct worker *worker, uint64_t in_ms);

/* Schedules mending, because an entry came whose id is ahead of the clock. */
void chores_mend_soon(struct worker *worker);

/* Does the chores that are due: renew, pulse, reclaim, sweep, mend, promote. */
void chores_advance(struct worker *worker);

#endif
