/* The window: rows that wait for a batch, and the choice of who goes next. Pure; private to work/.
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
#ifndef WORK_WINDOW_H
#define WORK_WINDOW_H

#include "engine/cost.h"
#include "work/batch.h"
#include "work/equals.h"
#include "work/flow.h"

enum {
    WINDOW_LOOK_AHEAD = 256,  /* rows among which a batch is chosen (more only where a batch may be larger) */
    WINDOW_PASSED_OVER = 4,   /* so often a row may be left behind for younger ones; then it is the head */
    WINDOW_BATCH_ROWS = 1024, /* the largest max_batch_rows */
    WINDOW_OLDEST_EVERY = 10, /* batches, of which one begins with the oldest row */
};

/* The rows of one class, by tenant. */
struct window_class {
    struct flow plain;     /* of requests without a tenant */
    struct flow_heap heap; /* the other tenants that have rows */
    uint32_t tenants;      /* that have a flow */
    uint64_t had;          /* tokens so far, each counted 30 / weight */
    uint64_t level, most;  /* where a tenant begins to count that did not wait; the most that any has had */
};

/* Whose rows may go into a batch: of any class, of others than low, of low. */
enum window_only { WINDOW_ALL, WINDOW_ONLINE, WINDOW_LOW };

/* All zero is an empty one. */
struct window {
    struct window_class classes[CLASS_COUNT];
    struct flow overdue; /* rows of any class that were passed over too often */
    struct flows flows;  /* of tenants, by name */
    struct flow *idle;   /* flows without rows, until the call at hand is over */
    struct equals equals;
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

/* Takes out a row that is in it (row->flow is not NULL then). */
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
 * those along that wait for the same vector (row->twins). Shapes: chosen [limits->rows], written. Returns how many; 0
 * when nobody waits (any more: see expired). */
uint32_t window_take(struct window *window, const struct window_limits *limits, struct row **chosen);

/* Looks for all rows that have expired by `now_ms`, and puts them aside for window_take_expired. */
void window_expire(struct window *window, uint64_t now_ms);

/* Hands out the rows that window_expire or window_take have put aside, a list by row->next; NULL when there is none. */
struct row *window_take_expired(struct window *window);

#endif
