/* Records of CSV and TSV. Source: RFC 4180; lines may also end in a line feed alone. As there, a quote counts only at
 * the beginning of a field; inside an unquoted field it is an ordinary character. */
#ifndef BULK_INPUT_CSV_H
#define BULK_INPUT_CSV_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "bulk/input/document.h"

/* The search for the end of a record. Zero-initialise. */
struct csv_scan {
    enum {
        CSV_BEGIN, /* at the beginning of a field */
        CSV_PLAIN,
        CSV_QUOTED, /* inside quotes; at the end of the file: the quote is never closed */
        CSV_CLOSED, /* after a quote that may be the closing one */
        CSV_RETURN,
        CSV_DONE,   /* its line end was read */
        CSV_BROKEN, /* a character follows a closing quote */
    } state;
    struct csv_position {
        uint64_t line;   /* line feeds of the record before it */
        uint64_t column; /* in that line; `quote` counts from 1 */
    } here, quote;       /* quote: where the last quoted field begins */
};

/* Scans the next bytes of a record, up to CSV_DONE or CSV_BROKEN, and returns how many belong to it. Thread: any. */
size_t csv_scan(struct csv_scan *scan, const char *bytes, size_t length, char separator);

/* The length of a record without its line end. */
size_t csv_content(const char *bytes, size_t length);

/* The fields of a record. Zero-initialise; free(list.values) in the end. */
struct csv_fields {
    struct value *values; /* [count], VALUE_TEXT, parts of the record */
    uint32_t count, room;
};

/* Splits the content of a record that is not broken into fields, and removes quotes in place.
 * Errors: STATUS_NO_MEMORY. Thread: any. */
MUST_CHECK enum status csv_split(char *content, size_t length, char separator, struct csv_fields *out, struct err *err);

#endif
