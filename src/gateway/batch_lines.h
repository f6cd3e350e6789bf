/* The lines of an OpenAI batch as records of a bulk job (bulk/records.h):
 *
 *     in   {"custom_id": …, "method": "POST", "url": "/v1/embeddings", "body": {…}}
 *     out  {"id": …, "custom_id": …, "response": {"status_code": …, "request_id": …, "body": {…}} | null,
 *           "error": {"code": …, "message": …} | null}
 *
 * A line that cannot be answered becomes a line of the file of errors. Ids are hashes of the line and its place, and no
 * line has a time, so a batch has the same bytes however often it was interrupted. */
#ifndef GATEWAY_BATCH_LINES_H
#define GATEWAY_BATCH_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "bulk/records.h"

/* Zero-initialise; set the first members before the job reads. */
struct batch_lines {
    const char *model, *queue; /* the names that a body may give its model; the second may be NULL. Not owned */
    uint32_t dim;
    bool normalize; /* vectors have length 1; those of the job are not normalised yet */
    size_t max_text_bytes;
    uint64_t seed; /* of the ids */

    struct buffer text, kept, id, message; /* of the line that was read */
    struct buffer body, vectors;           /* of the line that is written */
};

/* The functions of a job's records, with the lines as their context. */
struct records batch_lines_records(struct batch_lines *lines);

/* Frees the buffers. */
void batch_lines_free(struct batch_lines *lines);

/* Reads a whole file and looks for lines with the custom_id of an earlier one, whose answers nobody could tell apart. A
 * line is read up to `most_bytes`. Errors: STATUS_BAD_INPUT naming the first of them; those of stream_open and
 * stream_read; STATUS_NO_MEMORY. */
MUST_CHECK enum status batch_lines_check(const char *path, size_t most_bytes, struct err *err);

#endif
