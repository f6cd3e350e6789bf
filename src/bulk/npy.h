/* The head of an .npy file, always 128 bytes long, so that it can be written again when the number of rows is known.
 * Source: numpy.lib.format, version 1.0 of the format. */
#ifndef BULK_NPY_H
#define BULK_NPY_H

#include <stdint.h>

enum { NPY_HEADER_BYTES = 128 };

/* `type` is NumPy's name of the elements, "<f4"; dim 0: an array of one dimension. */
void npy_header(char to[NPY_HEADER_BYTES], const char *type, uint64_t rows, uint32_t dim);

#endif
