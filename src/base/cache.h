/* The cache directory: what was measured once for a machine, in small files. Any of them may be missing, damaged or
 * another machine's at any time, so readers check them, and all that is lost with one is some measuring. */
#ifndef BASE_CACHE_H
#define BASE_CACHE_H

#include <stddef.h>

#include "base/buffer.h"
#include "base/err.h"

enum { CACHE_PATH_BYTES = 4096 };

/* Where the cache is: the directory that was chosen, or for NULL the user's ($XDG_CACHE_HOME/sluice, else
 * $HOME/.cache/sluice). Shapes: out [CACHE_PATH_BYTES]; "" where there is none. */
void cache_directory(const char *chosen, char *out);

/* The path of a file in it. Shapes: out [CACHE_PATH_BYTES]. Errors: STATUS_BAD_INPUT (too long). */
MUST_CHECK enum status cache_path(const char *directory, const char *name, char *out, struct err *err);

/* Puts a whole file there, as file_replace does, and makes the directory, for this user alone, where it is missing.
 * Errors: what errno says; STATUS_NO_MEMORY when `bytes` is broken. */
MUST_CHECK enum status cache_write(const char *directory, const char *name, const struct buffer *bytes,
                                   struct err *err);

#endif
