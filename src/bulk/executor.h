/* What computes vectors: the engine of this process, or a queue. The job hands out batches and takes them back; it does
 * not know which of the two it is. */
#ifndef BULK_EXECUTOR_H
#define BULK_EXECUTOR_H

#include "bulk/lookahead.h"
#include "serve/devices.h"

/* Pieces that are computed together. An executor fills what stands below the line, and the pieces' vectors and codes.
 */
struct bulk_batch {
    struct piece **pieces; /* [count] */
    uint32_t count;
    uint32_t dim;
    float limit;  /* what no element of a vector may reach: INFINITY, or REPLY_HALF_LIMIT */
    void *window; /* the job's */
    /* ---- */
    enum status status; /* not STATUS_OK: nothing of it was computed, and the job stops */
    struct err err;
    uint32_t tokens;
    uint32_t failed; /* pieces with a code: see batch_fail */
    bool halve;      /* nothing of it was computed, and each half alone may be */
    void *own;       /* the local executor's: the batch that serve/compute has */
};

/* Puts the vector of one of the batch's pieces in its place, or gives it a code when it is none that files can hold;
 * `finite` says that somebody has looked whether it is finite. Shapes: vector [dim] floats, read, wherever they lie.
 * Thread: whichever has it: there it is still in the cache. */
void batch_put_vector(struct bulk_batch *batch, struct piece *piece, const void *vector, bool finite);

/* This piece has no vector. */
void batch_fail(struct bulk_batch *batch, struct piece *piece, enum row_code code);

/* Why files cannot hold a vector, or ROW_OK. Shapes: vector [dim] floats, read, wherever they lie. */
enum row_code vector_check(const void *vector, uint32_t dim, float limit);

struct executor;

/* What an executor can do. */
struct executor_ops {
    /* Whether another batch may be put. */
    bool (*has_room)(const struct executor *executor);
    /* Hands a batch over; it comes back. Never fails: a batch that cannot be computed comes back with a status. */
    void (*put)(struct executor *executor, struct bulk_batch *batch);
    /* A batch that is done, or NULL: never waits. The wake_fd that the executor was opened with is written when it
     * would give one and there is less to do than an executor needs to be kept busy. */
    struct bulk_batch *(*take)(struct executor *executor);
    void (*close)(struct executor *executor);
};

/* The head of every executor. Thread: one, as for all of this. */
struct executor {
    const struct executor_ops *ops;
    unsigned batches; /* that may be out at once, at most */
};

/* The executor of this machine: its devices, and on a CPU a compute thread for each core. */

/* What computes, and how much waits for it. */
struct local_options {
    const struct devices *devices;
    unsigned threads; /* of a CPU */
    unsigned queued;  /* batches that wait for each thread, beside those that run */
    int wake_fd;
};

/* The devices must outlive it. Owns: the caller ends it with ops->close; batches that are out then must not be
 * used any more by the caller. Errors: those of compute_open. */
MUST_CHECK enum status local_open(const struct local_options *options, struct executor **out, struct err *err);

#endif
