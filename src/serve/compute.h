/* The compute threads: each owns one encoder of each engine and runs whole batches, single-threaded inside. */
#ifndef SERVE_COMPUTE_H
#define SERVE_COMPUTE_H

#include <stdbool.h>

#include "engine/engine.h"
#include "work/batch.h"

struct compute;

struct compute_options {
    struct engine *const *engines; /* [engine_count]; they must outlive the threads */
    unsigned engine_count;
    unsigned threads;
    unsigned queued; /* batches that may wait beside those that run */
    int wake_fd;     /* an eventfd written when a finished batch waits, or -1 */
};

/* Opens an encoder of each engine for each thread, and starts them.
 * Owns: the caller ends it with compute_close. Errors: those of encoder_open; STATUS_NO_MEMORY, STATUS_IO. */
MUST_CHECK enum status compute_open(const struct compute_options *options, struct compute **out, struct err *err);

/* Whether another batch may be put: at most threads + queued may be out. */
bool compute_has_room(const struct compute *compute);

/* Hands a batch over to the engine of that number. It comes back with status, err and stamps filled, and with the
 * owner that was named here. */
void compute_put(struct compute *compute, unsigned engine, void *owner, struct batch *batch);

/* A finished batch: NULL when none is there (compute_take), or, after waiting for one, when none is out. `owner` may be
 * NULL. */
struct batch *compute_take(struct compute *compute, void **owner);
struct batch *compute_wait(struct compute *compute, void **owner);

/* Lets the batches that were put finish, and joins the threads. Batches that were not taken are not freed: take them,
 * or let the worker that knows them do it. NULL is allowed. */
void compute_close(struct compute *compute);

#endif
