/* Reads whole files into memory, up to a limit: files are read and checked, never mapped. Writes whole files in one
 * step. Opens files to write at any position, also in folders that others may write to. */
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

/* Puts a file of these bytes, for this user alone, in the place of `path`: a reader sees the old one or the new
 * one, whole. It is not forced to the disk. Errors: what errno says, STATUS_BAD_INPUT (the path is too long); nothing
 * is left beside it. */
MUST_CHECK enum status file_replace(const char *path, const void *bytes, size_t length, struct err *err);

/* Opens a file to be written, and makes one where there is none, with the rights that the umask leaves of 0666. `flags`
 * are those of open, without O_CREAT. A symbolic link in its place is refused: who may make one there must not choose
 * which file we write to. Owns: the caller closes `*fd`, which is -1 after an error. Errors: STATUS_BAD_INPUT (a link),
 * what errno says. */
MUST_CHECK enum status file_make(const char *path, int flags, int *fd, struct err *err);

/* Makes a folder, with the rights that the umask leaves of 0777; an existing one is accepted, a symbolic link
 * is not. Errors: STATUS_BAD_INPUT (something else is there), what errno says. */
MUST_CHECK enum status file_make_folder(const char *path, struct err *err);

/* Waits until names that were made, renamed or removed beside `path` would survive a power cut. Errors: what errno
 * says. */
MUST_CHECK enum status file_sync_folder(const char *path, struct err *err);

/* The cache directory: what was measured once for a machine, in small files. Any of them may be missing, damaged or
 * another machine's at any time, so readers check them, and all that is lost with one is some measuring. */

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
