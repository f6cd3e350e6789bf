/* An executor computes vectors: on the devices of this machine, through a queue (bulk/remote.h), or none (a dry run). A
 * job hands out batches and takes them back, without knowing which of them computes. */
#ifndef BULK_EXECUTOR_H
#define BULK_EXECUTOR_H

#include "bulk/lookahead.h"
#include "compute/devices.h"
#include "schedule/batch.h"

/* Pieces to compute together. The executor sets the members below the line, and the pieces' vectors and codes. */
struct bulk_batch {
    struct weighed *pieces; /* [count] */
    uint32_t count;
    uint32_t dim;
    float limit;  /* elements must be below it: INFINITY, or HALF_LIMIT for f16 */
    void *window; /* the job's */
    /* ---- */
    enum status status; /* not STATUS_OK: nothing was computed, and the job stops */
    struct err err;
    uint32_t tokens;
    uint32_t failed; /* pieces with a code: see piece_fail */
    uint32_t cut;    /* texts of which a queue says that they were cut, or fewer; a local job knows without */
    bool halve;      /* nothing was computed; each half alone may work */
    /* ---- the local executor's own: the batch for compute/compute */
    struct batch batch, *laid_out;
};

/* Copies a piece's vector to its place, or sets the piece's code if files cannot hold it. `finite`: it is known to be
 * finite. Shapes: vector [dim] floats, read, of any alignment. Thread: the one that computed it, where it is in cache.
 */
void piece_put_vector(struct bulk_batch *batch, struct piece *piece, const void *vector, bool finite);

/* Marks a piece as failed. */
void piece_fail(struct bulk_batch *batch, struct piece *piece, enum row_code code);

/* The reason why files cannot hold a vector, or ROW_OK. Shapes: vector [dim] floats, read, of any alignment. */
enum row_code piece_check(const void *vector, uint32_t dim, float limit);

struct executor;

/* The operations of an executor. */
struct executor_ops {
    /* True if another batch may be put. */
    bool (*has_room)(const struct executor *executor);
    /* Hands a batch over. Never fails: a batch that cannot be computed comes back with a status. */
    void (*put)(struct executor *executor, struct bulk_batch *batch);
    /* Takes a batch that is done; NULL: none. Never waits. The executor writes its wake_fd when a batch is done and too
     * few are left to keep it busy. */
    struct bulk_batch *(*take)(struct executor *executor);
    void (*close)(struct executor *executor);
};

/* The head of every executor. Thread: one, for all operations. */
struct executor {
    const struct executor_ops *ops;
    unsigned batches; /* that may be out at once */
};

/* The local executor: devices of this machine, on a CPU with a compute thread per core. */
struct local_options {
    const struct devices *devices;
    unsigned threads; /* of a CPU */
    unsigned queued;  /* batches that wait for each thread, in addition to the running one */
    int wake_fd;
};

/* The devices must outlive it. Owns: the caller ends it with ops->close, and must not use batches that are out then.
 * Errors: those of compute_open. */
MUST_CHECK enum status local_open(const struct local_options *options, struct executor **out, struct err *err);

/* An executor that computes nothing: every text has a vector of zeros at once. It adds up the tokens that a real one
 * would have computed. */
struct dry {
    struct executor executor; /* first */
    struct bulk_batch *done[64];
    unsigned done_count;
    uint64_t batches;
    double tokens, squares; /* of all batches; squares of the lengths of rows */
};

/* Nothing needs to be closed. */
void dry_open(struct dry *dry);

#endif
