/* Reads a multipart/form-data body that is in a file, a part at a time and without holding it in memory.
 * Source: RFC 7578, RFC 2046 section 5.1. Stricter: nothing before the first part or after the last. */
#ifndef HTTP_MULTIPART_H
#define HTTP_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { MULTIPART_BOUNDARY_MAX = 70, MULTIPART_HEAD_MAX = 4096 };

struct multipart {
    int fd;
    uint64_t at, size;
    char delimiter[4 + MULTIPART_BOUNDARY_MAX + 1]; /* CRLF, two dashes, the boundary */
    size_t delimiter_bytes;
};

/* A part; its content is the bytes [begin, end) of the file. */
struct multipart_part {
    char name[64];
    char filename[256]; /* "": not given */
    uint64_t begin, end;
};

/* Prepares to read the `size` bytes of `fd`, whose offset is not used. False: the type is not multipart/form-data with
 * a boundary. */
MUST_CHECK bool multipart_open(struct multipart *multipart, const char *content_type, int fd, uint64_t size);

/* Reads the head of the next part and finds its end; `*more` is false at the end of the body. Errors: STATUS_BAD_INPUT
 * saying what is wrong with the body; STATUS_IO, STATUS_NO_MEMORY. Thread: any. */
MUST_CHECK enum status multipart_next(struct multipart *multipart, struct multipart_part *out, bool *more,
                                      struct err *err);

#endif
