/* A growing run of bytes with one owner. Zero-initialise to start, buffer_free to end.
 *
 * Running out of memory does not fail each append: it marks the buffer broken, later appends do nothing, and the owner
 * checks once at the end (buffer_ok). */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct buffer {
    char *data; /* NULL while empty */
    size_t length;
    size_t capacity;
    bool broken; /* an allocation failed; the content is not complete */
};

/* Makes room for `more` bytes after the content and returns where they go, or NULL when memory ran out.
 * Owns: the caller writes there and adds what it wrote to `length`. */
char *buffer_reserve(struct buffer *buffer, size_t more);

/* Appends bytes. Errors: the buffer is broken. */
void buffer_append(struct buffer *buffer, const void *bytes, size_t length);

/* Appends a C string, without its NUL. Errors: the buffer is broken. */
void buffer_string(struct buffer *buffer, const char *string);

/* Appends formatted text of any length, without a NUL. Errors: the buffer is broken. */
void buffer_format(struct buffer *buffer, const char *format, ...) PRINTF_LIKE(2, 3);

/* Appends bytes of foreign names (of files, hosts, tenants) to a text format: each one that is not UTF-8 becomes
 * U+FFFD. Errors: the buffer is broken. */
void buffer_utf8(struct buffer *buffer, const char *bytes, size_t length);

/* Drops the first `length` bytes (at most all of them). */
void buffer_consume(struct buffer *buffer, size_t length);

/* Returns whether every append so far has succeeded. */
bool buffer_ok(const struct buffer *buffer);

/* Releases the memory and leaves an empty buffer. */
void buffer_free(struct buffer *buffer);

#endif
