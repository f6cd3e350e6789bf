/* Whole files into memory, with a cap: what comes from a disk is read and checked, never mapped. And whole files out of
 * memory, in one step. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>

#include "base/buffer.h"
#include "base/err.h"

/* Reads a regular file of at most `limit` bytes behind the content of `out`; a NUL is kept behind the content (not
 * counted). Units: bytes. Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO, STATUS_BAD_INPUT (too large),
 * STATUS_NO_MEMORY; each message names the path; `out` then holds what had been there before. */
MUST_CHECK enum status file_read(const char *path, size_t limit, struct buffer *out, struct err *err);

/* Writes all bytes to an open file; `path` is for the message. Errors: what errno says. */
MUST_CHECK enum status file_put(int fd, const void *bytes, size_t length, const char *path, struct err *err);

/* Puts a file of these bytes, for this user alone, in the place of `path`: whoever opens it sees the old one or the new
 * one, whole. It is not forced to the disk. Errors: what errno says, STATUS_BAD_INPUT (the path is too long); nothing
 * is left beside it. */
MUST_CHECK enum status file_replace(const char *path, const void *bytes, size_t length, struct err *err);

#endif
