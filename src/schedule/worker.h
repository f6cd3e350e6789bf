/* The worker: one pure step function, (state, event, now) -> actions.
 *
 * The daemon, the simulation and the tests run this same code. It knows no socket, thread, device or clock: everything
 * that happened comes in as an event, everything that must be done goes out as an action, and `now` is an argument.
 * redis/ and daemon/ only execute actions and report the results.
 *
 *   EVENT_ENTRIES ─ parse ─ ACTION_PREPARE → EVENT_PREPARED ─ window ─ ACTION_SUBMIT → EVENT_BATCH
 *     ─ ACTION_FORMAT → EVENT_FORMATTED ─ ACTION_SETTLE → EVENT_SETTLED
 *
 * Every request that came with EVENT_ENTRIES is held (in the table of held entries) until a script has confirmed its
 * outcome. After a lost connection the script is repeated; its gate makes that harmless.
 *
 * The promises of the executor:
 * - Each action that has an answer is answered by exactly one event. When a connection breaks, every Redis action that
 *   is out (reads too) is first answered with `failed`, its requests handed back; then comes one EVENT_DISCONNECTED. No
 *   answer of an old connection arrives after it. If either connection is lost, both count as lost: reconnect both.
 * - EVENT_CONNECTED comes only after the scripts are loaded, the group exists, and the alive key of our name is set NX
 *   (or still ours). When another process holds the key, the executor takes a new name first.
 * - PREPARE, SUBMIT and FORMAT do not depend on connections and are always answered. */
#ifndef SCHEDULE_WORKER_H
#define SCHEDULE_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/histogram.h"
#include "engine/cost.h"
#include "schedule/batch.h"
#include "schedule/exclusive.h"
#include "schedule/request.h"

struct worker;

/* The configuration of a worker; worker_open refuses options that it cannot work with. */
struct worker_options {
    struct request_rules rules;
    enum batch_layout layout;
    uint32_t max_batch_tokens, max_batch_rows;
    struct cost cost;       /* of a batch on this engine, as calibrated; all zero: learnt while the worker runs */
    uint32_t max_batch_ms;  /* predicted; 0: no limit */
    uint32_t target_p99_ms; /* from XADD to the reply: limits the length of batches; 0: off */
    uint32_t window_ms;
    bool window_fixed;              /* a plain timer: an idle engine does not cut early */
    uint32_t devices, devices_lost; /* computing ones (all CPUs are one); how many of them were lost before the start */
    uint32_t engine_slots;          /* batches computed side by side, by threads or by devices */
    uint32_t background_slots;      /* in addition: batches of class low in the background; 0: none */
    uint32_t batches_out;   /* batches that may be out, queued ones included, background ones not; >= engine_slots */
    uint32_t credit_tokens; /* held per device (estimated until tokenised); 0, the daemon's: a second's work */
    uint64_t credit_bytes;  /* held per device; 0, the daemon's: 64 MiB, or 256 where batches_out is above twice
                               engine_slots */
    uint32_t lease_ms;      /* renewed at a third of it */
    uint32_t read_block_ms; /* longest XREADGROUP block, <= 2000 */
    uint32_t backoff_ms, backoff_cap_ms; /* first retry delay (doubles, ±20 %), and its cap */
    uint32_t shutdown_timeout_ms;
    uint32_t compute_timeout_ms; /* a batch that takes longer has hung: exit and give nothing back; 0: never */
    uint32_t sweep_ms;           /* between sweeps for delivered entries without an owner; 0: four leases */
    uint32_t queues;             /* served by this process; 0: only this one */
    uint64_t seed;               /* of the jitter */
};

/* The part of our own entries that a READ_OWN brings. */
enum own_part {
    OWN_ENTRIES, /* whole entries after `after` */
    OWN_IDS,     /* ids only, whatever the entries weigh (XPENDING) */
    OWN_ADDRESS, /* the fields of the entry `after` that say where its answer goes (lua/address); none if it is gone */
};

/* Which action an EVENT_ENTRIES answers. */
enum read_source { READ_NEW, READ_OWN, READ_RECLAIM, READ_SHED, READ_FAIR, READ_SWEEP };

/* How the connection before this one was lost. Only if the server is still the same process and has closed one of our
 * two connections, not both, does that say something about the traffic on that one: see redis_limits.c. */
enum loss {
    LOSS_OTHER,   /* nothing can be concluded; also for the first connection */
    LOSS_RESTART, /* another server process answers now */
    LOSS_READER,  /* the same process closed the reader, the connection of READ and READ_OWN */
    LOSS_WRITER,  /* the same process closed the writer, the connection of all other actions */
};

/* Redis' memory. LOW: little is held. CRITICAL: one small batch begins at a time. */
enum memory_level { MEMORY_ROOM, MEMORY_LOW, MEMORY_CRITICAL };

/* Percents of maxmemory from which on memory is low or critical. CEILING: expected replies are planned to end here. */
enum { MEMORY_LOW_PERCENT = 85, MEMORY_CRITICAL_PERCENT = 97, MEMORY_CEILING_PERCENT = 103 };

/* The kinds of events for a worker. */
enum event_kind {
    EVENT_CONNECTED,    /* both connections are up; also the answer to ACTION_REJOIN */
    EVENT_DISCONNECTED, /* either connection is lost: open actions have failed, and their outcome in Redis is unknown */
    EVENT_ENTRIES,      /* a read or claim was answered (enum read_source), perhaps without entries */
    EVENT_PREPARED,     /* requests came back from ACTION_PREPARE */
    EVENT_BATCH,        /* a batch came back from ACTION_SUBMIT */
    EVENT_FORMATTED,    /* requests came back from ACTION_FORMAT */
    EVENT_SETTLED,      /* ACTION_SETTLE answered, a verdict for each request; or failed as a whole */
    EVENT_RUN_RECORDED, /* ACTION_RECORD_RUN answered: the new quarantine_runs, or a verdict that says why not
                         */
    EVENT_TURN,         /* another turn begins in this process */
    EVENT_DEVICE_LOST,  /* one device is gone; its work moves elsewhere or comes back as EVENT_BATCH */
    EVENT_LEASE,        /* ACTION_RENEW answered */
    EVENT_PROMOTED,     /* ACTION_PROMOTE answered: when the next one is due */
    EVENT_MENDED,       /* ACTION_MEND answered: whether there is more to do */
    EVENT_RELEASED,     /* ACTION_RELEASE answered, its requests handed back */
    EVENT_PULSE,        /* ACTION_PULSE answered */
    EVENT_OWN_LISTED,   /* ACTION_LIST_OWN answered */
    EVENT_QUIET,        /* SIGTSTP: claim nothing more, stay up */
    EVENT_RESUME,       /* SIGCONT: the opposite of QUIET */
    EVENT_DRAIN,        /* SIGTERM: finish the work in flight, then exit */
    EVENT_STOP,         /* second SIGTERM: exit at once, entries stay reclaimable */
    EVENT_TICK,         /* the deadline returned by the last step has come */
};

/* The state of the queue in Redis. It comes each second, more often while we wait for Redis' memory. */
struct pulse {
    uint64_t redis_ms;               /* Redis unix ms, now */
    bool paused;                     /* the queue is paused: no worker reads */
    uint64_t used_bytes, most_bytes; /* memory used by Redis, and its maxmemory; most_bytes 0: no limit */
    bool evicts;                     /* its maxmemory-policy is not noeviction */
    uint32_t workers;                /* upper bound of the queue's workers */
    enum event_kind command;         /* for this worker, once: QUIET, RESUME, DRAIN or STOP; any other kind: none */
    bool waiting;                /* entries wait to be taken over: the housekeeper lacks room, or a neighbour is gone */
    bool housekeeper;            /* this worker is the housekeeper until the next pulse. Others get zeros below: */
    uint64_t depth[CLASS_COUNT]; /* unread entries */
    uint64_t cap[CLASS_COUNT];   /* depth above which entries are shed; 0: no cap */
};

enum { OWN_LIST_MAX = 16 };

/* Entries of each class that are pending with us: the first ones after a given id, in the order of their ids. */
struct own_list {
    struct entry_id ids[CLASS_COUNT][OWN_LIST_MAX];
    uint32_t counts[CLASS_COUNT];
};

/* Something that happened, for worker_step. Data that it points to may be gone when the step returns, unless the worker
 * owns it. */
struct event {
    enum event_kind kind;
    union {
        struct {
            enum read_source source;
            enum request_class class;    /* of the action; entries of READ_NEW may be of several */
            const struct entry *entries; /* [count]; of one class, in the order of their ids */
            size_t count;
            bool more; /* READ_OWN: more may follow (the read was full); others: there is more to take */
            struct entry_id
                last; /* READ_OWN, SHED, FAIR, SWEEP: continue after this one (perhaps deleted, or skipped) */
            struct entry_id first; /* SHED: continue before this one */
        } entries;
        struct request_list requests; /* PREPARED, FORMATTED, SETTLED, RUN_RECORDED, RELEASED: the worker's again */
        struct pulse pulse;           /* PULSE */
        const struct own_list *own;   /* OWN_LISTED */
        enum turn turn;               /* TURN */
        struct batch *batch;          /* BATCH */
        struct {
            uint32_t engine_slots, batches_out; /* DEVICE_LOST: with the devices left */
        } left;
        bool lease_held; /* LEASE: false if the alive key is no longer ours */
        struct {
            uint64_t next_due_in_ms; /* PROMOTED: UINT64_MAX when nothing waits */
        } promoted;
        struct {
            uint64_t moved; /* MENDED: entries */
            bool changed;   /* some were moved or a stream was set back */
            bool more;
            bool taken; /* some became ours: read them with READ_OWN */
        } mended;
        struct {
            uint64_t redis_ms; /* CONNECTED: Redis unix ms, now */
            enum loss loss;
        } connected;
    };
    bool failed; /* ENTRIES and every script: no answer or an error; the call may or may not have been executed */
};

/* The ranks of workers as the housekeeper, which judges leases, promotes, sweeps, sheds and looks for tenants that wait
 * because of another. The highest rank is elected. */
enum housekeeper_rank {
    RANK_NONE,      /* it leaves */
    RANK_PUBLISHES, /* it is quiet: it only publishes depth and wait */
    RANK_WORKS,
    RANK_JUDGES, /* it judges leases, too: it has been connected for as long as a lease lasts */
};

/* The counts of a worker since its start, and its current state. */
struct worker_stats {
#define COUNTER(name, help) uint64_t name;
#include "schedule/counters.inc"
    uint64_t busy_ns;      /* of all compute threads, with batches that succeeded */
    uint64_t predicted_ns; /* the predicted time of the same batches */
    uint32_t held, waiting, computing;
    uint32_t devices, devices_lost;
    uint32_t credit_tokens;             /* tokens that may be held per class */
    uint32_t held_tokens, batch_tokens; /* batch_tokens: the budget now, smaller after out_of_memory */
    uint64_t held_bytes;
    double cost_error;        /* of predicted batch times: a moving mean, as a share */
    uint32_t p99_ms;          /* from XADD to the reply, of about the last second; 0: unknown */
    uint64_t oldest_batch_ns; /* when the watch of the oldest batch that is out began, monotonic; 0: none is out */
    enum memory_level memory_level;
    uint64_t redis_used_bytes, redis_most_bytes; /* Redis' memory by the last pulse; redis_most_bytes 0: no limit */
    uint32_t redis_evicts;                       /* 1: its maxmemory-policy lets it drop requests */
    bool draining, quiet, paused, housekeeper;   /* quiet: by an order; paused: the queue is paused */
};

/* Histograms of the requests answered with vectors, and of batches. Units: ns; of batches, rows and tokens. */
struct worker_histograms {
    struct histogram total[CLASS_COUNT];   /* from XADD (after a delay: from its end) to the reply */
    struct histogram queue[CLASS_COUNT];   /* of the last run: from XADD until it was read */
    struct histogram prepare[CLASS_COUNT]; /* until it was tokenised */
    struct histogram window[CLASS_COUNT];  /* until its first batch began */
    struct histogram compute[CLASS_COUNT]; /* until its last one ended */
    struct histogram batch_rows, batch_tokens;
};

/* The report of a worker, sent each second. */
struct heartbeat {
    const char *state;       /* "running", "quiet", "draining", "tight" */
    uint32_t memory_percent; /* of maxmemory, if "tight" */
    struct worker_stats stats;
    double rows_per_s;                   /* with all compute threads busy, to estimate the wait; 0: unknown */
    uint32_t max_inputs, max_text_bytes; /* of a request */
    enum housekeeper_rank rank;
    uint32_t elected_ms; /* how long an election lasts */
};

/* The kinds of actions that a worker may ask for. */
enum action_kind {
    ACTION_READ, /* XREADGROUP '>' on the reader from each class with a count; block_ms. Never out beside READ_OWN */
    ACTION_READ_OWN, /* XREADGROUP of one class after `after`, at most `count`: entries we own and may not know */
    ACTION_LIST_OWN, /* XPENDING of each class after `after`: the ids of entries pending with us. On the connection of
                        the scripts: its answer comes after those of all scripts that Redis ran before it */
    ACTION_UNBLOCK,  /* no answer: end a blocked ACTION_READ early (CLIENT UNBLOCK); ignoring it costs block_ms */
    ACTION_RECLAIM,  /* lua/reclaim, one class: take at most `count` entries that were released, set aside, or held by
                        workers found dead; 0: only look. With `judge`, which only the housekeeper sets (it alone sheds,
                        serves fairly and sweeps, too), find the dead */
    ACTION_SHED,     /* lua/shed, one class: take at most `count` of the newest requests above `cap` that come before
                        `before`, to refuse them, and cancels after `after` */
    ACTION_FAIR,     /* lua/fair, one class: take at most `count` unread entries after `after` whose tenants are not in
                        `enough`; 0: only set some aside for other workers */
    ACTION_SWEEP,    /* lua/sweep, one class: take delivered entries after `after` that have no owner */
    ACTION_PULSE,    /* lua/pulse: send our heartbeat; get the queue's state and the housekeeper */
    ACTION_PREPARE,  /* tokenise these requests on a prep thread */
    ACTION_SUBMIT,   /* run this batch on a compute thread */
    ACTION_FORMAT,   /* write reply bytes of these requests on a prep thread */
    ACTION_SETTLE,   /* lua/settle and lua/defer for these requests, by their outcome; several may be out */
    ACTION_RECORD_RUN, /* lua/charge: record in `trouble` the runs of those requests that are pending with us: one that
                          runs alone (`quarantined`), or a group. Once per worker name, so a repeated call counts once;
                          any settle or defer clears the record */
    ACTION_EXCLUSIVE,  /* ask for the whole process (struct exclusive); EVENT_TURN grants it */
    ACTION_TOGETHER,   /* withdraw that, or give the process back */
    ACTION_RENEW,      /* extend the alive key */
    ACTION_PROMOTE,    /* lua/promote: by the housekeeper, and by a worker that parked a request when that is due */
    ACTION_MEND,       /* lua/mend, by the housekeeper: ids ahead of the clock leave the streams */
    ACTION_RELEASE,    /* lua/release: give unstarted entries to `released`; with `last`, also everything else that is
                          pending with us, and delete the consumer and the alive key. Nothing is read between `last` and
                          EXIT */
    ACTION_REJOIN,     /* our lease was lost and nothing is held: take a new name and report EVENT_CONNECTED */
    ACTION_EXIT,       /* leave the loop; the last action ever */
};

/* Something for the caller of worker_step to do. */
struct action {
    enum action_kind kind;
    bool last; /* RELEASE */
    union {
        struct {
            uint32_t counts[CLASS_COUNT]; /* READ: of each class; 0 leaves it out */
            uint32_t block_ms;            /* READ: 0 = do not block */
            enum request_class class;     /* all others but READ */
            uint32_t count;               /* READ: the value of each of `counts` that is not 0; others: a maximum */
            struct entry_id after;        /* READ_OWN, SHED, FAIR, SWEEP */
            enum own_part own;            /* READ_OWN */
            struct entry_id before;       /* SHED: only requests before this one; 0-0: any */
            bool judge;                   /* RECLAIM: leases may be judged; false until one lease after each connect */
            uint64_t cap;                 /* SHED */
            const char (*enough)[TENANT_MAX + 1]; /* FAIR: [enough_count], the worker's, until the step returns */
            uint32_t enough_count;
        } read;
        struct entry_id after[CLASS_COUNT]; /* LIST_OWN */
        struct heartbeat heartbeat;         /* PULSE */
        uint64_t redis_ms;                  /* MEND: about the time of Redis' clock */
        struct request_list requests; /* PREPARE, FORMAT, SETTLE, RECORD_RUN, RELEASE: the executor's until answered */
        struct batch *batch;          /* SUBMIT: the executor's until answered */
        struct {
            bool clean;         /* everything was finished or released */
            enum status status; /* STATUS_OK, or why the worker cannot continue (STATUS_DEVICE_LOST) */
        } exit;
    };
};

/* The actions of one step, in the order in which they must be executed. */
struct actions {
    struct action *items;
    size_t count, capacity;
};

/* Makes a worker that has no connection yet: its first event is EVENT_CONNECTED. Owns: the caller ends it with
 * worker_close; the strings of the options must outlive it. Errors: STATUS_BAD_INPUT (an option), STATUS_NO_MEMORY. */
MUST_CHECK enum status worker_open(const struct worker_options *options, struct worker **out, struct err *err);

/* Frees the worker with every request and batch it holds, even those that the executor has: no thread may use one any
 * more. Their entries stay pending. NULL is allowed. */
void worker_close(struct worker *worker);

/* Handles one event. Appends to `actions` (the caller empties it between steps and frees it with actions_free).
 * Units: now_ns is monotonic. Returns the monotonic time at which EVENT_TICK must come, UINT64_MAX for never.
 * Owns: requests and batches in the event become the worker's, those in actions the executor's until the matching
 * event. Thread: one. */
uint64_t worker_step(struct worker *worker, const struct event *event, uint64_t now_ns, struct actions *actions);

/* Frees the array and leaves an empty one; it does not free what the actions point to. */
void actions_free(struct actions *actions);

/* Returns whether the worker is at rest: no read, no batch, nothing at the prep threads. TURN_REST leads to this. */
bool worker_rests(const struct worker *worker);

/* The counts and the current state. Thread: that of worker_step. */
struct worker_stats worker_stats(const struct worker *worker);

/* The histograms since the start. Thread: that of worker_step. */
const struct worker_histograms *worker_histograms(const struct worker *worker);

/* Takes over the options that may change while it runs: batches, window, credit, retries, times, and the rules for
 * later requests; not layout, lease and devices. The model must be the same. Errors: STATUS_BAD_INPUT: nothing was
 * taken over. */
MUST_CHECK enum status worker_tune(struct worker *worker, const struct worker_options *options, struct err *err);

/* Visits at most `most` held requests, in no order. `visit` may read what only the worker writes: names, id, class,
 * entry, state, attempt, quarantined, quarantine_runs, received_ns, bytes, tokens. Returns how many are held. */
uint32_t worker_each_held(const struct worker *worker, uint32_t most, void *context,
                          void (*visit)(void *context, const struct request *request));

#endif
