/* Records of CSV and TSV. Source: RFC 4180, and lines may end in a line feed alone.
 *
 * Quotes count at the beginning of a field only, as there; inside an unquoted field they are letters like others. */
#ifndef BULK_INPUT_CSV_H
#define BULK_INPUT_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "bulk/input/document.h"

/* Where a quoted field begins. */
struct csv_place {
    uint64_t line;   /* line feeds of the record before it */
    uint64_t column; /* from 1 */
};

/* Where a record ends, or goes wrong. */
struct csv_record {
    size_t length;  /* with its line end */
    size_t content; /* without */
    uint64_t lines; /* line feeds in `length` */
    bool broken;    /* a letter behind a closing quote, at `column` (from 1); the record then ends with its line */
    bool open;      /* a quote that is never closed: all up to the end of the file is in it. See `quote` */
    size_t column;
    struct csv_place quote;
};

/* Finds the end of the record that `bytes` begins with. False when it needs more bytes; never at the end of the file
 * (`ended`). Thread: any. */
bool csv_find(const char *bytes, size_t length, bool ended, char separator, struct csv_record *out);

/* A record that is too long to be held while its end is looked for. Zero-initialise. */
struct csv_skip {
    enum { CSV_BEGIN, CSV_PLAIN, CSV_QUOTED, CSV_CLOSED, CSV_RETURN, CSV_DONE, CSV_BROKEN } state;
    struct csv_place here, quote; /* `here` counts columns from 0 */
};

/* Goes on over the next bytes of the record and returns how many are its: all of them, up to CSV_DONE (its line end was
 * among them) or CSV_BROKEN (a letter behind a closing quote). CSV_QUOTED at the end of the file: the quote is never
 * closed. Thread: any. */
size_t csv_skip(struct csv_skip *skip, const char *bytes, size_t length, char separator);

/* The fields of a record. Zero-initialise; free(list.values) in the end. */
struct csv_fields {
    struct value *values; /* [count], VALUE_TEXT, slices of the record */
    uint32_t count, room;
};

/* Cuts the content of a record that is not broken into fields, and takes quotes off in place.
 * Errors: STATUS_NO_MEMORY. Thread: any. */
MUST_CHECK enum status csv_split(char *content, size_t length, char separator, struct csv_fields *out, struct err *err);

#endif
