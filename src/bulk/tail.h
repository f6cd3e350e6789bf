/* A file that only grows, in row order: JSON lines, failures, ids. How long it was at a checkpoint is known, so that
 * what an interrupted run had written behind it is cut off. */
#ifndef BULK_TAIL_H
#define BULK_TAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

/* A file that grows. Zero-initialise for one that is not open. */
struct tail {
    const char *path; /* NULL: it is not open */
    int fd;
    bool standard;         /* standard output: neither cut nor synced */
    struct buffer pending; /* what is not written yet: append here */
    uint64_t written;
};

/* Opens a file and cuts it at `length`, or standard output for "-". `path` must outlive it.
 * Owns: the caller ends it with tail_close. Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO; STATUS_BAD_INPUT when
 * the file is shorter than that. */
MUST_CHECK enum status tail_open(struct tail *tail, const char *path, uint64_t length, struct err *err);

/* Closes the file, unless it is standard output; what is pending is lost. */
void tail_close(struct tail *tail);

/* Writes what is pending; nothing happens to one that is not open. Errors: STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status tail_flush(struct tail *tail, struct err *err);

/* Likewise, and waits until it would survive a power cut. Errors: as tail_flush. */
MUST_CHECK enum status tail_sync(struct tail *tail, struct err *err);

#endif
