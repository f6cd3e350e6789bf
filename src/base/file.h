/* Whole files into memory, with a cap: what comes from a disk is read and checked, never mapped. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>

#include "base/buffer.h"
#include "base/err.h"

/* Reads a regular file of at most `limit` bytes behind the content of `out`; a NUL is kept behind the content (not
 * counted). Units: bytes. Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO, STATUS_BAD_INPUT (too large),
 * STATUS_NO_MEMORY; each message names the path; `out` then holds what had been there before. */
MUST_CHECK enum status file_read(const char *path, size_t limit, struct buffer *out, struct err *err);

#endif
