/* The worker's state and the functions that its files call in each other. Private to schedule/worker*.c.
 *
 * worker.c          open, close, tune, dispatch of events, the next deadline
 * read.c          reads of the streams and of our own pending lists, and the credit that limits them
 * admit.c     from an entry to its first stage, and the limits of a Redis that is nearly full
 * cut.c       prepare, window, batches and how long they may be, the outcome of rows, format
 * redis_limits.c        replies and entries that exceed Redis' limits
 * quarantine.c    suspects: in groups, or one at a time while nothing else runs
 * settle.c        outcomes and their way to Redis, release, drain and exit
 * chores.c  lease, pulse, promotion, mending, reclaim, sweep, caps and fair shares; expiry and hangs
 *
 * A handler takes one kind of event. An `advance` runs in every step and does all that can be done now: it appends
 * actions, or leaves work for the next step if memory has run out (worker->starved). A request moved into one of the
 * worker's lists has been given away. */
#ifndef SCHEDULE_WORKER_INTERNAL_H
#define SCHEDULE_WORKER_INTERNAL_H

#include "schedule/held.h"
#include "schedule/tune.h"
#include "schedule/window.h"
#include "schedule/worker.h"

#define NEVER UINT64_MAX

/* Sizes of calls and lengths of pauses. */
enum {
    LIST_MOST =
        32, /* requests in one PREPARE or FORMAT: few crossings, but a burst still spreads over several threads */
    PREP_MOST = 256,          /* requests at the prep threads, beyond which only class high follows */
    PREP_BRIEF = 64,          /* the same limit while urgent requests are around */
    PREP_LOW = 2,             /* requests of class low there, beyond which more of it wait while online requests come */
    SETTLE_ENTRIES = 64,      /* in one call of the script */
    SETTLE_BYTES = 32 * 1024, /* reply bytes in one call: longer calls delay all other clients, and Redis grows and
                                 shrinks its buffers for them (docs/measurements/queue.md) */
    SETTLES_OUT = 4,          /* calls in flight at once, so that a round trip is not the limit */
    RELEASE_ENTRIES = 64,
    LOOK_BYTES = 1 << 20, /* bytes of entries that a script reads in one call; a single entry may be larger */
    READ_MOST = 128,      /* entries in one read; larger answers make Redis wait for the settles after them */
    RECLAIM_MOST = 64,
    ENOUGH_MOST = 32, /* tenants that a search tells apart */
    OWN_MOST = 256,   /* READ_OWN; halved when no answer arrives */
    PAUSE_MS = 100,   /* after a script that failed, before the next try */
    STARVED_MS = 10,  /* after an allocation failed */
    GROUP_MOST = 64,  /* suspects recorded as one group */
    CALL_PAUSE = 3,   /* a search that continues pauses this many times as long as its last call took */
};

enum { POISON_RUNS = 3 }; /* number of crashes in runs alone that make a request poison */

/* The stage of the one suspect that runs alone. */
enum quarantine_stage {
    QUARANTINE_NONE,
    QUARANTINE_UNSURE,   /* its run must be recorded, perhaps again */
    QUARANTINE_RECORDED, /* it must be prepared */
    QUARANTINE_PREPARED,
    QUARANTINE_COMPUTED,
    QUARANTINE_AWAY, /* with the executor, or being settled */
};

/* The state of a class. */
struct class_state {
    double mean_tokens, mean_bytes; /* of an entry, moving means */
    double largest_bytes;           /* of recent entries; halved with every read */
    uint32_t asked;                 /* entries that a reclaim or sweep in flight may bring */
    bool left_out;                  /* of reads, for lack of room */
    bool busy;                      /* the last read brought as many of its entries as it could */
    bool over_cap;                  /* perhaps more requests must be refused */
    struct entry_id shed_after;     /* unread entries up to here hold no cancels */
    struct entry_id newest;         /* the last entry that a read brought; 0-0: none yet */
    struct entry_id shed_before;    /* all entries to refuse from here on were taken; 0-0: none yet */

    bool tenants;                   /* an entry named a tenant since the backlog began */
    uint64_t fair_at, fair_pass_at; /* the next search; until fair_pass_at, searches are at the tail only */
    struct entry_id fair_after;     /* where the pass continues */
    struct entry_id fair_first;     /* where this pass, or an earlier one, found its first entry */
    struct entry_id fair_tail;      /* all entries up to here were searched once */
    bool fair_found, fair_tail_known, fair_at_tail;
};

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

/* Entries that are pending in our name but that we do not hold; see read.c. */
struct strays {
    bool listing; /* ACTION_LIST_OWN is out */
    bool reading; /* the READ_OWN that is out reads those found */
    bool more;    /* some were taken: list again at once */
    uint64_t list_at;
    struct entry_id after[CLASS_COUNT]; /* where the pass through our pending list continues … */
    struct entry_id end[CLASS_COUNT];   /* … and after which it begins again; 0-0: at the end of the list */
    struct stray {
        enum request_class class;
        struct entry_id id;
    } found[OWN_LIST_MOST]; /* in the order of their classes and ids */
    uint32_t count;
};

/* How tight Redis' memory is. */
enum memory_level { MEMORY_ROOM, MEMORY_TIGHT, MEMORY_TRICKLE };

/* The work that Redis' memory allows. The counters only grow; requests that have begun and not ended will become
 * replies. */
struct tight {
    enum memory_level level;
    uint64_t begun_bytes,
        ended_bytes;                  /* estimated replies: of all requests that ever began; of those that have ended */
    uint32_t begun;                   /* requests that began and have not ended */
    uint64_t ended_asked, ended_then; /* ended_bytes when the last pulse was sent, and when the last answered one was */
    uint64_t allowed;                 /* how far begun_bytes may exceed ended_then; UINT64_MAX: no limit */
    uint32_t turn_reads, turn_begins; /* trickle: requests that may still be read, and begun, in this turn */
    uint64_t turn_used;               /* the most memory that Redis has used since the turn began */
    uint64_t turn_at;                 /* when the next turn is due however much Redis uses */
    uint32_t pause_ms;                /* between two turns that are due by time */
};

/* Counts how often in a row the connection was closed while only this entry was read on it. */
struct cut_entry {
    enum request_class class;
    struct entry_id id;
    uint32_t cuts;
};

/* The limits of Redis, as far as they are known. */
struct limits {
    uint64_t answer_bytes, answer_grows_at; /* the size of one answer; when to try twice as much */
    bool read_lost, alone_lost, claim_lost; /* READ, READ_OWN of one entry, or a claim was out when the connection
                                               broke */
    bool own_by_id;                         /* entries pending with us are listed by id, and read one at a time */
    struct cut_entry alone;                 /* the entry that is read alone, or the last such one */
    struct cut_entry entry;                 /* the last one with which the connection was lost */
    uint64_t entries_until;                 /* until then one proof against an entry is enough */
    uint64_t wary_until;                    /* until then large replies are sent one at a time */
    size_t reply_bytes;                     /* a reply of that length could not be sent, so … */
    uint64_t replies_until;                 /* … until then, no reply that is as long is sent */
    bool proving;                           /* a reply with which the connection was lost is out again */
};

/* Only the thread of worker_step writes it. */
struct worker { /* in order of meaning. NOLINT(clang-analyzer-optin.performance.Padding) */
    struct worker_options options;
    uint64_t random; /* state of the jitter */
    struct budget budget;
    struct worker_stats stats;
    struct worker_histograms histograms;
    struct held held;

    /* The current step. */
    uint64_t now;
    uint64_t wakes_at; /* the deadline returned by the step before */
    struct actions *actions;
    bool starved; /* an allocation failed in this step: try again soon */

    /* The connection to Redis. */
    bool connected, lease_lost;
    uint64_t redis_ms, redis_ms_at; /* Redis' clock, and when it was read; 0: unknown */
    bool quiet;                     /* an operator forbids new claims */
    uint64_t quiet_until;           /* no new call until then, because one has just failed */
    bool reading, reading_own, renewing, promoting, mending, releasing, pulsing, sharing;
    uint64_t shared_at; /* when the search for tenants that is out was sent */
    bool shared_aside;  /* it sets entries aside for other workers */
    uint64_t renew_at, promote_at, mend_at, judge_at, pulse_at;
    uint64_t pulsed_at;    /* when the last pulse was answered */
    uint32_t mends_failed; /* in a row */
    struct round reclaim, sweep;
    struct class_state classes[CLASS_COUNT];
    uint32_t read_count; /* of the read in flight, per class */
    bool small_turn;     /* the next read takes all classes, however small the room of one makes it */
    uint64_t unblock_at; /* no other unblock until then */
    uint64_t own_at;     /* when to read our own pending lists; NEVER: they are known */
    enum request_class own_class;
    struct entry_id own_after;
    struct entry_id own_next; /* the next entry to read alone; 0-0: none */
    enum own_part own_part;   /* the part that the own read in flight brings */
    bool own_refused;         /* own_next cannot be read: only its address is requested */
    uint32_t own_count;
    bool own_anew; /* the own read in flight came too early: begin again */
    struct strays strays;
    bool reclaim_unsure; /* a reclaim's answer or a lease was lost: own entries we do not know may be suspects */

    /* The queue, by the last pulse. */
    bool pulse_known;
    enum housekeeper_rank told_rank; /* sent with the last pulse */
    struct pulse pulse;
    struct tight tight;
    char enough[ENOUGH_MOST][TENANT_MAX + 1];

    struct limits limits;

    /* The stages, in the order of a request's way. */
    struct request_list to_prepare[CLASS_COUNT];
    struct window window;
    struct cost cost; /* of a batch on one compute thread */
    struct tune tune;
    struct cost_shape mean_row;        /* of recent rows */
    double second_tokens;              /* a second's work; at least a full batch for each one that may be out */
    uint64_t online_at, online_before; /* when the last two requests of class high or normal came; 0: never */
    uint64_t hurry_at;                 /* when the last urgent one came; 0: never */
    struct batch_list retries;         /* halves of failed batches, in the order of their runs */
    struct batch_list running;         /* with the executor */
    struct request_list to_format;
    struct request_list ready;
    size_t ready_bytes;
    struct request_list again; /* refused by Redis for now; each goes to ready_single at its time */
    uint64_t again_at;
    struct request_list ready_single; /* each settled in its own call, one at a time: they delay no other request */
    bool single_out;
    uint32_t settles_out, settle_most;
    struct request_list to_release;
    uint32_t at_prep;     /* requests at prep threads */
    uint32_t at_prep_low; /* those of class low */
    uint64_t hang_seen;   /* when a batch was first seen overdue; 0: none is */
    uint64_t expire_at;   /* the earliest time of the next check for expired rows */

    /* Suspects. */
    struct request_list suspects[CLASS_COUNT]; /* those that run in groups */
    uint32_t grouped, grouped_low;             /* members of the group that runs; of these, those of class low */
    bool recording;                            /* runs of a group are being recorded */
    uint32_t urgent;                /* urgent suspects: nothing is taken over before their runs are recorded */
    struct request_list quarantine; /* those that run alone, one at a time */
    bool asked;                     /* it has asked for the whole process */
    enum turn turn;
    uint64_t turn_ends;    /* TURN_ALONE: no further suspect begins after this */
    struct request *alone; /* the suspect that runs alone now */
    enum quarantine_stage alone_stage;
    struct row *alone_rows; /* its waiting rows, by `next` */

    /* The end. */
    bool draining, leaving, exited;
    uint64_t drain_ends;
    enum status exit_status;
};

/* Handlers of events: the table in worker.c calls them. */
void read_connected(struct worker *worker, const struct event *event);      /* EVENT_CONNECTED: our own entries first */
void read_entries(struct worker *worker, const struct event *event);        /* EVENT_ENTRIES, of every kind of read */
void run_prepared(struct worker *worker, const struct event *event);        /* EVENT_PREPARED: tokenised rows */
void run_batch(struct worker *worker, const struct event *event);           /* EVENT_BATCH: computed, or failed */
void run_formatted(struct worker *worker, const struct event *event);       /* EVENT_FORMATTED: encoded replies */
void run_device_lost(struct worker *worker, const struct event *event);     /* EVENT_DEVICE_LOST: devices left */
void strays_listed(struct worker *worker, const struct event *event);       /* EVENT_OWN_LISTED: ids pending with us */
void quarantine_recorded(struct worker *worker, const struct event *event); /* EVENT_RUN_RECORDED: suspects may run */
void quarantine_turn(struct worker *worker, const struct event *event);     /* EVENT_TURN: a new turn has begun */
void settle_settled(struct worker *worker, const struct event *event);      /* EVENT_SETTLED: a verdict on each */
void settle_released(struct worker *worker, const struct event *event);     /* EVENT_RELEASED: given back */
void chores_lease(struct worker *worker, const struct event *event);        /* EVENT_LEASE: renewed, or lost */
void chores_promoted(struct worker *worker, const struct event *event);     /* EVENT_PROMOTED: parked ones are back */
void chores_mended(struct worker *worker, const struct event *event);       /* EVENT_MENDED: ids ahead of the clock */
void pulse_answered(struct worker *worker, const struct event *event);      /* EVENT_PULSE: orders, caps, election */

/* --- worker.c --- */

/* EVENT_QUIET, RESUME, DRAIN, STOP: obeys an operator's order; does nothing for other kinds. */
void worker_obey(struct worker *worker, enum event_kind kind);

/* Appends an action to those of this step, for the caller to fill in. NULL (and starved) when memory ran out. */
struct action *worker_act(struct worker *worker, enum action_kind kind);

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

/* Adds a value to a moving mean (of about the last 32). */
void worker_weigh(double *mean, double value);

/* Live devices; at least 1, because callers divide by it. */
uint32_t worker_devices(const struct worker *worker);

/* The time in `ms` from now. Units: monotonic ns. */
uint64_t worker_after_ms(const struct worker *worker, uint64_t ms);

/* Notes Redis' clock. Units: unix ms. */
void worker_clock(struct worker *worker, uint64_t redis_ms);

/* Redis' clock now, extrapolated; 0: unknown. Units: unix ms. */
uint64_t worker_redis_ms(const struct worker *worker);

/* The ms until a time of Redis' clock; 0 if that is past or the clock is unknown. */
uint64_t worker_ms_until(const struct worker *worker, uint64_t at_ms);

/* --- read.c --- */

/* Reads our own lists from the start, because entries may be pending with us that are not held. */
void read_own_again(struct worker *worker);

/* The same after a while, unless it is due sooner anyway. */
void read_own_after_ms(struct worker *worker, uint64_t ms);

/* Lists the entries that are pending in our name, about once a second, with a pulse. */
void strays_advance(struct worker *worker);

/* The number of entries of a class that its credit allows, by their recent weight. */
uint32_t read_room(const struct worker *worker, enum request_class class);

/* The same for entries claimed ahead of their turn, which have a separate quarter of the credit. */
uint32_t read_room_ahead(const struct worker *worker, enum request_class class);

/* The bytes of each class that may be held for all devices together. */
uint64_t read_credit_bytes(const struct worker *worker);

/* The tokens of a class that may be held for all devices together. */
double read_credit_tokens(const struct worker *worker, enum request_class class);

/* The number of entries of a class, at most `most`, that fit into one answer by their recent size; at least 1. */
uint32_t read_most(const struct worker *worker, enum request_class class, uint32_t most);

/* Keeps one read in flight, and ends a blocked one if a better one is possible. */
void read_advance(struct worker *worker);

/* --- admit.c --- */

/* The bytes of an entry's fields. */
uint64_t entry_bytes(const struct entry *entry);

/* Makes a request of an entry, holds it and routes it. If it is held already, only the delivery is noted. */
void admit_entry(struct worker *worker, const struct entry *entry);

/* Drops the name of a request that was not its own (VERDICT_NOT_ITS_NAME), and settles the request again. */
void admit_disowned(struct worker *worker, struct request *request);

/* Refuses a request, because too many wait for their time (VERDICT_LATER_FULL). */
void admit_refused(struct worker *worker, struct request *request);

/* Returns whether it is too late to start a request. If so, it has its code, and the caller finishes it. */
bool admit_expired(const struct worker *worker, struct request *request);

/* The time from an answered pulse to the next one; shorter while requests wait for memory. Units: ms. */
uint64_t tight_look_ms(const struct worker *worker);

/* Notes that a pulse is sent: the memory that it reports will include replies of requests that have ended by now. */
void tight_asked(struct worker *worker);

/* Computes from the memory that a pulse reported how many bytes of replies may begin until the next one, and, in a
 * trickle, whether it is our turn. */
void tight_pulsed(struct worker *worker);

/* The number of entries that may be read now, at most `most`. */
uint32_t tight_reads(const struct worker *worker, uint32_t most);

/* The number of the first `most` requests of a list that may begin now. In a trickle the first of a turn always may. */
uint32_t tight_begins(const struct worker *worker, const struct request_list *list, uint32_t most);

/* Counts the future reply of a request that begins, once. */
void tight_begun(struct worker *worker, struct request *request);

/* Counts a request that has ended, begun or not. */
void tight_ended(struct worker *worker, struct request *request);

/* --- cut.c --- */

/* Starts with the calibrated cost and the target of the options. */
void pace_open(struct worker *worker);

/* Measures how long a request took, now that its outcome is in Redis; for the target only if it was an ordinary run. */
void pace_answered(struct worker *worker, const struct request *request);

/* Returns whether producers wait for answers: two requests of class high or normal came recently. */
bool pace_is_online(const struct worker *worker);

/* Recomputes a second's work (worker->second_tokens) after speed, devices or options have changed. */
void pace_second(struct worker *worker);

/* Rows per second with all compute threads busy, in full batches of recent texts; 0: unknown. */
double pace_rows_per_s(const struct worker *worker);

/* Queues a request for preparing. */
void run_accept(struct worker *worker, struct request *request);

/* Sends, in this order: formats, retried batches, suspects or new batches, and prepares. */
void run_advance(struct worker *worker);

/* Sends at most `most` requests of a list to the prep threads (ACTION_PREPARE or ACTION_FORMAT). False, with nothing
 * taken, when memory ran out. */
bool run_send(struct worker *worker, enum action_kind kind, struct request_list *from, uint32_t most);

/* Fills an ACTION_SUBMIT with a batch, which counts as running from now on. */
void run_submit(struct worker *worker, struct action *action, struct batch *batch);

/* The limits of the next batch, in size and in time. */
struct window_limits run_limits(const struct worker *worker);

/* Releases all requests that have not started. Requests with rows out follow when the last row is back. */
void run_unstarted(struct worker *worker);

/* Counts the rows of a new batch, and their duplicates, as out. */
void rows_go(struct worker *worker, const struct batch *batch);

/* Takes a request's waiting rows out of the window, because they need not run. */
void rows_drop(struct worker *worker, struct request *request);

/* --- redis_limits.c --- */

/* Starts without known limits, for a new worker or a new server. */
void limits_open(struct worker *worker);

/* The most bytes that one answer should have. */
uint64_t limits_answer_bytes(const struct worker *worker);

/* The number of entries, at most `most`, that a claim may bring: `most` while no limit is known. */
uint32_t limits_claim(const struct worker *worker, enum request_class class, uint32_t most);

/* Lets answers grow again after a long while, when new entries are read. */
void limits_asked(struct worker *worker);

/* EVENT_CONNECTED, before settle_connected: learns from the loss about reads and claims that were out. */
void limits_connected(struct worker *worker, enum loss loss);

/* Returns whether an entry of our own lists that is not held cannot be read. */
bool limits_entry_refused(struct worker *worker, enum request_class class, struct entry_id id);

/* Returns whether this reply must be sent while no other large one is out. */
bool limits_sends_alone(const struct worker *worker, const struct request *request);

/* Returns whether this reply cannot be sent. If so, its request has its code, and the caller finishes it. */
bool limits_reply_refused(const struct worker *worker, struct request *request);

/* EVENT_CONNECTED: learns from the loss about a reply that waits to be sent. */
void limits_reply_unanswered(struct worker *worker, struct request *request, enum loss loss);

/* --- quarantine.c --- */

/* Queues a suspect for a group, or to run alone. */
void quarantine_add(struct worker *worker, struct request *request);

/* Drops waiting suspects, because without a lease we may not run them. They stay pending. */
void quarantine_forget(struct worker *worker);

/* Records the next group, asks for the process, or takes the suspect that runs alone a step further. True while a
 * worker has the process alone: nothing else may be prepared or cut then. */
bool quarantine_advance(struct worker *worker);

/* Queues all rows of the suspect that runs alone, which was prepared. */
void quarantine_prepared(struct worker *worker);

/* Notes that a request has left the worker, perhaps before its run was recorded: if it was a suspect, the next one may
 * follow. */
void quarantine_ended(struct worker *worker, struct request *request);

/* --- settle.c --- */

/* A number in 0 .. below-1 from a generator: the same state repeats a run. */
uint32_t policy_random(uint64_t *random, uint32_t below);

/* The pause before the run after `attempt`: backoff_ms, doubled for each attempt, ±20 %, at most the cap. Units: ms. */
uint32_t policy_backoff_ms(const struct worker_options *options, uint32_t attempt, uint64_t *random);

/* Turns a request's code into its outcome: done; a retry while the code is transient, attempts are left and the next
 * one would begin before it expires; a dead letter after that, or if it is poison; else an error. An error reply lives
 * at least error_ttl_s. Units: now_ms is Redis' unix ms, 0 if unknown. */
void policy_judge(const struct worker_options *options, struct request *request, uint64_t now_ms, uint64_t *random);

/* The reply code for a forward pass that failed with a single row. */
enum reply_code policy_code(enum status status);

/* Just connected: sends calls that were on their way to Redis again, or refuses their requests. */
void settle_connected(struct worker *worker, enum loss loss);

/* Judges a request by its code and makes it ready to settle. */
void settle_finish(struct worker *worker, struct request *request);

/* Makes a request ready to settle with an outcome decided elsewhere. */
void settle_as(struct worker *worker, struct request *request, enum outcome outcome);

/* Makes a request whose message is no longer in the stream ready to settle as OUTCOME_GONE. */
void settle_gone(struct worker *worker, struct request *request);

/* Queues a request to be given back unfinished. */
void settle_release(struct worker *worker, struct request *request);

/* Sends settles and releases, and finishes a drain or rejoins when nothing is held. */
void settle_advance(struct worker *worker);

/* Begins to leave: gives back requests that have not started and exits when the others are done, at the latest after
 * timeout_ms. A further call can only shorten that time. A status other than STATUS_OK becomes that of the exit. */
void settle_drain(struct worker *worker, uint64_t timeout_ms, enum status status);

/* Takes a request out of the table and frees it. */
void settle_forget(struct worker *worker, struct request *request);

/* --- chores.c --- */

/* Just connected: schedules every chore. */
void chores_connected(struct worker *worker);

/* EVENT_ENTRIES of READ_RECLAIM or READ_SWEEP: continues the round, with the next class or after its pause. */
void chores_claimed(struct worker *worker, const struct event *event);

/* Schedules mending, because an entry came whose id is ahead of the clock. */
void chores_mend_soon(struct worker *worker);

/* Does the chores that are due: renew, pulse, reclaim, sweep, mend, promote. */
void chores_advance(struct worker *worker);

/* The time of the next pulse: each second, sooner while requests wait for Redis' memory. Units: monotonic ns. */
uint64_t pulse_due(const struct worker *worker);

/* EVENT_ENTRIES of READ_SHED or READ_FAIR: notes where to continue. */
void share_answered(struct worker *worker, const struct event *event);

/* Refuses requests above a cap, and looks for tenants that wait because of another; one call at a time. */
void share_advance(struct worker *worker);

/* The time of the next search for tenants; NEVER: no tenant blocks others. Units: monotonic ns. */
uint64_t share_deadline(const struct worker *worker);

/* Returns whether a batch hangs; the worker then exits without giving anything back. */
bool watch_ends(struct worker *worker);

/* Notes that this process, with its compute threads, was stopped for a while: that time counts against no batch. */
void watch_slept(struct worker *worker, uint64_t late_ns);

/* Answers the requests whose rows the window has put aside as expired. */
void watch_expired(struct worker *worker);

/* Looks for expired rows while no batch is cut. */
void watch_advance(struct worker *worker);

/* The time when the next batch hangs, row expires or fixed window ends. Units: monotonic ns; NEVER: none. */
uint64_t watch_deadline(const struct worker *worker);

#endif
