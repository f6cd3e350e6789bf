/* Why a row of a job has no vector. A bad row is a failed row: it is listed, its place is NaN or null, and the job goes
 * on. What ends a job is an enum status instead. */
#ifndef BULK_FAILURE_H
#define BULK_FAILURE_H

/* Why; the order is that of the names, and stands in no file. */
enum row_code {
    ROW_OK,
    ROW_UNREADABLE, /* a file of a folder that could not be read */
    ROW_TOO_LARGE,
    ROW_BAD_UTF8,
    ROW_EMPTY_TEXT,
    ROW_BAD_JSON,
    ROW_NOT_OBJECT,
    ROW_BAD_CSV,
    ROW_MISSING_FIELD,
    ROW_NOT_TEXT,
    ROW_NON_FINITE,
    ROW_F16_RANGE,
    ROW_REFUSED, /* by the queue that computes it */
    ROW_CODES,
};

/* The name that stands in files: "bad_utf8". */
const char *row_code_name(enum row_code code);

/* A sentence for rows about which nothing more is known: it does not depend on where or when a row failed, so that a
 * job that was interrupted lists the same as one that was not. */
const char *row_code_text(enum row_code code);

#endif
