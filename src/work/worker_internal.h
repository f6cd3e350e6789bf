/* What the worker's files share: its state, and what they do for each other. Private to work/worker*.c.
 *
 * worker.c               open, close, tune, dispatch of events, the next deadline
 * worker_read.c          reads of the streams and of our own pending lists, and the credit behind them
 * worker_admission.c     from an entry to its first stage, and what a Redis that is nearly full allows
 * worker_compute.c       prepare, window, batches and how long they may be, what becomes of rows, format
 * worker_quarantine.c    suspects: in groups, or one at a time while nothing else runs
 * worker_settle.c        outcomes and their way to Redis, release, drain and exit
 * worker_housekeeping.c  lease, pulse, promotion, mending, reclaim, sweep, caps and fair shares; expiry and hangs
 *
 * A handler takes one kind of event. An `advance` is called in every step and does all that can be done now: it appends
 * actions, or leaves things for the next step when memory has run out (worker->starved). Whoever moves a request into
 * one of the worker's lists has given it away. */
#ifndef WORK_WORKER_INTERNAL_H
#define WORK_WORKER_INTERNAL_H

#include "work/batching.h"
#include "work/held.h"
#include "work/worker.h"

#define NEVER UINT64_MAX

/* How much goes in one call, and how long a pause is. */
enum {
    LIST_MOST = 32,      /* requests in one PREPARE or FORMAT: one crossing for many, several threads for a burst */
    PREP_MOST = 256,     /* requests at the prep threads, from where on only those of the highest class follow */
    PREP_BRIEF = 64,     /* likewise while requests in a hurry are about */
    PREP_LOW = 2,        /* requests of class low there, from where on others of it wait, beside online ones */
    SETTLE_ENTRIES = 64, /* in one call of the script … */
    SETTLE_BYTES = 32 * 1024, /* … and their reply bytes: longer calls hold up everybody else, and Redis grows and
                                 shrinks its buffers for them (docs/measurements/queue.md) */
    SETTLES_OUT = 4,          /* calls on their way at once, so that one round trip is not the limit */
    RELEASE_ENTRIES = 64,
    LOOK_BYTES = 1 << 20, /* of entries that a script has to read for one call, or of a single one */
    READ_MOST = 512,      /* entries in one read */
    RECLAIM_MOST = 64,
    ENOUGH_MOST = 32, /* tenants that are told apart */
    OWN_MOST = 256,   /* READ_OWN; halves when the answer does not arrive */
    PAUSE_MS = 100,   /* after a script that failed, before the next try */
    STARVED_MS = 10,  /* after an allocation failed */
    GROUP_MOST = 64,  /* suspects that are on record as one group */
    CALL_PAUSE = 3,   /* a search that goes on pauses for so many times as long as its last call took */
};

enum { POISON_RUNS = 3 }; /* crashes in lonely runs that make a request poison */

/* What failures cost, from the worker's options. */
struct policy {
    uint32_t backoff_ms, backoff_cap_ms;
    uint32_t error_ttl_s;
    uint64_t random; /* state of the jitter */
};

/* Where the one suspect that may run is. */
enum quarantine_stage {
    QUARANTINE_NONE,
    QUARANTINE_UNSURE,   /* to be charged, perhaps again */
    QUARANTINE_RECORDED, /* to be prepared */
    QUARANTINE_PREPARED,
    QUARANTINE_COMPUTED,
    QUARANTINE_AWAY, /* with the executor, or on its way to its settle */
};

/* What is kept for each class. */
struct class_state {
    double mean_tokens, mean_bytes; /* of an entry, moving */
    double largest_bytes;           /* of the entries of late; halved with every read */
    uint32_t asked;                 /* entries that a reclaim or sweep on its way may bring */
    bool left_out;                  /* of the reads, for want of room */
    bool busy;                      /* the last read brought as many of its entries as were asked for */
    bool over_cap;                  /* there may be requests still to be refused */
    struct entry_id shed_after;     /* up to here there are no cancels among the unread */
    struct entry_id shed_before;    /* from here on, all to be refused were taken; 0-0: none was */

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
    uint64_t sent; /* the call that is out */
    bool took;     /* something, since it began */
};

/* How tight Redis' memory is. */
enum memory_level { MEMORY_ROOM, MEMORY_TIGHT, MEMORY_TRICKLE };

/* What Redis' memory allows. The counters only grow: what is begun and not ended will become replies. */
struct tight {
    enum memory_level level;
    uint64_t begun_bytes, ended_bytes; /* replies, estimated: of all that were ever begun; of these, that have ended */
    uint32_t begun;                    /* requests that have not ended */
    uint64_t ended_asked, ended_then;  /* ended_bytes when the last pulse was sent; when the last answered one was */
    uint64_t allowed;                  /* begun_bytes may pass ended_then by so many; UINT64_MAX: no limit */
    uint32_t turn_reads, turn_begins;  /* trickle: what may still be read, and begun, in this turn */
    uint64_t turn_used;                /* the most that Redis has used since the turn began */
    uint64_t turn_at;                  /* when the next is due whatever Redis uses */
    uint32_t pause_ms;                 /* between two that are due like that */
};

/* Written by the thread of worker_step only. */
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
    bool reading, reading_own, tracking, renewing, promoting, mending, releasing, pulsing, sharing;
    uint64_t shared_at; /* when the look for tenants was sent that is out */
    bool shared_aside;  /* what it finds is set aside for others */
    uint64_t renew_at, promote_at, mend_at, judge_at, pulse_at;
    uint64_t pulsed_at; /* when the last pulse was answered */
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
    enum housekeeper_rank told_rank; /* by the last pulse that was sent */
    struct pulse pulse;
    struct tight tight;
    char enough[ENOUGH_MOST][TENANT_MAX + 1];

    /* The stages, in the order of a request's way. */
    struct request_list to_track;
    struct request_list to_prepare[CLASS_COUNT];
    struct window window;
    struct cost cost; /* of a batch on one compute thread */
    struct tune tune;
    struct cost_shape mean_row;        /* of late */
    double second_tokens;              /* a second's work, at least a full batch for each that may be out */
    uint64_t online_at, online_before; /* when the last two requests came that are not of class low; 0: never */
    uint64_t hurry_at;                 /* when the last one came that is in a hurry; 0: never */
    struct batch_list retries;         /* halves of failed batches, the next to run first */
    struct batch_list running;         /* with the executor */
    struct request_list to_format;
    struct request_list ready;
    size_t ready_bytes;
    struct request_list again; /* Redis could not settle them now; each goes to ready_single at its time */
    uint64_t again_at;
    struct request_list ready_single; /* each in a call of its own, one call at a time: they hold up nobody else */
    bool single_out;
    uint32_t settles_out, settle_most;
    struct request_list to_release;
    uint32_t at_prep;     /* requests at prep threads */
    uint32_t at_prep_low; /* of them, those of class low */
    uint64_t hang_seen;   /* since when a batch has been overdue; 0: none is */
    uint64_t expire_at;   /* when to look for rows that expire, at the earliest */

    /* Suspects. */
    struct request_list suspects[CLASS_COUNT]; /* for groups … */
    uint32_t grouped, grouped_low;             /* members of the one that runs; of them, of class low */
    bool recording;                            /* some of them are being charged */
    uint32_t urgent;                /* suspects of both kinds: no others are taken over before they are charged */
    struct request_list quarantine; /* … or each alone */
    bool asked;                     /* for the process */
    enum turn turn;
    uint64_t turn_ends; /* TURN_ALONE: no other suspect begins then */
    struct request *alone;
    enum quarantine_stage alone_stage;
    struct row *alone_rows; /* its rows that wait, by `next` */

    /* The end. */
    bool draining, leaving, exited;
    uint64_t drain_ends;
    enum status exit_status;
};

/* --- worker.c --- */

/* Appends an action to those of this step, for the caller to fill. NULL (and starved) when memory ran out. */
struct action *worker_act(struct worker *worker, enum action_kind kind);

/* Whether Redis may be called: connected, and not in the pause after a call that failed. */
bool worker_may_call(const struct worker *worker);

/* A call has failed as a whole: starts that pause. */
void worker_call_failed(struct worker *worker);

/* Whether work may begin: neither draining nor without a lease. */
bool worker_takes_more(const struct worker *worker);

/* Whether new entries may be claimed: it takes more, and the operator is not against it. */
bool worker_claims(const struct worker *worker);

/* Whether the queue's chores are this worker's to do now: it is the housekeeper, and it claims. */
bool worker_keeps_house(const struct worker *worker);

/* Takes one more value into a moving mean (of about the last 32). */
void worker_weigh(double *mean, double value);

/* The devices that live; 1 when there is none left, for it is divided by. */
uint32_t worker_devices(const struct worker *worker);

/* The time so many ms from now. Units: monotonic ns. */
uint64_t worker_after_ms(const struct worker *worker, uint64_t ms);

/* Redis has said how late it is there. Units: unix ms. */
void worker_clock(struct worker *worker, uint64_t redis_ms);

/* How late it is at Redis now, by what it said last; 0: it has not said yet. Units: unix ms. */
uint64_t worker_redis_ms(const struct worker *worker);

/* How long it is until a time of Redis' clock; 0 when that is past, or the clock is not known. */
uint64_t worker_ms_until(const struct worker *worker, uint64_t at_ms);

/* --- worker_read.c --- */

/* EVENT_CONNECTED: the own pending lists are read first, and all chores begin anew. */
void read_connected(struct worker *worker, const struct event *event);

/* EVENT_ENTRIES of any source: tells whoever had asked, then takes each entry. */
void read_entries(struct worker *worker, const struct event *event);

/* Something may be pending with us that is not held: reads the own lists from their beginning. */
void read_own_again(struct worker *worker);

/* Likewise in a while, unless that is to happen sooner anyhow. */
void read_own_after_ms(struct worker *worker, uint64_t ms);

/* How many entries of a class may be asked for within its credit, by what they have weighed of late. */
uint32_t read_room(const struct worker *worker, enum request_class class);

/* Likewise of those that are claimed ahead of their turn, which have a quarter of the credit for themselves. */
uint32_t read_room_ahead(const struct worker *worker, enum request_class class);

/* What may be held, all devices together: bytes of each class, and tokens of this one. */
uint64_t read_credit_bytes(const struct worker *worker);
double read_credit_tokens(const struct worker *worker, enum request_class class);

/* Keeps one read out, and ends one that blocks in the way of a better one. */
void read_advance(struct worker *worker);

/* --- worker_admission.c --- */

/* The bytes of an entry's fields. */
uint64_t entry_bytes(const struct entry *entry);

/* Makes a request of an entry, holds it and sends it on its way. One that is held already only remembers it. */
void admit_entry(struct worker *worker, const struct entry *entry);

/* EVENT_TRACKED: the requests start, also those whose track could not be written. */
void admit_tracked(struct worker *worker, const struct event *event);

/* The name that a request brought was not its own (VERDICT_NOT_ITS_NAME): on its way to its settle again, without. */
void admit_disowned(struct worker *worker, struct request *request);

/* No more requests that wait for their time are taken (VERDICT_LATER_FULL): to be answered so. */
void admit_refused(struct worker *worker, struct request *request);

/* Whether it is too late to start a request; it then has its code, and is the caller's to finish. */
bool admit_expired(const struct worker *worker, struct request *request);

/* Releases those that wait for their track to be written. */
void admit_unstarted(struct worker *worker);

/* Sends off tracks, one call at a time. */
void admit_advance(struct worker *worker);

/* --- worker_housekeeping.c --- */

/* Just connected: when each chore is due from now on. */
void chores_connected(struct worker *worker);

/* EVENT_ENTRIES of READ_RECLAIM or READ_SWEEP: the round goes on to more, the next class, or its pause. */
void chores_claimed(struct worker *worker, const struct event *event);

/* EVENT_LEASE: a lease that is lost ends all that has not started. */
void chores_lease(struct worker *worker, const struct event *event);

/* EVENT_PROMOTED: when to look again. */
void chores_promoted(struct worker *worker, const struct event *event);

/* EVENT_MENDED: goes on at once while there is more. */
void chores_mended(struct worker *worker, const struct event *event);

/* An entry has come whose id is ahead of the clock. */
void chores_mend_soon(struct worker *worker);

/* Does what is due: renews, beats, reclaims, sweeps, mends, promotes. */
void chores_advance(struct worker *worker);

/* EVENT_PULSE: the queue's state and an operator's command. One that failed leaves both as they were. */
void pulse_answered(struct worker *worker, const struct event *event);

/* When the next pulse is due: each second, and sooner while something waits for memory. Units: monotonic ns. */
uint64_t pulse_due(const struct worker *worker);

/* How long after a pulse that was answered the next one is to follow, by what waits for memory. Units: ms. */
uint64_t tight_look_ms(const struct worker *worker);

/* A pulse is sent: what has ended by now is in the memory that it will tell of. */
void tight_asked(struct worker *worker);

/* A pulse has told what Redis uses: how many bytes of replies may be begun until the next one, and whether it is our
 * turn, where only a trickle may go on. */
void tight_pulsed(struct worker *worker);

/* How many entries may be read now, at most `most`. */
uint32_t tight_reads(const struct worker *worker, uint32_t most);

/* How many of the first `most` of a list may begin now. In a trickle the first of a turn may, however large. */
uint32_t tight_begins(const struct worker *worker, const struct request_list *list, uint32_t most);

/* A request begins: its reply is on its way to Redis. Nothing where it was counted already. */
void tight_begun(struct worker *worker, struct request *request);

/* A request has ended, begun or not. */
void tight_ended(struct worker *worker, struct request *request);

/* Begins with the calibrated cost and the target of the options. */
void pace_open(struct worker *worker);

/* A request's outcome is in Redis: one more latency for the target, where it was an ordinary run. */
void pace_answered(struct worker *worker, const struct request *request);

/* Whether somebody waits for each answer: two requests of class high or normal have come of late. */
bool pace_is_online(const struct worker *worker);

/* Works out anew what a second's work is (worker->second_tokens): speed, devices or options have changed. */
void pace_second(struct worker *worker);

/* Rows a second with all compute threads busy, in full batches of what texts are like of late; 0: not known yet. */
double pace_rows_per_s(const struct worker *worker);

/* EVENT_ENTRIES of READ_SHED or READ_FAIR: where to go on. */
void share_answered(struct worker *worker, const struct event *event);

/* Refuses what is above a cap, and looks for tenants that another one is in the way of; one call at a time. */
void share_advance(struct worker *worker);

/* When the next look for tenants is due; NEVER where nobody is in the way. Units: monotonic ns. */
uint64_t share_deadline(const struct worker *worker);

/* --- worker_compute.c --- */

/* Lines a request up to be prepared, when its class has its turn. */
void compute_accept(struct worker *worker, struct request *request);

/* EVENT_PREPARED: rows go into the window, failed requests to their settle. */
void compute_prepared(struct worker *worker, const struct event *event);

/* EVENT_BATCH: its cost is learnt, then rows_returned. */
void compute_batch(struct worker *worker, const struct event *event);

/* EVENT_DEVICE_LOST: what may be out is less from now on. */
void compute_device_lost(struct worker *worker, const struct event *event);

/* EVENT_FORMATTED: the requests are done, or have failed at it. */
void compute_formatted(struct worker *worker, const struct event *event);

/* Sends formats, retried batches, suspects or new batches, and prepares, in this order. */
void compute_advance(struct worker *worker);

/* Sends at most `most` requests of a list to the prep threads (ACTION_PREPARE or ACTION_FORMAT). False, and nothing was
 * taken, when memory ran out. */
bool compute_send(struct worker *worker, enum action_kind kind, struct request_list *from, uint32_t most);

/* Fills an ACTION_SUBMIT with a batch, which is running from now on. */
void compute_submit(struct worker *worker, struct action *action, struct batch *batch);

/* What the next batch may be, in size and in time. */
struct window_limits compute_limits(const struct worker *worker);

/* Releases all that has not started; who has rows out follows when the last of them is back. */
void compute_unstarted(struct worker *worker);

/* A new batch: its rows and their duplicates are out from now on. */
void rows_go(struct worker *worker, const struct batch *batch);

/* Takes those rows of a request out of the window that wait there: they need not run. */
void rows_drop(struct worker *worker, struct request *request);

/* The batches that are out have changed: since when each of them is being run, as far as can be known. */
void watch_batches(struct worker *worker);

/* Whether a batch hangs; the worker then leaves without giving anything back. */
bool watch_ends(struct worker *worker);

/* This process was stopped for a while, and so were its compute threads: that counts against no batch. */
void watch_slept(struct worker *worker, uint64_t late_ns);

/* Answers the requests whose rows the window has put aside because they expired. */
void watch_expired(struct worker *worker);

/* Looks for rows that have expired while no batch is cut. */
void watch_advance(struct worker *worker);

/* When the next batch hangs, row expires or fixed window ends. Units: monotonic ns; NEVER where none will. */
uint64_t watch_deadline(const struct worker *worker);

/* --- worker_quarantine.c --- */

/* Lines a suspect up for a group, or for its lonely run. */
void quarantine_add(struct worker *worker, struct request *request);

/* Drops the suspects that wait: without a lease they are not ours to run. They stay pending. */
void quarantine_forget(struct worker *worker);

/* EVENT_RUN_RECORDED: they may run, are poison, or are not ours any more. */
void quarantine_recorded(struct worker *worker, const struct event *event);

/* EVENT_TURN. */
void quarantine_turn(struct worker *worker, const struct event *event);

/* Charges the next group, asks for the process, or takes the one suspect that has it a step further. Whether the
 * process is somebody's: nothing else may be prepared or cut then. */
bool quarantine_advance(struct worker *worker);

/* The suspect was prepared: all its rows are to run. */
void quarantine_prepared(struct worker *worker);

/* A row of the suspect is to run once more. */
void quarantine_row_back(struct worker *worker, struct row *row);

/* Where the suspect is now. */
void quarantine_stage(struct worker *worker, enum quarantine_stage stage);

/* Likewise of one that is gone from here, perhaps before it was charged. */
void quarantine_ended(struct worker *worker, struct request *request);

/* Whether this request is the suspect that runs now. */
bool quarantine_is(const struct worker *worker, const struct request *request);

/* --- worker_settle.c --- */

/* A number in 0 .. below-1, of a small generator that is seeded by the options: the same seed repeats a run. */
uint32_t policy_random(struct policy *policy, uint32_t below);

/* Backoff before the run after `attempt`: backoff_ms doubled for each, ±20 %, at most the cap. Units: ms. */
uint32_t policy_backoff_ms(struct policy *policy, uint32_t attempt);

/* Turns a request's code into its outcome: done; retry while the code is transient, attempts are left and the next one
 * would begin before it expires; dead letter when that is over or it is poison; else an error. An error reply lives at
 * least error_ttl_s. Units: now_ms is Redis' unix ms, 0 when not known. */
void policy_judge(struct policy *policy, struct request *request, uint64_t now_ms);

/* The reply code for a forward pass that failed for this row alone. */
enum reply_code policy_code(enum status status);

/* Lets the policy judge a request by its code; it goes to those that are to be settled. */
void settle_finish(struct worker *worker, struct request *request);

/* Likewise with an outcome that was decided elsewhere. */
void settle_as(struct worker *worker, struct request *request, enum outcome outcome);

/* Its message is no longer in the stream: to be settled as OUTCOME_GONE. */
void settle_gone(struct worker *worker, struct request *request);

/* To be given back unfinished. */
void settle_release(struct worker *worker, struct request *request);

/* Gives back all that has not started. */
void settle_give_up(struct worker *worker);

/* EVENT_SETTLED: each verdict ends a request, changes its outcome, or has it tried again later. */
void settle_settled(struct worker *worker, const struct event *event);

/* EVENT_RELEASED: those requests are nobody's now; after the last release the worker exits. */
void settle_released(struct worker *worker, const struct event *event);

/* Sends settles and releases, and what a drain or a lost lease wants when nothing is held any more. */
void settle_advance(struct worker *worker);

/* Begins to leave: gives back what has not started, and exits when the rest is done, at the latest after timeout_ms.
 * Called again it may only shorten that. A status other than STATUS_OK is that of the exit. */
void settle_drain(struct worker *worker, uint64_t timeout_ms, enum status status);

/* Takes a request out of the table and frees it. */
void settle_forget(struct worker *worker, struct request *request);

#endif
