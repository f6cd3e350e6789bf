/* Doubling growth; one realloc site, so that running out of memory is noticed in one place. */
#include "base/buffer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

char *buffer_reserve(struct buffer *buffer, size_t more)
{
    if (buffer->broken || more > SIZE_MAX / 2 - buffer->length) {
        buffer->broken = true;
        return NULL;
    }
    size_t need = buffer->length + more;
    if (need > buffer->capacity) {
        size_t capacity = buffer->capacity < 64 ? 64 : buffer->capacity;
        while (capacity < need) { capacity *= 2; }
        char *data = realloc(buffer->data, capacity);
        if (!data) {
            buffer->broken = true;
            return NULL;
        }
        buffer->data = data;
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->length;
}

void buffer_append(struct buffer *buffer, const void *bytes, size_t length)
{
    if (length == 0) { return; }
    char *to = buffer_reserve(buffer, length);
    if (!to) { return; }
    memcpy(to, bytes, length);
    buffer->length += length;
}

void buffer_string(struct buffer *buffer, const char *string)
{
    buffer_append(buffer, string, strlen(string));
}

void buffer_format(struct buffer *buffer, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *to = length < 0 ? NULL : buffer_reserve(buffer, (size_t)length + 1);
    if (to) {
        vsnprintf(to, (size_t)length + 1, format, again);
        buffer->length += (size_t)length;
    }
    va_end(again);
}

void buffer_utf8(struct buffer *buffer, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length; at++) {
        size_t valid = utf8_valid_prefix(bytes + at, length - at);
        buffer_append(buffer, bytes + at, valid);
        at += valid;
        if (at < length) { buffer_string(buffer, UTF8_REPLACEMENT); }
    }
}

void buffer_consume(struct buffer *buffer, size_t length)
{
    if (length > buffer->length) { length = buffer->length; }
    if (length == 0) { return; }
    buffer->length -= length;
    memmove(buffer->data, buffer->data + length, buffer->length);
}

bool buffer_ok(const struct buffer *buffer)
{
    return !buffer->broken;
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}
