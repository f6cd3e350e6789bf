/* What a worker knows: the state that its files share. What they do is in worker_stages.h. Private to work/worker*.c.
 */
#ifndef WORK_WORKER_STATE_H
#define WORK_WORKER_STATE_H

#include "work/batching.h"
#include "work/held.h"
#include "work/worker.h"

#define NEVER UINT64_MAX

/* How much goes in one call, and how long a pause is. */
enum {
    LIST_MOST = 32,      /* requests in one PREPARE or FORMAT: one crossing for many, several threads for a burst */
    AWAY_MOST = 256,     /* requests at the prep threads, from where on only those of the highest class follow */
    AWAY_BRIEF = 64,     /* likewise while requests in a hurry are about */
    AWAY_LOW = 2,        /* requests of class low there, from where on others of it wait, beside online ones */
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

enum { POISON_LONELY_RUNS = 3 }; /* crashes in lonely runs that make a request poison */

/* What failures cost, from the worker's options. */
struct policy {
    uint32_t backoff_ms, backoff_cap_ms;
    uint32_t error_ttl_s;
    uint64_t random; /* state of the jitter */
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
    struct request_list suspects[CLASS_COUNT]; /* for groups … */
    uint32_t grouped, grouped_low;             /* members of the one that runs; of them, of class low */
    bool charging;                             /* some of them are being charged */
    uint32_t urgent;            /* suspects of both kinds: no others are taken over before they are charged */
    struct request_list loners; /* … or each alone */
    bool asked;                 /* for the process */
    enum turn turn;
    uint64_t turn_ends; /* TURN_ALONE: no other suspect begins then */
    struct request *lonely;
    enum lonely_stage lonely_stage;
    struct row *lonely_rows; /* its rows that wait, by `next` */

    /* The end. */
    bool draining, leaving, exited;
    uint64_t drain_ends;
    enum status exit_status;
};

#endif
