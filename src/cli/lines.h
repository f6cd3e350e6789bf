/* A file of texts, one per line, read in large pieces. */
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

enum { LINES_MAX_BYTES = 1 << 28 };

/* A file that is being read. */
struct lines {
    int fd;
    const char *name; /* for messages: "-" is called standard input */
    struct buffer buffer;
    size_t at;                       /* what of the buffer was given out */
    uint64_t number;                 /* of the line given out last, from 1 */
    uint64_t size_bytes, read_bytes; /* of a regular file, else size 0; of what was given out */
    bool ended;
};

/* One line, in the file's buffer. */
struct line {
    const char *text; /* NULL at the end of the file; else until the next call */
    size_t length;    /* without the line feed */
};

/* Opens a file, or standard input for "-". Owns: the caller ends it with lines_close; `path` must outlive it.
 * Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO. */
MUST_CHECK enum status lines_open(struct lines *lines, const char *path, struct err *err);

/* Closes the file, unless it is standard input, and frees the buffer. */
void lines_close(struct lines *lines);

/* Gives the next line; a last line without a line feed is one, too.
 * Errors: STATUS_BAD_INPUT (not UTF-8, or longer than LINES_MAX_BYTES) naming file and line; STATUS_IO,
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status lines_next(struct lines *lines, struct line *out, struct err *err);

#endif
