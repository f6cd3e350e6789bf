/* A small world for the worker: a Redis with three streams, workers with an executor each that answers in any order and
 * late, producers, an operator, and faults. One generator, one virtual clock: a seed is a whole history.
 *
 *   world.c         chance, time, names
 *   world_redis.c   the scripts
 *   world_engine.c  prep and compute threads
 *   world_run.c     processes, answers, actions checked against the contract, time
 *
 * The world checks every action against the contract of schedule/worker.h, and knows for each entry how it may end. */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "harness.h"
#include "schedule/worker.h"

enum {
    ITEMS = 56,
    ROWS_MAX = 6,
    WORKERS = 3,
    CALLS = 64,
    DIM = 2,
    LEASE_MS = 400,
    TIMEOUT_MS = 600,
    READ_CAP = 600,
    NAMES = 4096,
    ENTRIES = 1 << 14,
    GROUPS = 3, /* ids that several requests share */
    TENANTS = 4,
    NOBODY = -1,
    RELEASED = -2,
    TAKEN_BESIDE = 3, /* as lua/reclaim has them */
    TAKEN_MAX = 10,
    AHEAD = -3,
    LEFT_MAX = 8,
};

/* The kind of an entry, which determines its end. */
enum kind {
    HEALTHY,
    MALFORMED,
    GUILTY,
    FLAKY,
    INFINITE,
    POISON,
    HANGING,
    UNREADABLE,
    CANCEL,
    BULKY,         /* healthy, with a large reply */
    UNSENDABLE,    /* Redis closes each connection on which its reply is sent */
    UNDELIVERABLE, /* Redis closes each connection on which it is read */
    KINDS
};

enum place { IN_STREAM, LATER, GONE };

/* A producer's request, or cancel, from its XADD to its end. */
struct item {
    enum kind kind;
    enum request_class class;
    enum place place;
    uint64_t name_ms, name_seq; /* of its first entry */
    uint64_t entry_ms, entry_seq;
    uint32_t rows, tokens, bad_row;
    int text;  /* the item whose text it has: its own, or that of a healthy one before it */
    int group; /* its id, or NOBODY */
    int target;
    uint32_t tenant; /* 0: none */
    bool promoted, forged, stubborn;
    uint64_t due_ms, expires_ms; /* 0: none; unix ms */
    uint64_t delay_ms; /* counts from the name, or, if that is ahead of the clock, from when the entry is seen */
    uint64_t first_ms; /* the first time that `later` keeps for it; 0: none yet */
    uint64_t seen_ms;  /* the time of its reply, if its name's time does not count; else 0 */
    uint32_t attempt;

    bool read, deleted; /* XREADGROUP has passed it; its message was deleted by hand */
    int owner;          /* a worker's name, RELEASED, or NOBODY: not pending */
    uint64_t promotes_ms;
    int moved_runs; /* lonely runs that were under way when its entry was moved: they stay on record */
    int open[8];    /* names of workers whose lonely runs of it are open */
    int open_count;
    int groups[8]; /* names of workers whose runs of it in groups are open */
    int group_count;
    uint32_t taken;          /* takeovers from dead workers since the last charge */
    int unread_by;           /* the worker that must answer it unread */
    int claimed_by, crashed; /* the last worker that got the count of open runs; the crashed ones then */

    int ends;
    enum outcome outcome;
    enum reply_code code;
};

/* An action that is out. */
struct call {
    enum action_kind kind;
    struct action action;
    uint32_t enough; /* a bit for each tenant that has enough */
    uint64_t runs_at, answers_at;
    bool ran, failed;
    int got[ITEMS]; /* items, when it ran */
    enum entry_origin origins[ITEMS];
    uint32_t quarantine_runs[ITEMS];
    bool group_run[ITEMS], urgent[ITEMS], unread[ITEMS];
    int got_count;
    bool more, held, changed;
    struct entry_id last, first;
    uint64_t next_due_ms;
    struct pulse pulse;
    struct own_list own;
};

/* Consumers that are not alive and hold entries of a class. */
struct left {
    int names[LEFT_MAX], count;
};

struct peer {
    struct worker *worker;
    int name; /* consumer name; a new one for each incarnation */
    bool connected, draining, exited, unclean, lease_lost, quiet;
    enum turn turn;                       /* the last one that it was given */
    bool closed;                          /* by its last pulse: the queue is paused */
    bool critical;                        /* … Redis has hardly any memory left */
    bool housekeeper;                     /* … it is the housekeeper */
    struct left left[CLASS_COUNT];        /* found as the housekeeper … */
    struct left found[CLASS_COUNT];       /* … or by another one */
    bool parked;                          /* it has had a request parked, and may fetch it */
    bool pulsed;                          /* it has had a pulse since it connected */
    uint32_t devices, slots, batches_out; /* those that it has left */
    enum loss loss;                       /* of the connection before this one */
    uint64_t connects_at, judges_at, wakes_at, paused_until;
    struct call *calls[CALLS];
    int call_count;
    struct request *lonely; /* to be charged, or charged and not yet settled: nothing else may start */
    bool charged;           /* it is on record */
};

/* Chances per mille, at each step of time. */
struct faults {
    bool on, gentle; /* gentle: no text ends a process by itself */
    uint32_t kill, drop, restart, regroup, stall, drain, script_error, again, device_lost, one_device_lost;
    uint32_t hang_up; /* Redis closes one of the two connections, for no reason */
    uint32_t bulky;   /* requests whose replies are large */
    uint32_t limits;  /* requests with large replies, or that exceed Redis' limits */
    uint32_t pause, full, quiet, delete_message, delete_consumer, clock_jump, cap;
    uint32_t misplace;         /* an entry is put under a worker's name without its knowledge */
    uint32_t forged_id;        /* a producer makes up an entry id in the future */
    uint32_t two_housekeepers; /* a pulse makes its worker the housekeeper, whoever has the token */
};

/* Counts of all histories so far: a fault that never fired has tested nothing. */
struct counts {
    uint64_t kills, drops, rejoins, reclaimed, regroups, poisoned, clean_exits, hangs, pauses, vanished, swept,
        devices_lost, full;
    uint64_t groups, group_crashes, unread, alone_beside;
    uint64_t in_vain, later_full, cancels_shed, forged_shed, cancelled, expired, parked, ahead, refused, disowned,
        jumps, newer_kept;
    uint64_t forged_ids, moved, set_back;
    uint64_t misplaced;
    uint64_t elections, lapsed, overtaken, given_up, two_at_once; /* of housekeepers: how the one before had lost it */
    uint64_t closed, unsendable, undeliverable, proofs;     /* connections closed by a limit; requests that it ended */
    uint64_t set_aside, taken_from_aside, found_by_another; /* entries */
    struct worker_stats workers;                            /* sums of some */
};

struct reply {
    bool there;
    int item;
};

/* Bytes that Redis keeps for a while. */
struct kept {
    uint64_t bytes, until;
};

/* Sizes in Redis' memory: replies take more than requests. TTL_S is the TTL of every reply. */
enum { BULK_BYTES = 100 << 10 };

enum { ENTRY_TAKES = 300, REPLY_TAKES = 1300, ERROR_TAKES = 700, TTL_S = 60 };

struct world {
    uint64_t now, random;
    uint64_t epoch_ms; /* Redis' clock less ours */
    struct item items[ITEMS];
    int added;
    int gone; /* all before this one are gone */
    uint64_t next_seq, last_ms;
    int by_seq[ENTRIES]; /* the item of this entry, now or before */
    struct reply replies[ITEMS + GROUPS];
    struct peer peers[WORKERS];
    bool lanes;                          /* the first two are of one process */
    struct exclusive exclusive[WORKERS]; /* of each process, by its first worker */
    struct exclusive_worker exclusive_workers[WORKERS];
    int names;
    uint64_t alive_until[NAMES]; /* by name */
    bool dead[NAMES];            /* its process ended under this name */
    int housekeeper;             /* the last one elected, until … */
    uint64_t housekeeper_until;
    enum housekeeper_rank housekeeper_rank;
    struct left left[CLASS_COUNT]; /* by its own report */
    bool paused;
    uint64_t most_bytes, others_bytes; /* maxmemory, 0 for none; the size of others' data in Redis */
    struct kept kept[2 * ITEMS];
    int kept_count; /* no other one was ever used */
    bool no_more;   /* nothing is added any more */
    uint64_t cap[CLASS_COUNT], cap_later;
    struct faults faults;
    bool calm;       /* no fault but the texts' own */
    uint32_t memory; /* a batch of several rows and more tokens than this runs out of memory */
    struct worker_options options;
    struct actions actions;
    struct counts counts;
};

/* The world of the history that runs. */
extern struct world world;

/* --- world.c --- */

uint32_t chance(uint32_t below);

bool happens(uint32_t per_mille);

/* Delays are uneven, so that answers overtake each other. */
uint64_t some_time(void);

uint64_t used_bytes(void);

void keep(uint64_t bytes);

uint64_t redis_ms(void);

/* Returns whether ids have run ahead of the clock: then new ones continue from the last one. */
bool is_ahead(uint64_t ms);

bool alive(int name);

int index_of(const struct request *request);

struct item *item_of(const struct request *request);

/* Gives an item its next entry id, which is never below the last one, whatever the clock does. */
void give_entry(struct item *item);

/* The first worker of a worker's process. */
int process_of(const struct peer *peer);

/* --- world_redis.c --- */

bool newer(const struct item *item, const struct item *than);

/* Runs the script, or the read, of an action, as far as a worker can see its effects. */
void run_script(struct peer *peer, struct call *call);

/* --- world_engine.c --- */

int text_token(const struct item *item, uint32_t row);

uint32_t index_of_row(const struct row *row);

/* Prepares, computes or formats what an action holds. */
void run_work(struct call *call);

/* Returns a request of this kind with a row in this batch, whether first of its duplicates or not; NULL: none. */
struct request *request_of_kind(const struct batch *batch, enum kind kind);

/* --- world_run.c --- */

void drop_call(struct peer *peer, int at);

void start(struct peer *peer);

/* A worker ends: its calls may still take effect, its requests are freed with it. */
void end_peer(struct peer *peer);

/* The process dies, with all of its workers. */
void kill_peer(struct peer *peer);

/* Fails all calls that are out, although those sent first may have taken effect; then sends the event itself. */
void disconnect(struct peer *peer, enum loss loss);

void step(struct peer *peer, const struct event *event);

void tell_turns(int process);

void advance_peer(struct peer *peer);

uint64_t peer_time(const struct peer *peer);

#endif
