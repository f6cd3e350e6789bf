/* What a benchmark found: single facts and tables, shown line by line as they are found, and kept as JSON.
 *
 * The same columns make both, so a figure cannot be in one and not in the other. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/err.h"

/* A column of numbers with so many decimals, or of texts. */
struct column {
    const char *key;   /* in JSON */
    const char *title; /* on a terminal */
    int decimals;      /* REPORT_TEXT: texts */
};

enum { REPORT_TEXT = -1 };

/* Of a column: its text, or its number. NAN: not known, "-" on a terminal and null in JSON. */
struct cell {
    const char *text;
    double number;
};

/* What was found so far. */
struct report {
    FILE *shown; /* NULL: nobody looks */
    struct buffer json;
    const struct column *columns; /* [column_count] of the table that is being filled; NULL: none is */
    size_t column_count;
    bool first; /* no row of it has come yet */
};

/* Begins with the name of the benchmark and the machine that it runs on.
 * Owns: the caller ends the report with report_free. */
void report_begin(struct report *report, const char *name, FILE *shown);

/* Frees the JSON. */
void report_free(struct report *report);

/* Adds a fact: a text, or a number with so many decimals. Ends the table before it. */
void report_text(struct report *report, const char *key, const char *value);
void report_number(struct report *report, const char *key, double value, int decimals);

/* Begins a table; what comes next are its rows. `columns` [count] lives as long as the table. */
void report_table(struct report *report, const char *key, const struct column *columns, size_t count);

/* Adds a row to the table. Shapes: cells [count], as many as there are columns. */
void report_row(struct report *report, const struct cell *cells);

/* Writes the JSON to a file, to standard output for "-", or nowhere for NULL.
 * Errors: STATUS_NO_MEMORY, or what errno says. */
MUST_CHECK enum status report_end(struct report *report, const char *path, struct err *err);

/* Lists of whole numbers in an option: "16,64,256". */

enum { NUMBERS_MAX = 16 };

/* A list that was read. */
struct numbers {
    int64_t items[NUMBERS_MAX];
    size_t count;
};

/* Reads 1 to NUMBERS_MAX numbers from `least` to `most`; `option` names the option in messages.
 * Errors: STATUS_BAD_INPUT. */
MUST_CHECK enum status numbers_parse(const char *option, const char *text, int64_t least, int64_t most,
                                     struct numbers *out, struct err *err);

/* Reads a list of words, each one of `known` (ended by NULL), into their places there. Errors: STATUS_BAD_INPUT. */
MUST_CHECK enum status numbers_parse_words(const char *option, const char *text, const char *const *known,
                                           struct numbers *out, struct err *err);

/* Measured values, kept one by one: percentiles are read off, not estimated. Zero-initialise to start. */

/* Values, in the order of their coming until a quantile is asked for. */
struct sample {
    double *values; /* [count] */
    size_t count, capacity;
    bool broken; /* memory ran out, and values are missing */
    bool sorted;
};

/* Adds a value. Errors: the sample is broken. */
void sample_add(struct sample *sample, double value);

/* Frees the values and leaves an empty sample. */
void sample_free(struct sample *sample);

/* The smallest value that a share `q` of all values does not exceed (0.5: the median); NAN without values. */
double sample_quantile(struct sample *sample, double q);

#endif
