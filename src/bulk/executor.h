/* What computes vectors: the engine of this process, or a queue. The job hands out batches and takes them back; it does
 * not know which of the two it is. */
#ifndef BULK_EXECUTOR_H
#define BULK_EXECUTOR_H

#include "bulk/slice.h"

/* Pieces that are computed together. An executor fills what stands below the line. */
struct bulk_batch {
    struct piece **pieces; /* [count]; the executor may change their order */
    uint32_t count;
    void *window; /* the job's */
    /* ---- */
    enum status status; /* not STATUS_OK: nothing of it was computed, and the job stops */
    struct err err;
    const float *vectors; /* [count, dim], in the order of `pieces`; those of pieces with a code mean nothing */
    uint32_t tokens;
    void *own; /* the executor's */
};

struct executor;

struct executor_ops {
    /* Whether another batch may be put. */
    bool (*has_room)(const struct executor *executor);
    /* Hands a batch over; it comes back. Never fails: a batch that cannot be computed comes back with a status. */
    void (*put)(struct executor *executor, struct bulk_batch *batch);
    /* A batch that is done, or NULL: never waits. The wake_fd that the executor was opened with is written when it
     * would give one. Shapes: see struct bulk_batch. */
    struct bulk_batch *(*take)(struct executor *executor);
    /* Ends with a batch that was taken: its vectors are no longer needed. The batch itself stays the job's. */
    void (*done)(struct executor *executor, struct bulk_batch *batch);
    void (*close)(struct executor *executor);
};

/* The head of every executor. Thread: one, as for all of this. */
struct executor {
    const struct executor_ops *ops;
    unsigned batches; /* that may be out at once, at most */
};

#endif
