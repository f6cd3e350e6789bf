/* What the worker's files share: the state, and who does what. Private to work/worker*.c.
 *
 * worker.c          open, close, dispatch of events, the next deadline
 * worker_read.c     reads of the streams and of our own pending lists, and the credit behind them
 * worker_take.c     from an entry to its first stage: errors, cancels, delays, expiry, track
 * worker_chores.c   lease, promotion, reclaim, sweep
 * worker_pulse.c    heartbeat, the state of the queue, commands
 * worker_pace.c     how fast batches are, and how long they may be
 * worker_share.c    backpressure: refusing above a cap, fair shares of tenants
 * worker_compute.c  prepare, window, batches, format
 * worker_rows.c     what becomes of rows when their batch is back, failed or not
 * worker_watch.c    fixed windows, rows that expire, batches that hang
 * worker_lonely.c   suspects: one at a time, while nothing else runs
 * worker_settle.c   outcomes on their way to Redis, release, drain and exit
 * worker_look.c     what the outside may look at and change while it runs */
#ifndef WORK_WORKER_STATE_H
#define WORK_WORKER_STATE_H

#include "work/held.h"
#include "work/policy.h"
#include "work/tune.h"
#include "work/window.h"
#include "work/worker.h"

#define NEVER UINT64_MAX

enum {
    LIST_MOST = 32,      /* requests in one PREPARE or FORMAT: one crossing for many, several threads for a burst */
    AWAY_MOST = 256,     /* requests at the prep threads, from where on only those of the highest class follow */
    AWAY_LOW = 2,        /* requests of class low there, from where on others of it wait, beside online ones */
    SETTLE_ENTRIES = 64, /* in one call of the script … */
    SETTLE_BYTES = 32 * 1024, /* … and their reply bytes: longer calls hold up everybody else, and Redis grows and
                                 shrinks its buffers for them (docs/speed.md) */
    SETTLES_OUT = 4,          /* calls on their way at once, so that one round trip is not the limit */
    RELEASE_ENTRIES = 256,
    READ_MOST = 512, /* entries in one read */
    RECLAIM_MOST = 64,
    ENOUGH_MOST = 32,     /* tenants that are told apart */
    OWN_MOST = 256,       /* READ_OWN; halves when the answer does not arrive */
    PAUSE_MS = 100,       /* after a script that failed, before the next try */
    STARVED_MS = 10,      /* after an allocation failed */
    LONELY_SLICE_MS = 50, /* suspects and others take turns of this length */
};

/* Where the one suspect that may run is. */
enum lonely_stage {
    LONELY_NONE,
    LONELY_UNSURE,  /* to be charged, perhaps again */
    LONELY_CHARGED, /* to be prepared */
    LONELY_PREPARED,
    LONELY_COMPUTED,
    LONELY_AWAY, /* with the executor, or on its way to its settle */
};

/* What is kept for each class. */
struct class_state {
    double mean_tokens, mean_bytes; /* of an entry, moving */
    uint32_t asked;                 /* entries that a reclaim or sweep on its way may bring */
    bool left_out;                  /* of the reads, for want of room */
    bool busy;                      /* the last read brought as many of its entries as were asked for */
    uint64_t over_cap;              /* entries still to be refused */

    bool tenants;                   /* some of its entries named one, since it was last without a backlog */
    uint64_t fair_at, fair_pass_at; /* when to look again; and when from the middle */
    struct entry_id fair_after;     /* of the pass */
    struct entry_id fair_first;     /* where the pass, or one before it, had found its first entry */
    struct entry_id fair_tail;      /* up to here everything was looked at once */
    bool fair_found, fair_tail_known, fair_at_tail;
};

/* A chore that goes through the classes. */
struct round {
    bool out;
    uint64_t at;
    enum request_class class;
    struct entry_id after;
    uint32_t asked;
};

struct worker { /* in order of meaning. NOLINT(clang-analyzer-optin.performance.Padding) */
    struct worker_options options;
    struct policy policy;
    struct budget budget;
    struct worker_stats stats;
    struct held held;

    /* The step at hand. */
    uint64_t now;
    uint64_t wakes_at; /* the deadline that the step before this one had returned */
    struct actions *actions;
    bool starved; /* an allocation failed in this step: try again soon */

    /* The link to Redis. */
    bool connected, lease_lost;
    uint64_t redis_ms, redis_ms_at; /* what Redis' clock said, and when; 0: not known yet */
    bool quiet;                     /* an operator wants nothing more to be claimed */
    uint64_t quiet_until;           /* no new call before: one has just failed */
    bool reading, reading_own, tracking, renewing, promoting, releasing, pulsing, sharing;
    uint64_t renew_at, promote_at, judge_at, pulse_at;
    struct round reclaim, sweep;
    struct class_state classes[CLASS_COUNT];
    uint32_t read_count; /* of the read that is out, for each class */
    bool small_turn;     /* the next read takes all classes, however small their room makes it */
    uint64_t unblock_at; /* not to be asked for before */
    uint64_t own_at;     /* when to read the own pending lists; NEVER when they are known */
    enum request_class own_class;
    struct entry_id own_after;
    uint32_t own_count;
    bool own_anew;       /* the read of them that is out came too early: begin again */
    bool reclaim_unsure; /* a reclaim's answer or a lease was lost: unknown own entries may be suspects */

    /* The queue, as the last pulse saw it. */
    bool pulse_known;
    struct pulse pulse;
    char enough[ENOUGH_MOST][TENANT_MAX + 1];

    /* The stages, in the order of a request's way. */
    struct request_list to_track;
    struct request_list to_prepare[CLASS_COUNT];
    struct window window;
    struct cost cost; /* of a batch on one compute thread */
    struct tune tune;
    struct cost_shape mean_row;        /* of late */
    uint64_t online_at, online_before; /* when the last two requests came that are not of class low; 0: never */
    struct batch_list retries;         /* halves of failed batches, the next to run first */
    struct batch_list running;         /* with the executor */
    struct request_list to_format;
    struct request_list ready;
    size_t ready_bytes;
    struct request_list again; /* Redis could not settle them now; each goes to ready_alone at its time */
    uint64_t again_at;
    struct request_list ready_alone; /* each in a call of its own, one call at a time: they hold up nobody else */
    bool alone_out;
    uint32_t settles_out, settle_most;
    struct request_list to_release;
    uint32_t away;      /* requests at prep threads */
    uint32_t away_low;  /* of them, those of class low */
    uint64_t hang_seen; /* since when a batch has been overdue; 0: none is */
    uint64_t expire_at; /* when to look for rows that expire, at the earliest */

    /* Suspects. */
    struct request_list suspects;
    struct request *lonely;
    enum lonely_stage lonely_stage;
    struct row *lonely_rows; /* its rows that wait, by `next` */
    bool lonely_turn;
    uint64_t turn_ends; /* NEVER: not before the first of this turn has run */

    /* The end. */
    bool draining, leaving, exited;
    uint64_t drain_ends;
    enum status exit_status;
};

/* worker.c */
MUST_CHECK enum status worker_check(const struct worker_options *options, struct err *err);
struct action *worker_act(struct worker *worker, enum action_kind kind); /* NULL (and starved) when memory ran out */
bool worker_may_call(const struct worker *worker);                       /* connected, and not in a pause */
void worker_call_failed(struct worker *worker);                          /* starts a pause */
bool worker_takes_more(const struct worker *worker);                     /* neither draining nor without a lease */
void worker_weigh(double *mean, double value);                           /* takes one more into a moving mean */
bool worker_claims(const struct worker *worker);                         /* new entries: takes more, and is let to */
uint32_t worker_devices(const struct worker *worker);                    /* that live; 1 when there is none left */
uint64_t worker_after_ms(const struct worker *worker, uint64_t ms);      /* monotonic */
void worker_clock(struct worker *worker, uint64_t redis_ms);             /* Redis has said how late it is */
uint64_t worker_redis_ms(const struct worker *worker);                   /* how late it is there; 0: not known */
uint64_t worker_ms_until(const struct worker *worker, uint64_t at_ms);   /* by Redis' clock; 0: past, or not known */

/* worker_read.c */
void read_connected(struct worker *worker, const struct event *event);
void read_entries(struct worker *worker, const struct event *event);
void read_own_again(struct worker *worker); /* something may be pending with us that is not held */
void read_own_after_ms(struct worker *worker, uint64_t ms);
uint32_t read_room(const struct worker *worker, enum request_class class);       /* entries that may be asked for */
uint32_t read_room_ahead(const struct worker *worker, enum request_class class); /* likewise, ahead of their turn */
void read_advance(struct worker *worker);

/* worker_take.c */
void take_entry(struct worker *worker, const struct entry *entry);
void take_tracked(struct worker *worker, const struct event *event);
void take_disowned(struct worker *worker, struct request *request);      /* on its way to its settle again */
bool take_expired(const struct worker *worker, struct request *request); /* too late to start it: it has its code now */
void take_unstarted(struct worker *worker);                              /* releases what waits for its track */
void take_advance(struct worker *worker);

/* worker_chores.c */
void chores_connected(struct worker *worker);
void chores_claimed(struct worker *worker, const struct event *event); /* READ_RECLAIM, READ_SWEEP */
void chores_lease(struct worker *worker, const struct event *event);
void chores_promoted(struct worker *worker, const struct event *event);
void chores_advance(struct worker *worker);

/* worker_pulse.c */
void pulse_connected(struct worker *worker);
void pulse_answered(struct worker *worker, const struct event *event);
void pulse_advance(struct worker *worker);

/* worker_pace.c */
void pace_open(struct worker *worker);
void pace_arrived(struct worker *worker, const struct request *request);
void pace_computed(struct worker *worker, const struct batch *batch);        /* one more to know our speed by */
void pace_answered(struct worker *worker, const struct request *request);    /* its outcome is in Redis */
void pace_limits(const struct worker *worker, struct window_limits *limits); /* adds those of time */
bool pace_is_online(const struct worker *worker);                            /* somebody waits for each answer */
double pace_rows_per_s(const struct worker *worker); /* with all compute threads busy; 0: not known yet */

/* worker_share.c */
void share_pulsed(struct worker *worker);
void share_answered(struct worker *worker, const struct event *event); /* READ_SHED, READ_FAIR */
void share_advance(struct worker *worker);
uint64_t share_deadline(const struct worker *worker);

/* worker_compute.c */
void compute_accept(struct worker *worker, struct request *request); /* to be prepared, when its class has its turn */
bool compute_waits(const struct worker *worker);                     /* somebody is to be prepared or in the window */
void compute_prepared(struct worker *worker, const struct event *event);
void compute_batch(struct worker *worker, const struct event *event);
void compute_device_lost(struct worker *worker, const struct event *event);
void compute_formatted(struct worker *worker, const struct event *event);
void compute_advance(struct worker *worker);
bool compute_send(struct worker *worker, enum action_kind kind, struct request_list *from, uint32_t most);
void compute_submit(struct worker *worker, struct action *action, struct batch *batch);
void compute_retry(struct worker *worker, struct batch *batch); /* to run before any other */
struct window_limits compute_limits(const struct worker *worker);
void compute_unstarted(struct worker *worker); /* releases all that has not started, what has as it comes back */

/* worker_rows.c */
void rows_go(struct worker *worker, const struct batch *batch); /* a new batch: its rows are out from now on */
void rows_uncut(struct worker *worker, struct row *row);        /* a row for which there is no batch, with twins */
void rows_drop(struct worker *worker, struct request *request); /* those of its rows that wait need not run */
void rows_returned(struct worker *worker, struct batch *batch); /* it has run; ends it */
void rows_back(struct worker *worker, struct batch *batch);     /* it does not run; the caller ends it */
bool rows_unwanted(struct worker *worker, struct batch *batch); /* all have failed otherwise: then ends it */

/* worker_watch.c */
void watch_batches(struct worker *worker);                 /* those that run have changed */
bool watch_ends(struct worker *worker);                    /* one hangs: the worker leaves */
void watch_slept(struct worker *worker, uint64_t late_ns); /* while this process was stopped, so were its threads */
void watch_expired(struct worker *worker);                 /* answers those that the window has put aside */
void watch_advance(struct worker *worker);
uint64_t watch_deadline(const struct worker *worker);

/* worker_lonely.c */
void lonely_add(struct worker *worker, struct request *request);
void lonely_forget(struct worker *worker); /* those that wait: without a lease they are not ours to run */
void lonely_charged(struct worker *worker, const struct event *event);
bool lonely_advance(struct worker *worker); /* whether the stage is the suspects' now */
void lonely_prepared(struct worker *worker);
void lonely_row_back(struct worker *worker, struct row *row); /* is to run once more */
void lonely_stage(struct worker *worker, enum lonely_stage stage);
void lonely_leave(struct worker *worker, const struct request *request); /* if it is the one, it is no longer */
bool lonely_is(const struct worker *worker, const struct request *request);

/* worker_settle.c */
void settle_finish(struct worker *worker, struct request *request); /* its code says how; it goes to ready */
void settle_as(struct worker *worker, struct request *request, enum outcome outcome); /* decided elsewhere */
void settle_gone(struct worker *worker, struct request *request); /* its message is no longer in the stream */
void settle_release(struct worker *worker, struct request *request);
void settle_give_up(struct worker *worker);     /* releases all that has not started */
bool settle_quiet(const struct worker *worker); /* no call is out that is not a settle */
void settle_settled(struct worker *worker, const struct event *event);
void settle_released(struct worker *worker, const struct event *event);
void settle_advance(struct worker *worker);
void settle_drain(struct worker *worker, uint64_t timeout_ms, enum status status);
void settle_forget(struct worker *worker, struct request *request); /* out of the table, freed */

#endif
