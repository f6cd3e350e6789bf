/* The lines of an OpenAI batch as records of a bulk job (bulk/records.h):
 *
 *     in   {"custom_id": …, "method": "POST", "url": "/v1/embeddings", "body": {…}}
 *     out  {"id": …, "custom_id": …, "response": {"status_code": …, "request_id": …, "body": {…}} | null,
 *           "error": {"code": …, "message": …} | null}
 *
 * A line that cannot be answered becomes a line of the file of errors. Ids are hashes of the line and its place, and no
 * line has a time, so a batch has the same bytes however often it was interrupted. */
#ifndef BATCH_LINES_H
#define BATCH_LINES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bulk/records.h"

/* Zero-initialise; set the first members before the job reads. */
struct batch_lines {
    const char *model, *queue; /* the names that a body may give its model; the second may be NULL. Not owned */
    bool any_model;            /* a body may name any other, too: its line is not computed */
    uint32_t dim;
    bool normalize; /* vectors have length 1; those of the job are not normalised yet */
    size_t max_text_bytes;
    const char *failures_path; /* the file of errors, so that all lines are counted; NULL: only those of this run */

    _Atomic uint64_t answered, failed;               /* lines that were written in this run */
    _Atomic uint64_t answered_before, failed_before; /* and in earlier ones, once it has begun: */
    atomic_bool begun;                               /* a line was written */
    struct buffer text, kept, id, message, body;     /* of the line that was read */
    struct buffer vectors;                           /* of the line that is written */
};

/* The functions of a job's records, with the lines as their context. */
struct records batch_lines_records(struct batch_lines *lines);

/* Frees the buffers. */
void batch_lines_free(struct batch_lines *lines);

/* Counts the lines of a file; 0 if there is none. Errors: those of stream_open and stream_read. */
MUST_CHECK enum status batch_lines_count(const char *path, uint64_t *lines, struct err *err);

enum { TWINS_SHOWN = 100 };

/* Bounds of batch_lines_check, and its result. Zero-initialise. */
struct batch_findings {
    uint64_t most_lines, most_bytes; /* of a file, unpacked; 0: no bound. A small file can unpack to any size */
    uint64_t lines;                  /* most_lines + 1 if there are more; then nothing was looked for after them */
    char model[256];                 /* the first that a body names; "": none */
    uint64_t twice; /* lines with the custom_id of an earlier one, whose answers nobody could tell apart */
    struct twin {
        uint64_t line, first;
    } twins[TWINS_SHOWN]; /* [twice], as far as they fit */
};

/* Reads a whole file. A line is read up to `line_bytes`. Errors: those of stream_open and stream_read; STATUS_BAD_INPUT
 * for a file with more than most_bytes; STATUS_NO_MEMORY. */
MUST_CHECK enum status batch_lines_check(const char *path, size_t line_bytes, struct batch_findings *out,
                                         struct err *err);

/* Appends lines to the open file `fd` for the requests of `path` but for the first `skip`: errors with this code and
 * message. Errors: as above, those of file_put. */
MUST_CHECK enum status batch_lines_abandon(struct batch_lines *lines, const char *path, size_t most_bytes,
                                           uint64_t skip, const char *code, const char *message, int fd,
                                           struct err *err);

#endif
