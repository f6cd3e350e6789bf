/* The input of a job: documents, one after the other, out of all its files. */
#ifndef BULK_INPUT_SOURCE_H
#define BULK_INPUT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "bulk/input/document.h"
#include "bulk/input/stream.h"

/* How a file holds its documents. */
enum source_format {
    FORMAT_AUTO, /* by the file's name, .gz and .zst left aside; a file of a folder that is no table is a document */
    FORMAT_LINES,
    FORMAT_JSONL,
    FORMAT_CSV,
    FORMAT_TSV,
    FORMAT_DOCUMENT, /* the whole file is one text */
};

/* What they are called: by that number, and NULL behind the last. */
extern const char *const source_format_names[];

/* Which files, and what in them is a document. All pointers must outlive the source. */
struct source_options {
    char *const *operands; /* [operand_count], files and folders; "-" is standard input */
    size_t operand_count;
    const char *glob;
    enum source_format format;
    const struct recipe *recipe; /* what the records of tables give; must outlive the source */
    bool headerless;             /* the columns of CSV and TSV are called 1, 2, 3 … */
    bool empty_texts;            /* an empty text is a text */
    size_t max_text_bytes;
    const volatile sig_atomic_t *stop; /* see stream_open; may be NULL */
};

struct source;

/* Looks at all files; none is read yet. Owns: the caller ends it with source_close. Errors: STATUS_NOT_FOUND,
 * STATUS_DENIED, STATUS_IO naming the operand; STATUS_NO_MEMORY. */
MUST_CHECK enum status source_open(const struct source_options *options, struct source **out, struct err *err);

/* Closes the file at hand and frees all. NULL is allowed. */
void source_close(struct source *source);

/* The next document; `*more` is false when there is none. What it points to lives until the next call.
 * A record that is bad gives a document with a code. A file that is broken or gone is an error, which names file and
 * line or byte; the documents before it were given out. Errors: those of source_open and stream_read. */
MUST_CHECK enum status source_next(struct source *source, struct document *out, bool *more, struct err *err);

/* Bytes of the files that were read so far, packed as they are. */
uint64_t source_read_bytes(const struct source *source);

/* Bytes of all files; 0 when nobody knows. */
uint64_t source_total_bytes(const struct source *source);

#endif
