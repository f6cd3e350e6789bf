/* Records of CSV and TSV. Source: RFC 4180, and lines may end in a line feed alone.
 *
 * As there, quotes count at the beginning of a field only; inside an unquoted field they are letters like others. */
#ifndef BULK_INPUT_CSV_H
#define BULK_INPUT_CSV_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "bulk/input/document.h"

/* A record whose end is looked for. Zero-initialise. */
struct csv_scan {
    enum {
        CSV_BEGIN, /* of a field */
        CSV_PLAIN,
        CSV_QUOTED, /* at the end of the file: the quote is never closed */
        CSV_CLOSED, /* behind a quote that may be the closing one */
        CSV_RETURN,
        CSV_DONE,   /* its line end was read */
        CSV_BROKEN, /* a letter stands behind a closing quote */
    } state;
    struct csv_position {
        uint64_t line;   /* line feeds of the record before it */
        uint64_t column; /* of that line; `quote` counts from 1 */
    } here, quote;       /* quote: where the last quoted field begins */
};

/* Goes on over the next bytes of a record and returns how many are its: all of them, up to CSV_DONE or CSV_BROKEN.
 * Thread: any. */
size_t csv_scan(struct csv_scan *scan, const char *bytes, size_t length, char separator);

/* The length of a record without its line end. */
size_t csv_content(const char *bytes, size_t length);

/* The fields of a record. Zero-initialise; free(list.values) in the end. */
struct csv_fields {
    struct value *values; /* [count], VALUE_TEXT, parts of the record */
    uint32_t count, room;
};

/* Cuts the content of a record that is not broken into fields, and takes quotes off in place.
 * Errors: STATUS_NO_MEMORY. Thread: any. */
MUST_CHECK enum status csv_split(char *content, size_t length, char separator, struct csv_fields *out, struct err *err);

#endif
