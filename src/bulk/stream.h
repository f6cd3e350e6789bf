/* The bytes of a file, whatever it is packed in: plain, gzip or zstd, told by its first bytes and not by its name. */
#ifndef BULK_STREAM_H
#define BULK_STREAM_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct stream;

/* Opens a file, or standard input for "-". `stop` may be NULL: once it is not 0, a read that a signal has interrupted
 * is not taken up again. Owns: the caller ends it with stream_close; `path` must outlive it.
 * Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status stream_open(const char *path, const volatile sig_atomic_t *stop, struct stream **out,
                                   struct err *err);

/* Closes the file and frees what unpacks it. NULL is allowed. */
void stream_close(struct stream *stream);

/* What messages call it: its path, or "standard input". */
const char *stream_name(const struct stream *stream);

/* Reads at most `room` unpacked bytes; `*got` is 0 at the end only.
 * Errors: STATUS_IO; STATUS_BAD_INPUT naming file and byte (of the file as it lies on disk) where it is broken or ends
 * early; STATUS_UNAVAILABLE when it was stopped. */
MUST_CHECK enum status stream_read(struct stream *stream, char *to, size_t room, size_t *got, struct err *err);

/* Bytes of the file itself that were read so far, packed as they are. */
uint64_t stream_raw_bytes(const struct stream *stream);

#endif
