/* The executor of this machine: its devices, and on a CPU a compute thread for each core. */
#ifndef BULK_LOCAL_H
#define BULK_LOCAL_H

#include "bulk/executor.h"
#include "serve/devices.h"

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
