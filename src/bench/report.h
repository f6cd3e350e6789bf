/* The results of a benchmark: facts and tables, shown line by line as they come, and kept as JSON.
 *
 * The same columns make both, so no figure can be in only one of them. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/err.h"

/* A column of numbers or texts. */
struct column {
    const char *key;   /* in JSON */
    const char *title; /* on a terminal */
    int decimals;      /* of its numbers; REPORT_TEXT: texts */
};

enum { REPORT_TEXT = -1 };

/* The results so far. */
struct report {
    FILE *shown; /* NULL: show nothing */
    struct buffer json;
    const struct column *columns; /* [column_count] of the current table; NULL: none */
    size_t column_count;
};

/* Begins a report with the benchmark's name, the date and the machine.
 * Owns: the caller ends the report with report_free. */
void report_begin(struct report *report, const char *name, FILE *shown);

/* Frees the JSON. */
void report_free(struct report *report);

/* Adds a fact: a text. Ends the current table. */
void report_text(struct report *report, const char *key, const char *value);

/* Adds a fact: a number, shown with `decimals` decimals; NAN: unknown. Ends the current table. */
void report_number(struct report *report, const char *key, double value, int decimals);

/* Begins a table; report_row fills it. `columns` [count] must live as long as the table. */
void report_table(struct report *report, const char *key, const struct column *columns, size_t count);

/* Adds a row to the table. Shapes: texts, one for each column of texts (NULL: there is none); numbers, one for each
 * other column. NAN: unknown, "-" on a terminal and null in JSON. */
void report_row(struct report *report, const char *const *texts, const double *numbers);

/* Writes the JSON to a file, to standard output for "-", or nowhere for NULL.
 * Errors: STATUS_NO_MEMORY, or the status of errno. */
MUST_CHECK enum status report_end(struct report *report, const char *path, struct err *err);

enum { NUMBERS_MAX = 16 };

/* A list of whole numbers in an option: "16,64,256". */
struct numbers {
    int64_t items[NUMBERS_MAX];
    size_t count;
};

/* Reads 1 to NUMBERS_MAX numbers from `least` to `most`; `option` names the option in messages.
 * Errors: STATUS_BAD_INPUT. */
MUST_CHECK enum status numbers_parse(const char *option, const char *text, int64_t least, int64_t most,
                                     struct numbers *out, struct err *err);

/* Reads the value of --price-per-hour. Errors: STATUS_BAD_INPUT. */
MUST_CHECK enum status price_parse(const char *text, double *out, struct err *err);

/* Measured values, kept one by one, so percentiles are exact. Zero-initialise to start. */
struct sample {
    double *values; /* [count] */
    size_t count, capacity;
    bool broken; /* out of memory: values are missing */
    bool sorted;
};

/* Adds a value. Errors: sets `broken`. */
void sample_add(struct sample *sample, double value);

/* Frees the values; the sample is empty then. */
void sample_free(struct sample *sample);

/* The smallest value that a share `q` of all values does not exceed (0.5: the median); NAN without values. */
double sample_quantile(struct sample *sample, double q);

#endif
