/* Reads whole files into memory, up to a limit: files are read and checked, never mapped. Writes whole files in one
 * step. Opens files to write at any position, also in folders that others may write to. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>

#include "base/buffer.h"
#include "base/err.h"

#define FILE_LFS_POINTER "version https://git-lfs.github.com/spec/" /* a pointer of Git LFS begins with it */

/* Refuses the beginning of a file that Git LFS left as a pointer. Errors: STATUS_BAD_INPUT naming the path. */
MUST_CHECK enum status file_check_content(const char *bytes, size_t length, const char *path, struct err *err);

/* Appends a regular file of at most `limit` bytes to the content of `out`; a NUL follows the content (not counted).
 * Units: bytes. Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO, STATUS_BAD_INPUT (too large, a pointer),
 * STATUS_NO_MEMORY; each message names the path, and `out` then has the content that it had before. */
MUST_CHECK enum status file_read(const char *path, size_t limit, struct buffer *out, struct err *err);

enum { FILE_PATH_BYTES = 4096 };

/* Writes DIRECTORY/NAME. Errors: STATUS_BAD_INPUT (too long). */
MUST_CHECK enum status file_path(const char *directory, const char *name, char path[FILE_PATH_BYTES], struct err *err);

/* file_read of that path. Errors: those of both. */
MUST_CHECK enum status file_read_in(const char *directory, const char *name, size_t limit, struct buffer *out,
                                    struct err *err);

/* Writes all bytes to an open file; `path` is for the message. Errors: what errno says. */
MUST_CHECK enum status file_put(int fd, const void *bytes, size_t length, const char *path, struct err *err);

/* Replaces the file at `path` with one of these bytes, for this user alone: a reader sees the old one or the new one,
 * whole. It is not forced to the disk. Errors: what errno says, STATUS_BAD_INPUT (the path is too long); no temporary
 * file is left. */
MUST_CHECK enum status file_replace(const char *path, const void *bytes, size_t length, struct err *err);

/* Opens a file for writing, and creates it if it does not exist, with the rights that the umask leaves of 0666. `flags`
 * are those of open, without O_CREAT. A symbolic link in its place is refused: whoever can create one there must not
 * choose which file we write to. Owns: the caller closes `*fd`, which is -1 after an error. Errors: STATUS_BAD_INPUT (a
 * link), what errno says. */
MUST_CHECK enum status file_make(const char *path, int flags, int *fd, struct err *err);

/* Makes a folder, with the rights that the umask leaves of 0777; an existing one is accepted, a symbolic link
 * is not. Errors: STATUS_BAD_INPUT (something else is there), what errno says. */
MUST_CHECK enum status file_make_folder(const char *path, struct err *err);

/* Waits until names that were created, renamed or removed in the folder of `path` would survive a power cut. Errors:
 * what errno says. */
MUST_CHECK enum status file_sync_folder(const char *path, struct err *err);

/* Replaces the file at `path` with one of these bytes, as PATH.new until it is whole; both it and its name survive a
 * power cut. The caller alone writes this file. Errors: what errno says, STATUS_BAD_INPUT (a link); STATUS_NO_MEMORY
 * when `text` is broken. */
MUST_CHECK enum status file_write_durably(const char *path, const struct buffer *text, struct err *err);

/* The cache directory: measurements of a machine, in small files. Any of them may be missing, damaged or another
 * machine's at any time, so readers check them; a lost file only costs another measurement. */

/* Finds the cache: the directory `chosen`, or for NULL the user's ($XDG_CACHE_HOME/sluice, else $HOME/.cache/sluice).
 * Shapes: out [FILE_PATH_BYTES]; "" where there is none. */
void cache_directory(const char *chosen, char *out);

/* Writes a whole file there, as file_replace does, and creates the directory, for this user alone, if it is missing.
 * Errors: what errno says; STATUS_NO_MEMORY when `bytes` is broken. */
MUST_CHECK enum status cache_write(const char *directory, const char *name, const struct buffer *bytes,
                                   struct err *err);

/* Opens a file there to read and write it, and creates it and the directory if they are missing. Waits while it is open
 * in this way elsewhere, in another process or thread; on a file system without locks it does not wait. Owns: the
 * caller closes `*fd`, which is -1 after an error. Errors: those of file_make; STATUS_BAD_INPUT (the path is too long).
 */
MUST_CHECK enum status cache_open(const char *directory, const char *name, int *fd, struct err *err);

#endif
