/* The input of a job: the documents of all its files, one after the other. */
#ifndef BULK_INPUT_SOURCE_H
#define BULK_INPUT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "bulk/input/document.h"
#include "bulk/input/stream.h"
#include "bulk/records.h"

/* How a file holds its documents. */
enum source_format {
    FORMAT_AUTO, /* by the name without .gz or .zst; a file of a folder that is no table is a document */
    FORMAT_LINES,
    FORMAT_JSONL, /* or an array of the same objects, which its first bytes show */
    FORMAT_CSV,
    FORMAT_TSV,
    FORMAT_DOCUMENT, /* the whole file is one text */
};

/* Their names; NULL ends the list. */
extern const char *const source_format_names[];

/* The files, and the form of their documents. All pointers must outlive the source. */
struct source_options {
    char *const *operands; /* [operand_count], files and folders; "-" is standard input */
    size_t operand_count;
    const char *glob;
    enum source_format format;
    const struct recipe *recipe;   /* for records of tables */
    const struct records *records; /* not NULL: it reads the lines, and format and recipe do not matter */
    bool lines_only;               /* FORMAT_AUTO is lines, and a file that seems to be something else is refused */
    bool headerless;               /* columns of CSV and TSV are named 1, 2, 3 … */
    bool empty_texts;              /* an empty text is valid */
    size_t max_text_bytes;
    uint64_t limit;                    /* the most documents that are read; 0: all */
    const volatile sig_atomic_t *stop; /* see stream_open; may be NULL */
};

struct source;

/* Finds all files, without reading any. Owns: the caller ends it with source_close. Errors: STATUS_NOT_FOUND,
 * STATUS_DENIED, STATUS_IO naming the operand; STATUS_BAD_INPUT naming an option that a file cannot obey;
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status source_open(const struct source_options *options, struct source **out, struct err *err);

/* A file on disk, whichever name it goes by. */
struct file_id {
    dev_t device;
    ino_t inode;
};

/* Refuses an input of which one file is among these, which the job would delete or overwrite.
 * Errors: STATUS_BAD_INPUT naming the file; STATUS_DENIED, STATUS_IO (a folder). */
MUST_CHECK enum status source_refuse(const struct source_options *options, const struct file_id *files, size_t count,
                                     struct err *err);

/* Replaces the flag of the options. */
void source_watch(struct source *source, const volatile sig_atomic_t *stop);

/* Closes the open file and frees the source. NULL is allowed. */
void source_close(struct source *source);

/* Reads the next document; `*more` is false at the end. Its pointers are valid until the next call. A bad record gives
 * a document with a code. A broken or missing file is an error that names file and line or byte; the documents before
 * it were given out. Errors: those of source_open and stream_read. */
MUST_CHECK enum status source_next(struct source *source, struct document *out, bool *more, struct err *err);

/* The most bytes of a record of a table: escapes and other fields make it longer than its text. */
size_t source_record_bytes(const struct source_options *options);

/* Checks that the input has the fields that the recipe names. Errors: STATUS_BAD_INPUT when all JSON objects so far
 * failed in the same field for the same reason; it says which fields the first one has. */
MUST_CHECK enum status source_check_fields(const struct source *source, struct err *err);

/* The number of documents with the id of an earlier one, as far as the table of ids has room (bulk/dedup.h), and the
 * first of them: its id, file and line. Only counted where a field is the id. */
uint64_t source_duplicates(const struct source *source);
const char *source_first_duplicate(const struct source *source);

/* A line for each of the first files that were read: its name, its kind, and the fields of its first record. */
const struct buffer *source_files(const struct source *source);

/* The share of the input that was read so far, 0 to 1; negative: unknown. */
double source_share(const struct source *source);

#endif
