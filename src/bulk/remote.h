/* The executor that uses a queue: each batch is a request of low priority, and the workers of the queue compute it.
 *
 * A separate thread talks to Redis. It keeps a bounded number of requests out, as a producer (redis/producer.h) whose
 * results stream is `bulk`. A request's id names job and content: if it is sent again, after a reconnect or by a job
 * that resumes, it can only give the same vectors, and an existing reply is used. */
#ifndef BULK_REMOTE_H
#define BULK_REMOTE_H

#include <signal.h>

#include "bulk/executor.h"
#include "redis/address.h"

/* The model of a queue's workers, found out by asking them for a vector. */
struct remote_facts {
    char model_id[65];
    char model[256], revision[128], precision[16];
    uint32_t dim;
    bool normalized; /* the vector that came back has length 1 */
};

/* The queue, and the job. */
struct remote_options {
    const struct address *address; /* these four must outlive it */
    const char *queue;
    const char *prompt, *prefix; /* for every request; NULL: the model's own */
    bool raw;     /* vectors are not normalised: the caller does that; and each piece has the number of its tokens */
    uint64_t job; /* ids of requests begin with it: no two jobs at a time may share it */
    uint32_t dim;
    int wake_fd;
    const volatile sig_atomic_t *stop; /* once it is not 0, it waits only a few seconds for replies; may be NULL */
    void (*live)(const char *queue, bool live); /* called when no worker has shown itself for a while, and when one has
                                                 * again; by the thread, too; may be NULL */
};

/* Bounds of a batch; without token ids a text weighs its bytes. */
enum { REMOTE_BATCH_ROWS = 64, REMOTE_BATCH_BYTES = 256 << 10 };

/* Asks the queue for a vector. Errors: those of client_open; STATUS_UNAVAILABLE when no worker replies within a minute
 * or `stop` was set, STATUS_BAD_INPUT when the reply is an error. */
MUST_CHECK enum status remote_probe(const struct remote_options *options, struct remote_facts *out, struct err *err);

/* Starts the thread, which connects, and reconnects after a loss. Owns: the caller ends it with ops->close.
 * Errors: STATUS_NO_MEMORY, STATUS_IO (no thread). */
MUST_CHECK enum status remote_open(const struct remote_options *options, struct executor **out, struct err *err);

#endif
