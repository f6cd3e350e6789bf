/* A header is a magic number, a version, a length and a dictionary as Python writes it. */
#include "bulk/output/npy.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

void npy_header(char to[NPY_HEADER_BYTES], const char *type, uint64_t rows, uint32_t dim)
{
    static const char version[4] = {1, 0, NPY_HEADER_BYTES - 10, 0};
    char columns[16] = "";
    if (dim > 0)
        snprintf(columns, sizeof columns, " %u", dim);
    memset(to, ' ', NPY_HEADER_BYTES);
    memcpy(to, magic, sizeof magic);
    memcpy(to + sizeof magic, version, sizeof version);
    int used = snprintf(to + 10, NPY_HEADER_BYTES - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%llu,%s), }",
                        type, (unsigned long long)rows, columns);
    to[10 + used] = ' ';
    to[NPY_HEADER_BYTES - 1] = '\n';
}

enum status npy_read(const char *bytes, size_t length, const char *name, struct npy *out, struct err *err)
{
    char text[NPY_HEADER_MOST] = "", order[6] = "", *end = text;
    int at = 0;
    *out = (struct npy){0};
    if (length < 10 || memcmp(bytes, magic, sizeof magic) != 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s is not an .npy file", name);
    }
    size_t size = (size_t)(unsigned char)bytes[8] | (size_t)(unsigned char)bytes[9] << 8;
    if (bytes[6] != 1 || size >= sizeof text) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s: version %d of the .npy format, or a header of %zu bytes, is not read", name, bytes[6],
                       size);
    }
    if (size > length - 10) {
        return err_set(err, STATUS_BAD_INPUT, "%s ends within its header", name);
    }
    memcpy(text, bytes + 10, size);
    bool good =
        sscanf(text, "{'descr': '%15[^']', 'fortran_order': %5[a-zA-Z], 'shape': (%n", out->type, order, &at) == 2;
    out->fortran = strcmp(order, "True") == 0;
    good = good && at > 0 && (out->fortran || strcmp(order, "False") == 0);
    for (end = text + at; good && isdigit((unsigned char)*end); end += strspn(end, ", ")) {
        errno = 0;
        uint64_t rows = strtoull(end, &end, 10);
        good = errno == 0 && out->dimensions < NPY_DIMENSIONS_MAX;
        if (good) {
            out->shape[out->dimensions++] = rows;
        }
    }
    if (!good || *end != ')') {
        return err_set(err, STATUS_BAD_INPUT, "%s: its header is not that of an array of plain numbers", name);
    }
    out->data = 10 + size;
    return STATUS_OK;
}
