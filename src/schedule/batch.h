/* Batches: rows of one or more requests in one forward pass, sorted by length and packed; their layout in memory. */
#ifndef SCHEDULE_BATCH_H
#define SCHEDULE_BATCH_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/engine.h"
#include "schedule/request.h"

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
    uint64_t ends_ns;    /* TASK_GENERATE: it fails with STATUS_TIMEOUT when this time has come; 0: never */
    atomic_uint_least64_t stepped_ns; /* TASK_GENERATE: the last time its executor came on with it; 0: not yet */
    atomic_bool dropped;              /* TASK_GENERATE: nobody needs its result, so its executor may end it early */
    bool low;                         /* some of its rows are of class low */
    bool background; /* all of its rows are of class low, and it runs in the background, so it may take long */
    bool first;      /* it goes before batches that wait for a thread */
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

/* Frees all batches of a list. */
void batch_list_free(struct batch_list *list);

#endif
