/* The window: rows that wait for a batch, and the choice of which go next.
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
#ifndef SCHEDULE_WINDOW_H
#define SCHEDULE_WINDOW_H

#include "engine/cost.h"
#include "schedule/batch.h"
#include "schedule/tenant_queue.h"

enum {
    WINDOW_LOOK_AHEAD = 256,        /* rows among which a batch is chosen (more if a batch may be larger) */
    WINDOW_PASSED_OVER = 4,         /* times a row may be passed over for younger ones before it is overdue */
    WINDOW_BATCH_ROWS = 4096,       /* the largest max_batch_rows */
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

/* Takes a row in hand: takes it out of its queue and counts its tokens for its class and tenant. */
void window_hold(struct window *window, struct row *row);

/* Puts a row in hand back as the first of its tenant, or of the overdue ones if it is overdue, and takes the count
 * back. Rows go back in reverse order. */
void window_unhold(struct window *window, struct row *row);

#endif
