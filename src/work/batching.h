/* Batches: when one is cut, how long it may be, whose rows go, and how it lies in memory. Pure; private to work/ but
 * for struct batch. */
#ifndef WORK_BATCHING_H
#define WORK_BATCHING_H

#include <stdint.h>

#include "engine/cost.h"
#include "engine/engine.h"
#include "work/dedup_index.h"
#include "work/request.h"
#include "work/tenant_queue.h"

/* --- Batches */

/* A batch: rows of one or more requests in one forward pass. Sorted by length and packed; one arena, one free. */

/* How the rows of a batch are chosen and lie: one behind the other; or each as long as the longest, chosen by nearness
 * in length, or as they come. Those that pad are for comparison. */
enum batch_layout { LAYOUT_PACKED, LAYOUT_PADDED, LAYOUT_PADDED_FIFO };

/* One forward pass: what goes in, what comes out, and whose it is. */
struct batch {
    struct batch *next;  /* in a list of whoever holds it */
    struct batch *other; /* the other half of a failed batch, waiting for what becomes of this one; owned */
    struct row **rows;   /* [engine.rows] */
    struct engine_batch engine;
    uint32_t tokens;    /* real ones */
    enum status status; /* of the forward pass, set by the compute thread */
    struct err err;
    uint64_t started_ns, finished_ns; /* set by the compute thread */
    bool helped;                      /* idle threads could have a part in it; the same */
    uint64_t submitted_ns;            /* by the worker */
    uint64_t watched_ns; /* since when it is being run, as far as can be known: by the worker, or by its executor */
    bool low;            /* some of its rows are of class low */
    bool background;     /* all of them are, and it runs in spare time: it may take long */
    bool first;          /* it goes before those that wait for a thread */
    bool waits;          /* by an executor that shares its threads: it is not this batch's turn yet */
};

/* Lays out the given rows as one batch: sorts them by length (longest first), fills ids, start and length, and makes
 * room for [rows, dim] floats of output. Owns: the caller ends it with batch_free; the rows stay their requests'.
 * Errors: NULL when memory ran out. */
struct batch *batch_build(struct row **rows, uint32_t count, enum batch_layout layout, uint32_t dim);

/* Frees a batch, and its other half where it has one. NULL is allowed. */
void batch_free(struct batch *batch);

/* Batches in the order in which they are to run. */
struct batch_list {
    struct batch *first, *last;
    uint32_t count;
};

/* Adds a batch as the last, or the first, to run. */
void batch_list_push(struct batch_list *list, struct batch *batch);
void batch_list_push_first(struct batch_list *list, struct batch *batch);

/* Takes the first; NULL when there is none. */
struct batch *batch_list_pop(struct batch_list *list);

/* Takes out a batch, wherever it is; looks at each, for there are only a few. */
void batch_list_remove(struct batch_list *list, struct batch *batch);

/* --- The window
 *
 * Rows that wait for a batch, and the choice of who goes next. Pure; private to work/.
 *
 * Greedy (the default): a free compute thread never waits; while all are busy, rows collect, which makes the next batch
 * large without a timer. `fixed`: a plain timer of window_ms, whatever the engine does. Either way a full batch is cut
 * as soon as it is full.
 *
 * Whose row is next:
 * - Classes share the batches 6:3:1, counted in tokens: next is the class that has had least for its weight. A class
 *   that did not wait has saved nothing up, so what it leaves goes to the others.
 * - Inside a class, next is likewise the tenant that has had least; requests without a tenant are one of them.
 * - Inside a tenant, the oldest row is next; but one that would expire while the batch runs goes before it.
 *   What does not fit is passed over for younger rows, of any class, but only
 *   WINDOW_PASSED_OVER times: then it is overdue and goes before everybody.
 * - Every tenth batch begins with the oldest row of all.
 * - Brief batches pass nobody over: the first that does not fit ends them. Nobody becomes overdue by them, so class
 * high may go before those that are, and before the oldest, when it is its turn.
 * - Beside online requests, rows of class low make short batches, and fill up those of others only so far; or they have
 *   batches of their own, which run in spare time. */
enum {
    WINDOW_LOOK_AHEAD = 256,  /* rows among which a batch is chosen (more only where a batch may be larger) */
    WINDOW_PASSED_OVER = 4,   /* so often a row may be left behind for younger ones; then it is the head */
    WINDOW_BATCH_ROWS = 1024, /* the largest max_batch_rows */
    WINDOW_OLDEST_EVERY = 10, /* batches, of which one begins with the oldest row */
};

/* The rows of one class, by tenant. */
struct window_class {
    struct tenant_queue plain; /* of requests without a tenant */
    struct tenant_heap heap;   /* the other tenants that have rows */
    uint32_t tenants;          /* that have a queue */
    uint64_t had;              /* tokens so far, each counted 30 / weight */
    uint64_t level, most;      /* where a tenant begins to count that did not wait; the most that any has had */
};

/* Whose rows may go into a batch: of any class, of others than low, of low. */
enum window_only { WINDOW_ALL, WINDOW_ONLINE, WINDOW_LOW };

/* All zero is an empty one. */
struct window {
    struct window_class classes[CLASS_COUNT];
    struct tenant_queue overdue; /* rows of any class that were passed over too often */
    struct tenant_table queues;  /* of tenants, by name */
    struct tenant_queue *idle;   /* queues without rows, until the call at hand is over */
    struct dedup_index dedup;
    struct row *expired;    /* taken out because they may not start any more; until window_take_expired */
    uint64_t expires_at_ms; /* not before this time may a row that waits expire; 0: never */
    uint64_t level;         /* where a class begins to count that did not wait */
    uint32_t batches;       /* since one began with the oldest row */
    uint32_t rows;
    uint64_t tokens, squares; /* of the tokens */
    uint64_t urgent_ms;       /* of the batch that is being taken, … */
    bool brief;               /* … whether it is, and … */
    enum window_only only;    /* … whose rows may go */
};

/* The size of one batch. Padded batches count rows * longest. */
struct window_limits {
    enum batch_layout layout;
    uint32_t tokens;
    uint32_t rows;           /* <= WINDOW_BATCH_ROWS */
    uint64_t now_ms;         /* Redis unix ms, for rows that expire; 0: not known, none does */
    uint64_t urgent_ms;      /* likewise; a row that expires before goes before the others of its tenant */
    const struct cost *cost; /* of a batch; may be NULL when there is no limit on its time */
    double most_ns;          /* what a batch may take, by its cost; 0: no limit */
    double low_ns;           /* what it may take before rows of class low no longer join it; 0: as others */
    bool brief;              /* in turn, up to the first that does not fit. Not where layouts pad */
    enum window_only only;
};

/* Frees what the window has allocated; the rows stay their requests'. */
void window_close(struct window *window);

/* Adds a row as the youngest of its tenant. Owns: the row stays its request's. */
void window_push(struct window *window, struct row *row, uint64_t now_ns);

/* Puts back a row that had been taken, as the oldest of its tenant; its waiting goes on from before. */
void window_put_back(struct window *window, struct row *row);

/* Takes out a row that is in it (row->queue is not NULL then). */
void window_remove(struct window *window, struct row *row);

/* Takes out any row; NULL when there is none. */
struct row *window_pop(struct window *window);

/* Since when the oldest row waits; UINT64_MAX when there is none. Cost: one look per tenant. */
uint64_t window_oldest_ns(const struct window *window);

/* Whether rows of class low wait. */
bool window_has_low(const struct window *window);

/* Whether rows of other classes wait. */
bool window_has_online(const struct window *window);

/* Whether rows of other classes than high wait. */
bool window_has_others(const struct window *window);

/* Whether it is the turn of a row of class low. */
bool window_low_is_next(const struct window *window);

/* Whether a batch of these limits could be full. */
bool window_full(const struct window *window, const struct window_limits *limits);

/* Takes the rows of the next batch out of the window: the head always (alone, when it is larger than the limits), the
 * rest from the look-ahead. Packed: the next in turn that still fit. Padded: the nearest in length, as long as at most
 * a quarter of the batch is padding, or in turn up to the first that does not fit (LAYOUT_PADDED_FIFO). Every row takes
 * those along that wait for the same vector (row->duplicates). Shapes: chosen [limits->rows], written. Returns how
 * many; 0 when nobody waits (any more: see expired). */
uint32_t window_take(struct window *window, const struct window_limits *limits, struct row **chosen);

/* Looks for all rows that have expired by `now_ms`, and puts them aside for window_take_expired. */
void window_expire(struct window *window, uint64_t now_ms);

/* Hands out the rows that window_expire or window_take have put aside, a list by row->next; NULL when there is none. */
struct row *window_take_expired(struct window *window);

/* The row whose turn it is; NULL when nobody waits. */
struct row *window_next(struct window *window);

/* Takes a row in hand: out of its queue, charged to its class and tenant. */
void window_hold(struct window *window, struct row *row);

/* Puts a row in hand back as the first of its tenant, or of all where it is overdue, and takes the charge back. Rows go
 * back in the reverse order. */
void window_unhold(struct window *window, struct row *row);

/* How long a batch may be, so that 99 of 100 requests are answered within a target. Pure; private to work/.
 *
 * A request that comes while all compute threads are busy waits for one batch and is then in the next, so what a batch
 * takes is what tells on every request. The share of the target that a batch may take is found by looking: it shrinks
 * while the 99th percentile is above the target, and grows while it is well below, because long batches cost less per
 * text. Two bounds keep that from doing harm: a batch is always worth its fixed cost, and where requests wait longer
 * than the target anyhow, there is more work than time, and only throughput helps. */

enum {
    TUNE_BUCKETS = 192,   /* 8 for each doubling of a latency, from 1 ms on */
    TUNE_SEEN_LEAST = 200 /* latencies before a percentile means something */
};

/* What is known of the latencies, and the share that follows from it. */
struct tune {
    uint64_t target_ns; /* 0: off */
    double share;       /* of the target that a batch may take */
    uint32_t buckets[TUNE_BUCKETS], seen;
    uint64_t ends_ns; /* the percentile is taken not before */
    uint32_t p99_ms;  /* the last that was taken; 0: none yet. Upper bound of its bucket */
};

/* Begins anew, also when the target has changed; 0: no target, the percentile is still taken. */
void tune_begin(struct tune *tune, uint32_t target_ms);

/* A request was answered so long after it was enqueued. */
void tune_answered(struct tune *tune, uint64_t latency_ms, uint64_t now_ns);

/* What a batch may take, as predicted by `cost`; 0: no limit. `oldest_ns`: how long the oldest row has waited. */
double tune_batch_ns(const struct tune *tune, const struct cost *cost, uint64_t oldest_ns);

enum { BUDGET_GROWS_AFTER = 16 }; /* good batches after which a halved budget doubles again */

/* The token budget of a batch: halved when memory ran out, doubled again after a while. */
struct budget {
    uint32_t full, tokens, good;
};

/* Memory ran out: half of it from now on, at least one token. */
void budget_halve(struct budget *budget);

/* A batch has run: after BUDGET_GROWS_AFTER of them, twice as much again, up to all. */
void budget_good(struct budget *budget);

#endif
