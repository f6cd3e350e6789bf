/* What the files of the source share. Private to bulk/source*.c. */
#ifndef BULK_SOURCE_STATE_H
#define BULK_SOURCE_STATE_H

#include "bulk/csv.h"
#include "bulk/source.h"

/* A record may be so much larger than the texts in it: escapes, and fields that nobody asked for. */
enum { RECORD_FACTOR = 8, RECORD_EXTRA = 1 << 16 };

/* Which file and which document it is at. */
struct source {
    struct source_options options;
    struct files files;
    struct file_name file; /* that is open; path NULL: none */
    enum source_format format;
    struct reader reader;
    uint64_t read_bytes; /* of the files before it */
    uint64_t documents;

    struct recipe_scratch scratch;
    struct csv_fields fields;
    uint32_t columns[RECIPE_FIELDS_MAX]; /* where the recipe's fields stand in the records of this file */
    uint32_t column_count;               /* 0: the header was not read */
    struct buffer said;                  /* a document's message, or its id */
};

/* Gives a document a code and a formatted message, which lives until the next one. */
void source_fail(struct source *source, struct document *out, enum row_code code, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* Reads the next document of the open file, which is a table of that format; `*found` is false at its end.
 * Errors: as source_next. */
MUST_CHECK enum status source_read_json(struct source *source, struct document *out, bool *found, struct err *err);
MUST_CHECK enum status source_read_csv(struct source *source, struct document *out, bool *found, struct err *err);

#endif
