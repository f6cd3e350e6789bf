/* The bytes of a file, whatever it is packed in: plain, gzip or zstd, told by its first bytes and not by its name. */
#ifndef BULK_INPUT_STREAM_H
#define BULK_INPUT_STREAM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
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

/* Records out of a stream, with a bound: what is longer is skipped to its end and never held in memory. */

/* A file that is being read in records. */
struct reader {
    struct stream *stream; /* owned */
    struct buffer buffer;
    size_t at;     /* what of the buffer was given out */
    size_t limit;  /* bytes of a record */
    uint64_t line; /* lines before `at` */
    bool begun, ended;
};

/* A run of bytes of the file; the bytes live until the next call with the reader. */
struct record {
    char *bytes; /* NULL at the end of the file */
    size_t length;
    uint64_t line;  /* where it begins, from 1 */
    bool too_large; /* then `length` is 0: it was skipped */
};

/* Opens the file; `limit` is what a record may have in bytes. Owns: the caller ends it with reader_close; `path` must
 * outlive it. Errors: those of stream_open. */
MUST_CHECK enum status reader_open(struct reader *reader, const char *path, size_t limit,
                                   const volatile sig_atomic_t *stop, struct err *err);

/* Closes the file and frees the buffer. */
void reader_close(struct reader *reader);

/* The next line, without its end (line feed, or carriage return and line feed). The last one needs none.
 * Errors: those of stream_read, with the line before the message. */
MUST_CHECK enum status reader_line(struct reader *reader, struct record *out, struct err *err);

/* Likewise for who cannot go on without one: STATUS_BAD_INPUT, naming file and line, where it is too long or not UTF-8.
 */
MUST_CHECK enum status reader_text(struct reader *reader, struct record *out, struct err *err);

/* The rest of the file as one record; NULL when it was given out. Errors: as reader_line. */
MUST_CHECK enum status reader_whole(struct reader *reader, struct record *out, struct err *err);

/* What lies unread in memory, for who looks for the end of a record himself. */
struct record reader_ahead(struct reader *reader);

/* Reads one more piece behind it; `reader->ended` says that there is no more. A byte order mark at the beginning of the
 * file is left out. Errors: as reader_line. */
MUST_CHECK enum status reader_more(struct reader *reader, struct err *err);

/* Takes `length` bytes, with `lines` line feeds among them, off what lies ahead. */
void reader_take(struct reader *reader, size_t length, uint64_t lines);

#endif
