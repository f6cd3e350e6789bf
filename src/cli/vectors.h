/* Vectors to a file: .npy (float32 [n, dim]) or JSON lines, in the order in which they are put. */
#ifndef CLI_VECTORS_H
#define CLI_VECTORS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct vectors {
    FILE *file;
    const char *name;
    bool npy;
    uint32_t dim;
    uint64_t count;
};

/* Opens FILE.npy, FILE.jsonl, or standard output ("-", as JSON lines); an existing file is overwritten.
 * Owns: the caller ends it with vectors_close or vectors_abandon; `path` must outlive it.
 * Errors: STATUS_BAD_INPUT (another ending), STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO. */
MUST_CHECK enum status vectors_open(struct vectors *vectors, const char *path, uint32_t dim, struct err *err);

/* Shapes: rows [count, dim] f32, read. Errors: STATUS_IO. */
MUST_CHECK enum status vectors_put(struct vectors *vectors, const float *rows, size_t count, struct err *err);

/* Ends the file: writes the number of rows into the header of an .npy. Errors: STATUS_IO. */
MUST_CHECK enum status vectors_close(struct vectors *vectors, struct err *err);

/* Closes without ending: an .npy keeps a header that says no rows. */
void vectors_abandon(struct vectors *vectors);

#endif
