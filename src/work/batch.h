/* A batch: rows of one or more requests in one forward pass. Sorted by length and packed; one arena, one free. */
#ifndef WORK_BATCH_H
#define WORK_BATCH_H

#include "engine/engine.h"
#include "work/request.h"

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
    bool spare;          /* all of them are, and it runs in spare time: it may take long */
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

#endif
