/* The compute threads: each owns one encoder and runs whole batches, single-threaded inside. */
#ifndef SERVE_COMPUTE_H
#define SERVE_COMPUTE_H

#include "engine/engine.h"
#include "work/batch.h"

struct compute;

/* Opens an encoder per thread and starts them. `wake_fd` is an eventfd written when a finished batch waits, or -1.
 * `queued` batches may wait beside those that run. The engine must outlive this.
 * Owns: the caller ends it with compute_close. Errors: those of encoder_open; STATUS_NO_MEMORY, STATUS_IO. */
MUST_CHECK enum status compute_open(struct engine *engine, unsigned threads, unsigned queued, int wake_fd,
                                    struct compute **out, struct err *err);

/* Hands a batch over; at most threads + queued may be out. It comes back with status, err and stamps filled. */
void compute_put(struct compute *compute, struct batch *batch);

/* A finished batch: NULL when none is there (compute_take), or, after waiting for one, when none is out. */
struct batch *compute_take(struct compute *compute);
struct batch *compute_wait(struct compute *compute);

/* Lets the batches that were put finish, and joins the threads. Batches that were not taken are not freed: take them,
 * or let the worker that knows them do it. NULL is allowed. */
void compute_close(struct compute *compute);

#endif
