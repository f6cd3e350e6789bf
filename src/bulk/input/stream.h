/* Files as unpacked bytes, and as bounded records. gzip and zstd are recognised by a file's first bytes, not by its
 * name. */
#ifndef BULK_INPUT_STREAM_H
#define BULK_INPUT_STREAM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

struct stream;

/* Opens a file, or standard input for "-". Reads end once `*stop` is not 0, within a tenth of a second; a signal
 * handler or another thread (__atomic_store_n) may set it. NULL: nothing ends them. Owns: the caller ends it with
 * stream_close; `path` must outlive it. Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status stream_open(const char *path, const volatile sig_atomic_t *stop, struct stream **out,
                                   struct err *err);

/* Closes the file and frees the stream. NULL is allowed. */
void stream_close(struct stream *stream);

/* Replaces that flag. */
void stream_watch(struct stream *stream, const volatile sig_atomic_t *stop);

/* Its name in messages: the path, or "standard input". */
const char *stream_name(const struct stream *stream);

/* Reads at most `room` unpacked bytes; `*got` is 0 only at the end. Errors: STATUS_IO; STATUS_BAD_INPUT naming the file
 * and the byte on disk where it is broken or ends early; STATUS_UNAVAILABLE when it was stopped. */
MUST_CHECK enum status stream_read(struct stream *stream, char *to, size_t room, size_t *got, struct err *err);

/* The number of bytes of the file on disk that were read so far. */
uint64_t stream_raw_bytes(const struct stream *stream);

/* Reads records of bounded size: a longer one is skipped to its end and never held in memory. */
struct reader {
    struct stream *stream; /* owned */
    struct buffer buffer;
    size_t at;     /* the buffer was given out up to here */
    size_t limit;  /* of a record, in bytes */
    uint64_t most; /* unpacked bytes of the whole file; 0: no bound. The caller sets it after reader_open */
    uint64_t got;  /* of those, so far */
    uint64_t line; /* lines before `at` */
    bool begun, ended;
    bool whole; /* reader_whole has given out the rest */
};

/* A record; its bytes live until the next call with the reader. */
struct record {
    char *bytes; /* NULL at the end of the file */
    size_t length;
    uint64_t line;  /* where it begins, from 1 */
    bool too_large; /* it was skipped; `length` is 0 */
};

/* Opens a file; `limit` is the most bytes of a record. Owns: the caller ends it with reader_close; `path` must
 * outlive it. Errors: those of stream_open. */
MUST_CHECK enum status reader_open(struct reader *reader, const char *path, size_t limit,
                                   const volatile sig_atomic_t *stop, struct err *err);

/* Closes the file and frees the buffer. */
void reader_close(struct reader *reader);

/* The next line, without its line feed or CR LF; the last one needs none. A NUL follows its bytes. Errors: those of
 * stream_read, with the line before the message; STATUS_BAD_INPUT for a file with more than `most` bytes. */
MUST_CHECK enum status reader_line(struct reader *reader, struct record *out, struct err *err);

/* reader_line, but a line that is too long or not UTF-8 is STATUS_BAD_INPUT naming file and line. */
MUST_CHECK enum status reader_text(struct reader *reader, struct record *out, struct err *err);

/* The rest of the file as one record; its bytes are NULL if it was already given out. Errors: as reader_line. */
MUST_CHECK enum status reader_whole(struct reader *reader, struct record *out, struct err *err);

/* The bytes that are buffered but not given out, for callers that find the end of a record themselves. */
struct record reader_ahead(struct reader *reader);

/* Buffers more; `reader->ended` says that there is no more. Skips a byte order mark at the beginning of the file.
 * Errors: as reader_line. */
MUST_CHECK enum status reader_more(struct reader *reader, struct err *err);

/* Gives out `length` buffered bytes, which have `lines` line feeds. */
void reader_take(struct reader *reader, size_t length, uint64_t lines);

#endif
