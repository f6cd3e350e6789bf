/* Runs batches: validates a file, computes its lines as a bulk job through a queue, and publishes the outputs. Every
 * step can be done again, so a kill at any moment costs no more than that step. */
#ifndef BATCH_RUN_H
#define BATCH_RUN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct address;

/* The numbers of a runner, for metrics. Thread: the runner's writes them, others read them with __atomic_load_n. */
struct batch_counts {
    uint64_t running;           /* 1 while it runs a batch */
    uint64_t waiting;           /* batches that have not ended, without that one */
    uint64_t completed, failed; /* lines, since it began */
};

struct batch_runner {
    const char *folder;
    const struct address *address;
    const char *const *queues; /* [queue_count] */
    size_t queue_count;
    int quit_fd;                /* an eventfd, readable once the runner shall end */
    volatile sig_atomic_t quit; /* 1 then, too; written with __atomic_store_n */
    struct batch_counts counts;
};

/* Looks for batches that nobody runs, and runs them, until it shall quit. Thread: its own. */
void batch_runner_loop(struct batch_runner *runner);

#endif
