/* What the worker's files share: the state, and who does what. Private to work/worker*.c.
 *
 * worker.c          open, close, dispatch of events, the next deadline
 * worker_read.c     everything that talks about the stream: reads, reclaim, lease, promote
 * worker_compute.c  prepare, window, batches, format
 * worker_rows.c     what becomes of rows when their batch is back, failed or not
 * worker_lonely.c   suspects: one at a time, while nothing else runs
 * worker_settle.c   outcomes on their way to Redis, release, drain and exit
 * worker_look.c     what the outside may look at and change while it runs */
#ifndef WORK_WORKER_STATE_H
#define WORK_WORKER_STATE_H

#include "work/held.h"
#include "work/policy.h"
#include "work/window.h"
#include "work/worker.h"

#define NEVER UINT64_MAX

enum {
    LIST_MOST = 32,      /* requests in one PREPARE or FORMAT: one crossing for many, several threads for a burst */
    AWAY_MOST = 256,     /* requests at the prep threads, from where on only those of the highest class follow */
    SETTLE_ENTRIES = 64, /* in one call of the script … */
    SETTLE_BYTES = 32 * 1024, /* … and their reply bytes: longer calls hold up everybody else, and Redis grows and
                                 shrinks its buffers for them (docs/speed.md) */
    SETTLES_OUT = 4,          /* calls on their way at once, so that one round trip is not the limit */
    RELEASE_ENTRIES = 256,
    READ_MOST = 512, /* entries in one read */
    RECLAIM_MOST = 64,
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

struct batch_list {
    struct batch *first, *last;
    uint32_t count;
};

struct worker { /* in order of meaning. NOLINT(clang-analyzer-optin.performance.Padding) */
    struct worker_options options;
    struct policy policy;
    struct budget budget;
    struct worker_stats stats;
    struct held held;

    /* The step at hand. */
    uint64_t now;
    struct actions *actions;
    bool starved; /* an allocation failed in this step: try again soon */

    /* The link to Redis. */
    bool connected, lease_lost;
    uint64_t redis_ms, redis_ms_at; /* what Redis' clock said, and when; 0: not known yet */
    bool quiet;                     /* an operator wants nothing more to be claimed */
    uint64_t quiet_until;           /* no new call before: one has just failed */
    bool reading, reading_own, reclaiming, renewing, promoting, releasing;
    uint32_t reclaim_asked; /* entries that the reclaim on its way may bring */
    uint64_t renew_at, promote_at, reclaim_at, judge_at;
    uint64_t own_at; /* when to read the own pending list; NEVER when it is known */
    struct entry_id own_after;
    uint32_t own_count;
    bool own_anew;                  /* the read of it that is out came too early: begin again */
    bool reclaim_unsure;            /* a reclaim's answer or a lease was lost: unknown own entries may be suspects */
    double mean_tokens, mean_bytes; /* of an entry, moving */

    /* The stages, in the order of a request's way. */
    struct request_list to_prepare[CLASS_COUNT];
    struct window window;
    struct batch_list retries; /* halves of failed batches, the next to run first */
    struct batch_list running; /* with the executor */
    struct request_list to_format;
    struct request_list ready;
    size_t ready_bytes;
    struct request_list again; /* settled with `again`; back to ready at again_at */
    uint64_t again_at;
    uint32_t settles_out, settle_most;
    struct request_list to_release;
    uint32_t away;      /* requests at prep threads */
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
void worker_unblock(struct worker *worker);                              /* ends a blocked read early */
void worker_clock(struct worker *worker, uint64_t redis_ms);             /* Redis has said how late it is */
uint64_t worker_redis_ms(const struct worker *worker);                   /* how late it is there; 0: not known */

/* worker_read.c */
void read_connected(struct worker *worker, const struct event *event);
void read_entries(struct worker *worker, const struct event *event);
void read_own_again(struct worker *worker); /* something may be pending with us that is not held */
void read_lease(struct worker *worker, const struct event *event);
void read_promoted(struct worker *worker, const struct event *event);
void read_advance(struct worker *worker);
bool read_quiet(const struct worker *worker); /* no read, reclaim, renewal or promotion is out */

/* worker_compute.c */
void compute_accept(struct worker *worker, struct request *request); /* to be prepared, when its class has its turn */
bool compute_waits(const struct worker *worker);                     /* somebody is to be prepared or in the window */
uint64_t compute_deadline(const struct worker *worker);              /* when compute_advance wants to be called again */
void compute_prepared(struct worker *worker, const struct event *event);
void compute_batch(struct worker *worker, const struct event *event);
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
void settle_release(struct worker *worker, struct request *request);
void settle_settled(struct worker *worker, const struct event *event);
void settle_released(struct worker *worker, const struct event *event);
void settle_advance(struct worker *worker);
void settle_drain(struct worker *worker, uint64_t timeout_ms, enum status status);
void settle_forget(struct worker *worker, struct request *request); /* out of the table, freed */

#endif
