/* The matrix of vectors on disk: each row has a fixed place, so that rows can be written in any order. It is bare or in
 * .npy files. */
#ifndef BULK_OUTPUT_STORE_H
#define BULK_OUTPUT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* --- The header of an .npy file: always 128 bytes, so that it can be rewritten when the number of rows is known.
 * Source: numpy.lib.format, version 1.0 of the format. --- */

enum { NPY_HEADER_BYTES = 128, NPY_HEADER_MOST = 4096, NPY_DIMENSIONS_MAX = 8 };

/* Writes a header; `type` is NumPy's name of the elements, "<f4"; dim 0: one dimension. */
void npy_header(char to[NPY_HEADER_BYTES], const char *type, uint64_t rows, uint32_t dim);

/* The content of a header. */
struct npy {
    char type[16]; /* "<f4" */
    bool fortran;  /* column by column */
    uint64_t shape[NPY_DIMENSIONS_MAX];
    unsigned dimensions;
    size_t data; /* offset of the elements */
};

/* Reads a header, as NumPy and npy_header write it, out of the first NPY_HEADER_MOST bytes of a file.
 * Errors: STATUS_BAD_INPUT naming the file: not an .npy, elements that are not plain numbers, a longer header. */
MUST_CHECK enum status npy_read(const char *bytes, size_t length, const char *name, struct npy *out, struct err *err);

/* --- The store --- */

/* How the rows are stored. */
enum store_kind {
    STORE_NPY,    /* one .npy file */
    STORE_RAW,    /* one file of bare vectors */
    STORE_SHARDS, /* a folder of .npy files */
};

enum { STORE_OPEN_FILES = 8 }; /* at a time */

/* The type of elements in the files. */
enum element { ELEMENT_F32, ELEMENT_F16 };

struct store_options {
    enum store_kind kind;
    const char *path; /* of the file or folder; must outlive the store */
    uint32_t dim;
    enum element element;
    uint64_t shard_rows; /* STORE_SHARDS: rows per file */
    bool fresh;          /* truncate a file that exists, instead of continuing it */
};

/* Thread: any for store_put, store_get and store_dirty, which wait for each other; one for all else. */
struct store;

/* Opens or makes the first file; opens others when they are needed. Owns: the caller ends it with store_close.
 * Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status store_open(const struct store_options *options, struct store **out, struct err *err);

/* Closes the files without syncing. NULL is allowed. */
void store_close(struct store *store);

/* Writes the vectors of `count` rows from `row` on; a failed row is all NaN. Shapes: vectors [count, dim] f32, read;
 * below HALF_LIMIT for f16. Errors: STATUS_IO naming the file (a full disk too). */
MUST_CHECK enum status store_put(struct store *store, uint64_t row, uint64_t count, const float *vectors,
                                 struct err *err);

/* Reads a row; writing it to another row gives the same bits. Shapes: vector [dim] f32, written.
 * Errors: STATUS_IO. */
MUST_CHECK enum status store_get(struct store *store, uint64_t row, float *vector, struct err *err);

/* Checks that the file of a written row contains it. Errors: STATUS_BAD_INPUT when the file was cut or replaced;
 * STATUS_IO. */
MUST_CHECK enum status store_check(struct store *store, uint64_t row, struct err *err);

/* Duplicates the descriptors of files that were written to since the last call; the caller syncs and closes them.
 * Shapes: fds [STORE_OPEN_FILES], [*count] written. Errors: STATUS_IO; then there are none. */
MUST_CHECK enum status store_dirty(struct store *store, int *fds, unsigned *count, struct err *err);

/* Waits until everything written is on disk. Errors: STATUS_IO. */
MUST_CHECK enum status store_sync(struct store *store, struct err *err);

/* Writes the headers for `rows` rows in all, and syncs. Errors: STATUS_IO. */
MUST_CHECK enum status store_finish(struct store *store, uint64_t rows, struct err *err);

/* The number of files that hold this many rows. */
uint64_t store_files(const struct store *store, uint64_t rows);

/* The path of a file. Shapes: to [size], cut there. */
void store_file_path(const struct store *store, uint64_t file, char *to, size_t size);

/* The number of these rows that a file holds. */
uint64_t store_file_rows(const struct store *store, uint64_t rows, uint64_t file);

#endif
