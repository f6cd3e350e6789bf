/* Batches: when one is cut, how long it may be, which rows it takes, and its layout in memory. No I/O; code outside
 * schedule/ uses only struct batch. */
#ifndef SCHEDULE_BATCHING_H
#define SCHEDULE_BATCHING_H

#include <stdint.h>

#include "engine/cost.h"
#include "engine/engine.h"
#include "schedule/request.h"
#include "schedule/tenant_queue.h"

/* --- Batches: rows of one or more requests in one forward pass, sorted by length and packed --- */

/* How the rows of a batch are chosen and laid out: packed without gaps; or padded to the longest, chosen by similar
 * length or in order. The padded layouts exist for comparison. */
enum batch_layout { LAYOUT_PACKED, LAYOUT_PADDED, LAYOUT_PADDED_FIFO };

/* One forward pass: its input, its output, and the rows that it belongs to. */
struct batch {
    struct batch *next;  /* in a list of its holder */
    struct batch *other; /* the other half of a failed batch, waiting for the result of this one; owned */
    struct row **rows;   /* [engine.rows] */
    struct engine_batch engine;
    uint32_t tokens;    /* real ones */
    enum status status; /* of the forward pass, set by the compute thread */
    struct err err;
    uint64_t started_ns, finished_ns; /* set by the compute thread */
    bool helped;                      /* idle threads could help; set by the compute thread */
    uint64_t submitted_ns;            /* set by the worker */
    uint64_t number;                  /* set by the worker, from 1 on */
    uint64_t watched_ns; /* the time from which it may hang: when it was submitted, or began, if its executor knows; 0:
                            not yet */
    bool low;            /* some of its rows are of class low */
    bool background;     /* all of its rows are of class low, and it runs in the background, so it may take long */
    bool first;          /* it goes before batches that wait for a thread */
};

/* Lays out rows as one batch: sorts them by length (longest first), fills ids, start and length, and allocates [rows,
 * dim] floats of output. Owns: the caller ends it with batch_free; the rows stay their requests'. Errors: NULL when
 * memory ran out. */
struct batch *batch_build(struct row **rows, uint32_t count, enum batch_layout layout, uint32_t dim);

/* Frees a batch and its other half, if any. NULL is allowed. */
void batch_free(struct batch *batch);

/* Batches in the order in which they will run. */
struct batch_list {
    struct batch *first, *last;
    uint32_t count;
};

/* Adds a batch as the last to run. */
void batch_list_push(struct batch_list *list, struct batch *batch);

/* Adds a batch as the first to run. */
void batch_list_push_first(struct batch_list *list, struct batch *batch);

/* Takes the first; NULL when there is none. */
struct batch *batch_list_pop(struct batch_list *list);

/* Takes out a batch, wherever it is. Linear: there are only a few. */
void batch_list_remove(struct batch_list *list, struct batch *batch);

/* --- The window: rows that wait for a batch, and the choice of which go next.
 *
 * Greedy (the default): a free compute thread never waits; rows collect while all are busy, so batches grow without a
 * timer. `fixed`: a plain timer of window_ms, whatever the engine does. Either way a full batch is cut at once.
 *
 * The next row is chosen like this:
 * - Classes share the batches 6:3:1 by tokens: the class that has had the fewest for its weight is next. A class
 *   without waiting rows saves nothing up; the others use its share.
 * - Inside a class, the tenant that has had the fewest tokens is next; requests without a tenant count as one tenant.
 * - Inside a tenant, the oldest row is next, but one that would expire during the batch goes first. A row that does not
 *   fit is passed over for younger ones of any class, at most WINDOW_PASSED_OVER times: then it is overdue and goes
 *   before all others.
 * - Every tenth batch begins with the oldest row of all.
 * - Brief batches pass no row over: they end at the first that does not fit. So they make no row overdue, and class
 *   high may go before overdue rows and before the oldest when it is its turn.
 * - While there are online requests, rows of class low make short batches and fill those of other classes only up to a
 *   limit, or they have batches of their own in the background. */
enum {
    WINDOW_LOOK_AHEAD = 256,        /* rows among which a batch is chosen (more if a batch may be larger) */
    WINDOW_PASSED_OVER = 4,         /* times a row may be passed over for younger ones before it is overdue */
    WINDOW_BATCH_ROWS = 1024,       /* the largest max_batch_rows */
    WINDOW_OLDEST_EVERY = 10,       /* one of this many batches begins with the oldest row */
    WINDOW_EQUAL_BUCKETS = 1 << 16, /* of rows by hash */
};

/* The waiting rows of one class, by tenant. */
struct window_class {
    struct tenant_queue plain; /* of requests without a tenant */
    struct tenant_heap heap;   /* other tenants with rows */
    uint32_t tenants;          /* with a queue in the table */
    uint64_t had;              /* tokens so far, each counted 30 / weight of the class */
    uint64_t level, most; /* the count at which a tenant that had nothing waiting starts; the highest count of any */
};

/* The rows that may go into a batch: of any class, of all but low, of low. */
enum window_only { WINDOW_ALL, WINDOW_ONLINE, WINDOW_LOW };

/* All zero is an empty one. */
struct window {
    struct window_class classes[CLASS_COUNT];
    struct tenant_queue overdue; /* rows of any class, passed over too often */
    struct tenant_table queues;  /* of tenants, by name */
    struct tenant_queue *idle;   /* queues without rows, until the current call ends */
    struct row **equal;          /* [WINDOW_EQUAL_BUCKETS], by the hash of their ids; NULL: no equal rows are found */
    struct row *expired;         /* expired rows, until window_take_expired */
    uint64_t expires_at_ms;      /* no waiting row expires earlier; 0: none expires */
    uint64_t level;              /* the count at which a class that had nothing waiting starts */
    uint32_t batches;            /* since the last one that began with the oldest row */
    uint32_t rows;
    uint64_t tokens, squares; /* of the tokens */
    uint64_t urgent_ms;       /* for the batch being taken: see window_limits */
    bool brief;               /* for that batch, too */
    enum window_only only;    /* for that batch, too */
};

/* The size of one batch. Padded batches count rows * longest. */
struct window_limits {
    enum batch_layout layout;
    uint32_t tokens;
    uint32_t rows;           /* <= WINDOW_BATCH_ROWS */
    uint64_t now_ms;         /* Redis unix ms, to find expired rows; 0: unknown, none is */
    uint64_t urgent_ms;      /* Redis unix ms; a row that expires earlier goes before the others of its tenant */
    const struct cost *cost; /* of a batch; may be NULL if its time has no limit */
    double most_ns;          /* predicted time a batch may take; 0: no limit */
    double low_ns;           /* time beyond which rows of class low no longer join; 0: no such limit */
    bool brief;              /* takes rows in turn, up to the first that does not fit. Not with LAYOUT_PADDED */
    enum window_only only;
};

/* Frees what the window allocated; rows belong to their requests. */
void window_close(struct window *window);

/* Adds a row as the youngest of its tenant. Owns: the row belongs to its request. */
void window_push(struct window *window, struct row *row, uint64_t now_ns);

/* Puts back a row that was taken, as the oldest of its tenant; its waiting time continues. */
void window_put_back(struct window *window, struct row *row);

/* Takes out a row that is in the window (its row->queue is not NULL). */
void window_remove(struct window *window, struct row *row);

/* Takes out any row; NULL when there is none. */
struct row *window_pop(struct window *window);

/* The time since which the oldest row waits; UINT64_MAX if there is none. Cost: one look per tenant. */
uint64_t window_oldest_ns(const struct window *window);

/* Returns whether rows of class low wait. */
bool window_has_low(const struct window *window);

/* Returns whether rows of other classes than low wait. */
bool window_has_online(const struct window *window);

/* Returns whether rows of other classes than high wait. */
bool window_has_others(const struct window *window);

/* Returns whether it is class low's turn. */
bool window_low_is_next(const struct window *window);

/* Returns whether the waiting rows would fill a batch of these limits. */
bool window_full(const struct window *window, const struct window_limits *limits);

/* Takes the rows of the next batch out of the window: always the head (alone if it exceeds the limits), the rest from
 * the look-ahead. Packed: the next in turn that still fit. Padded: the nearest in length while at most a quarter of the
 * batch is padding, or in turn up to the first that does not fit (LAYOUT_PADDED_FIFO). Each row takes its duplicates
 * along (row->duplicates). Shapes: chosen [limits->rows], written. Returns how many; 0 if no row waits, or only expired
 * ones. */
uint32_t window_take(struct window *window, const struct window_limits *limits, struct row **chosen);

/* Puts all rows that have expired by `now_ms` aside for window_take_expired. */
void window_expire(struct window *window, uint64_t now_ms);

/* Hands out the rows that window_expire and window_take put aside, a list by row->next; NULL if there is none. */
struct row *window_take_expired(struct window *window);

/* The row whose turn it is; NULL if no row waits. */
struct row *window_next(struct window *window);

/* Returns whether two rows have the same token ids, and so the same vector. */
bool rows_same_ids(const struct row *a, const struct row *b);

/* Takes a row in hand: takes it out of its queue and charges its tokens to its class and tenant. */
void window_hold(struct window *window, struct row *row);

/* Puts a row in hand back as the first of its tenant, or of the overdue ones if it is overdue, and takes the charge
 * back. Rows go back in reverse order. */
void window_unhold(struct window *window, struct row *row);

/* --- How long a batch may be so that 99 of 100 requests are answered within a target.
 *
 * A request that comes while all compute threads are busy waits for one batch and is in the next, so every request pays
 * for the length of batches. The share of the target that a batch may take is found by feedback: it shrinks while the
 * 99th percentile is above the target, and grows while it is well below, because long batches cost less per text. Two
 * bounds prevent harm: a batch is always worth its fixed cost; and if requests wait longer than the target anyway, only
 * throughput helps. */

enum {
    TUNE_BUCKETS = 192,   /* 8 per doubling of the latency, from 1 ms on */
    TUNE_SEEN_LEAST = 200 /* latencies before a percentile means something */
};

/* Recent latencies, and the share that follows from them. */
struct tune {
    uint64_t target_ns; /* 0: off */
    double share;       /* of the target that a batch may take */
    uint32_t buckets[TUNE_BUCKETS], seen;
    uint64_t ends_ns; /* the percentile is not computed earlier */
    uint32_t p99_ms;  /* the last percentile, the upper bound of its bucket; 0: none yet */
};

/* Starts again, also after the target changed. 0: no target; the percentile is still computed. */
void tune_begin(struct tune *tune, uint32_t target_ms);

/* Notes a request's latency, from its XADD to its answer. */
void tune_answered(struct tune *tune, uint64_t latency_ms, uint64_t now_ns);

/* The predicted time that a batch may take; 0: no limit. `oldest_ns`: how long the oldest row has waited. */
double tune_batch_ns(const struct tune *tune, const struct cost *cost, uint64_t oldest_ns);

enum { BUDGET_GROWS_AFTER = 16 }; /* good batches after which a halved budget doubles again */

/* The token budget of a batch: halved when memory ran out, doubled again after a while. */
struct budget {
    uint32_t full, tokens, good;
};

/* Halves the budget, to at least one token, because memory ran out. */
void budget_halve(struct budget *budget);

/* Notes a batch that succeeded: after BUDGET_GROWS_AFTER of them the budget doubles, up to `full`. */
void budget_good(struct budget *budget);

#endif
