#include "bulk/npy.h"

#include <stdio.h>
#include <string.h>

void npy_header(char to[NPY_HEADER_BYTES], const char *type, uint64_t rows, uint32_t dim)
{
    static const char magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, NPY_HEADER_BYTES - 10, 0};
    char columns[16] = "";
    if (dim > 0)
        snprintf(columns, sizeof columns, " %u", dim);
    memset(to, ' ', NPY_HEADER_BYTES);
    memcpy(to, magic, sizeof magic);
    int used = snprintf(to + sizeof magic, NPY_HEADER_BYTES - sizeof magic,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (%llu,%s), }", type, (unsigned long long)rows,
                        columns);
    to[sizeof magic + (size_t)used] = ' ';
    to[NPY_HEADER_BYTES - 1] = '\n';
}
