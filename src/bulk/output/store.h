/* Where vectors lie, by row: every row has its place of fixed width, so that they can be written in any order. */
#ifndef BULK_OUTPUT_STORE_H
#define BULK_OUTPUT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* How rows lie in files. */
enum store_kind {
    STORE_NPY,    /* one .npy file */
    STORE_RAW,    /* one file of nothing but the vectors */
    STORE_SHARDS, /* a folder of .npy files */
};

enum { STORE_OPEN_FILES = 8 }; /* at once */

/* What a number of a vector is in the files. */
enum element { ELEMENT_F32, ELEMENT_F16 };

/* Where, and in which form. */
struct store_options {
    enum store_kind kind;
    const char *path; /* of the file or folder; must outlive the store */
    uint32_t dim;
    enum element element;
    uint64_t shard_rows; /* STORE_SHARDS: rows of a file */
    bool fresh;          /* a file that is there already is overwritten; otherwise it is gone on with */
};

struct store;

/* Opens or makes the files as they are needed. Owns: the caller ends it with store_close.
 * Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status store_open(const struct store_options *options, struct store **out, struct err *err);

/* Closes the files; nothing is waited for. NULL is allowed. */
void store_close(struct store *store);

/* Writes the vectors of `count` rows from `row` on. A row that has none is not-a-numbers.
 * Shapes: vectors [count, dim] f32, read; below REPLY_HALF_LIMIT for f16. Errors: STATUS_IO naming the file (a full
 * disk too). */
MUST_CHECK enum status store_put(struct store *store, uint64_t row, uint64_t count, const float *vectors,
                                 struct err *err);

/* Reads a row; written to another one it gives the same bits there. Shapes: vector [dim] f32, written.
 * Errors: STATUS_IO. */
MUST_CHECK enum status store_get(struct store *store, uint64_t row, float *vector, struct err *err);

/* Whether the file of a row that was written reaches behind it. Errors: STATUS_BAD_INPUT when it does not: somebody has
 * cut it, or put another one in its place; STATUS_IO. */
MUST_CHECK enum status store_check(struct store *store, uint64_t row, struct err *err);

/* Descriptors of the files that were written to since the last time: for who makes them durable, and closes them.
 * Shapes: fds [STORE_OPEN_FILES], [*count] written. Errors: STATUS_IO; then none is given out. */
MUST_CHECK enum status store_dirty(struct store *store, int *fds, unsigned *count, struct err *err);

/* Waits until all that was written would survive a power cut. Errors: STATUS_IO. */
MUST_CHECK enum status store_sync(struct store *store, struct err *err);

/* Ends the files: their headers tell of `rows` rows in all. Errors: STATUS_IO. */
MUST_CHECK enum status store_finish(struct store *store, uint64_t rows, struct err *err);

/* How many files so many rows are in. */
uint64_t store_files(const struct store *store, uint64_t rows);

/* The path of a file. Shapes: to [size], cut there. */
void store_file_path(const struct store *store, uint64_t file, char *to, size_t size);

/* How many of so many rows a file has. */
uint64_t store_file_rows(const struct store *store, uint64_t rows, uint64_t file);

#endif
