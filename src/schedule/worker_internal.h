/* The worker's state: one struct for each file, in the header of that file, which alone writes it. Private to the files
 * of schedule/ that are named here, in the order of a request's way.
 *
 * worker_step.c    open, close, tune, dispatch of events, the next deadline
 * read.c           reads of the streams, and the credit that limits them
 * own_entries.c    reads of our own pending lists, and entries that are pending with us although we never read them
 * redis_limits.c   replies and entries that exceed Redis' limits
 * redis_memory.c   the limits of a Redis that is nearly full
 * admit.c          from an entry to its first stage
 * quarantine.c     suspects: in groups, or one at a time while nothing else runs
 * prep_queue.c     to the prep threads and back
 * pace.c           how long batches may be
 * cut.c            when a batch begins, and with which rows
 * rows.c           the outcome of rows, and what runs again in halves
 * settle.c         outcomes and their way to Redis
 * leave.c          release, drain, rejoin and exit
 * pulse.c          the heartbeat, and the state of the queue
 * chores.c         lease, promotion, mending, reclaim, sweep
 * fairness.c       caps, and tenants that wait because of another
 * watch.c          expiry and hangs
 *
 * A handler takes one kind of event. An `advance` runs in every step and does all that can be done now: it appends
 * actions, or leaves work for the next step if memory has run out (worker->starved). A request moved into one of the
 * worker's lists has been given away. */
#ifndef SCHEDULE_WORKER_INTERNAL_H
#define SCHEDULE_WORKER_INTERNAL_H

#include "schedule/held.h"
#include "schedule/window.h"
#include "schedule/worker.h"
#include "schedule/worker/admit.h"
#include "schedule/worker/chores.h"
#include "schedule/worker/cut.h"
#include "schedule/worker/fairness.h"
#include "schedule/worker/leave.h"
#include "schedule/worker/own_entries.h"
#include "schedule/worker/pace.h"
#include "schedule/worker/prep_queue.h"
#include "schedule/worker/pulse.h"
#include "schedule/worker/quarantine.h"
#include "schedule/worker/read.h"
#include "schedule/worker/redis_limits.h"
#include "schedule/worker/redis_memory.h"
#include "schedule/worker/rows.h"
#include "schedule/worker/settle.h"
#include "schedule/worker/watch.h"

#define NEVER UINT64_MAX

enum {
    CALL_FAILED_PAUSE_MS = 100, /* after a script that failed, before the next try */
    CALL_PAUSE = 3,             /* a search that continues pauses this many times as long as its last call took */
};

/* Only the thread of worker_step writes it. */
struct worker {
    struct held held; /* all requests; each file moves those that it has */
    struct window window;
    struct read read;
    struct own_entries own;
    struct redis_limits limits;
    struct redis_memory memory;
    struct quarantine quarantine;
    struct prep_queue prep;
    struct pace pace;
    struct cut cut;
    struct rows rows;
    struct settle settle;
    struct leave leave;
    struct pulse_state pulse;
    struct chores chores;
    struct fairness fairness;
    struct watch watch;

    /* Each file counts and measures what it does, and takes jitter. */
    struct worker_stats stats;
    struct worker_histograms histograms;
    uint64_t random; /* state of the jitter */

    /* Only worker_step.c writes these. */
    struct worker_options options;
    uint64_t now;      /* of the current step */
    uint64_t wakes_at; /* the deadline returned by the step before */
    struct actions *actions;
    bool starved; /* an allocation failed in this step: try again soon */
    bool connected;
    uint64_t redis_ms, redis_ms_at; /* Redis' clock, and when it was read; 0: unknown */
    bool quiet;                     /* an operator forbids new claims */
    uint64_t quiet_until;           /* no new call until then, because one has just failed */
};

/* EVENT_QUIET, RESUME, DRAIN, STOP: obeys an operator's order; does nothing for other kinds. */
void worker_obey(struct worker *worker, enum event_kind kind);

/* Appends an action to those of this step, for the caller to fill in. NULL (and starved) when memory ran out. */
struct action *worker_act(struct worker *worker, enum action_kind kind);

/* Takes back the last action of this step. */
void worker_take_back(struct worker *worker);

/* Asks for another step soon, because memory ran out. */
void worker_starve(struct worker *worker);

/* The connection was given up: EVENT_CONNECTED follows. */
void worker_disconnected(struct worker *worker);

/* Returns whether Redis may be called: connected, and not in the pause after a call that failed. */
bool worker_may_call(const struct worker *worker);

/* Starts the pause after a call that failed. */
void worker_call_failed(struct worker *worker);

/* Returns whether work may begin: neither draining nor without a lease. */
bool worker_takes_more(const struct worker *worker);

/* Returns whether new entries may be claimed: it takes more, and no operator forbids it. */
bool worker_claims(const struct worker *worker);

/* Returns whether this worker does the queue's chores now: it is the housekeeper, and it claims. */
bool worker_keeps_house(const struct worker *worker);

/* Returns whether a read or another call that brings entries is out. */
bool worker_reads(const struct worker *worker);

/* Adds a value to a moving mean (of about the last 32). */
void worker_weigh(double *mean, double value);

/* Live devices; at least 1, because callers divide by it. */
uint32_t worker_devices(const struct worker *worker);

/* Returns whether a device keeps several batches in flight, as a GPU does. */
bool worker_is_deep(const struct worker *worker);

/* The time in `ms` from now. Units: monotonic ns. */
uint64_t worker_after_ms(const struct worker *worker, uint64_t ms);

/* Notes Redis' clock. Units: unix ms. */
void worker_clock(struct worker *worker, uint64_t redis_ms);

/* Redis' clock now, extrapolated; 0: unknown. Units: unix ms. */
uint64_t worker_redis_ms(const struct worker *worker);

/* The ms until a time of Redis' clock; 0 if that is past or the clock is unknown. */
uint64_t worker_ms_until(const struct worker *worker, uint64_t at_ms);

#endif
