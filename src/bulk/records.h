/* Records that are more than a text: each line of the input is one, has any number of texts, and becomes one line of
 * one of two outputs. The job computes the texts and survives kills; it does not know what the lines mean. */
#ifndef BULK_RECORDS_H
#define BULK_RECORDS_H

#include "base/buffer.h"
#include "bulk/input/document.h"

/* A record whose texts are all computed, or have failed. */
struct record_result {
    const struct document *document; /* what `read` made of it */
    const float *vectors;            /* [count, dim], each `stride` floats after the last; NaN for a text that failed */
    uint32_t count, dim, stride;     /* count 0: `read` has failed it */
    uint64_t tokens;                 /* of all its texts */
    enum row_code code;              /* not ROW_OK: why `failed`, the first of its texts that has no vector, has none */
    uint32_t failed;
};

/* How lines become texts, and vectors lines. Thread: one at a time for `read`, and another one for `write`. */
struct records {
    void *context;
    /* Sets a document's text, texts, id and kept, or its code and message. `bytes` is the line, or NULL if it was
     * longer than the source reads. What it points to lives until the next call. Errors: STATUS_NO_MEMORY. */
    enum status (*read)(void *context, const char *bytes, size_t length, struct document *out, struct err *err);
    /* Appends a line to `lines`, or to `failures` if the document or one of its texts has failed. The same record gives
     * the same bytes in every run. */
    void (*write)(void *context, const struct record_result *result, struct buffer *lines, struct buffer *failures);
};

#endif
