/* The executor behind a queue: batches become requests of low priority, and the workers of the queue compute them.
 *
 * One thread of its own talks to Redis. It sends a bounded number of requests, hears of their ends on the results
 * stream `bulk`, and also looks at all of them once a second, so that a lost notice costs a second and no row. A
 * request has an id that says job and content: asked again, after a reconnect or by a job that was killed and goes on,
 * it can only give the same vectors, and a reply that is there already is taken. */
#ifndef BULK_REMOTE_H
#define BULK_REMOTE_H

#include <signal.h>

#include "bulk/executor.h"
#include "io/address.h"

/* What a queue's workers compute, found out by asking them for a vector. */
struct remote_facts {
    char model_id[65];
    char model[256], revision[128], precision[16];
    uint32_t dim;
    bool normalized; /* the vector that came back has length 1 */
};

/* Which queue, and for which job. */
struct remote_options {
    const struct address *address; /* these four must outlive it */
    const char *queue;
    const char *prompt, *prefix; /* for every request; NULL: the model's own */
    uint64_t job;                /* what the ids of requests begin with: no two jobs at a time may have the same */
    uint32_t dim;
    int wake_fd;
    const volatile sig_atomic_t *stop; /* once it is not 0, answers are waited for a few seconds only; may be NULL */
};

enum { REMOTE_BATCH_ROWS = 64, REMOTE_BATCH_BYTES = 256 << 10 };

/* Asks the queue for a vector. Errors: those of client_open; STATUS_UNAVAILABLE when no worker answers within a
 * minute or `stop` was set, STATUS_BAD_INPUT when the answer is an error. */
MUST_CHECK enum status remote_probe(const struct remote_options *options, struct remote_facts *out, struct err *err);

/* Starts the thread; it connects by itself, and again after a loss. Owns: the caller ends it with ops->close.
 * Errors: STATUS_NO_MEMORY, STATUS_IO (no thread). */
MUST_CHECK enum status remote_open(const struct remote_options *options, struct executor **out, struct err *err);

#endif
