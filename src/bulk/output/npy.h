/* The header of an .npy file: 128 bytes, so that it can be rewritten when the number of rows is known.
 * Source: numpy.lib.format, version 1.0 of the format. */
#ifndef BULK_OUTPUT_NPY_H
#define BULK_OUTPUT_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { NPY_HEADER_BYTES = 128, NPY_HEADER_MOST = 4096, NPY_DIMENSIONS_MAX = 8 };

/* Writes a header; `type` is NumPy's name of the elements, "<f4"; dim 0: one dimension. */
void npy_header(char to[NPY_HEADER_BYTES], const char *type, uint64_t rows, uint32_t dim);

/* What a header says. */
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

#endif
