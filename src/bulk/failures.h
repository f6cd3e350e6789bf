/* The list of failures: a JSON line for each row that has no vector, in the order of rows. A retry reads it in step
 * with the documents. Private to the job's files. */
#ifndef BULK_FAILURES_H
#define BULK_FAILURES_H

#include "bulk/input/stream.h"
#include "bulk/lookahead.h"
#include "bulk/manifest.h"

struct job;

enum { LINE_MAX_BYTES = 1 << 30 };

/* A row of the list of failures. */
struct listed {
    uint64_t row; /* UINT64_MAX: the end of the list */
    uint64_t document, chunk;
    bool unread; /* it failed when it was read: its bytes may have changed */
};

/* The list of failures, which is read in step with the documents. Zero-initialise for an empty one. */
struct failure_list {
    struct reader reader;
    struct record line; /* the line of `next` */
    struct listed next;
};

/* Appends the id of a document, or its number. */
void job_put_id(struct buffer *to, const struct document *document);

/* Appends a line of the list; `chunks`: rows are chunks. */
void job_put_failure(struct buffer *to, const struct output_row *row, bool chunks);

/* Reads the next line into `list->next`. Errors: STATUS_BAD_INPUT: no job wrote it; those of reader_line. */
MUST_CHECK enum status failure_list_next(const struct job *job, struct failure_list *list, struct err *err);

/* Replaces the old list by the new one, which has `failed` lines; without lines there is no list. Errors: those of
 * rename, unlink and fsync. */
MUST_CHECK enum status failure_list_adopt(const struct output *output, const char *new_list, uint64_t failed,
                                          struct err *err);

/* Cleans up after a kill between manifest and list, or before a manifest was written. Errors: those of
 * failure_list_adopt. */
MUST_CHECK enum status failure_list_settle(const struct output *output, const struct manifest *manifest,
                                           struct err *err);

#endif
