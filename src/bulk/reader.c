/* One buffer: taken from at the front, filled at the back. */
#include "bulk/reader.h"

#include <string.h>

enum { PIECE_BYTES = 1 << 18 };

enum status reader_open(struct reader *reader, const char *path, size_t limit, const volatile sig_atomic_t *stop,
                        struct err *err)
{
    *reader = (struct reader){.limit = limit};
    return stream_open(path, stop, &reader->stream, err);
}

void reader_close(struct reader *reader)
{
    stream_close(reader->stream);
    reader->stream = NULL;
    buffer_free(&reader->buffer);
}

static void skip_byte_order_mark(struct reader *reader)
{
    if (reader->buffer.length >= 3 && memcmp(reader->buffer.data, "\xef\xbb\xbf", 3) == 0)
        reader->at = 3;
    reader->begun = true;
}

enum status reader_more(struct reader *reader, struct err *err)
{
    buffer_consume(&reader->buffer, reader->at);
    reader->at = 0;
    char *to = buffer_reserve(&reader->buffer, PIECE_BYTES);
    if (to == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory to read %s", stream_name(reader->stream));
    size_t got;
    if (stream_read(reader->stream, to, PIECE_BYTES, &got, err) != STATUS_OK)
        return err_prefix(err, "line %llu", (unsigned long long)reader->line + 1);
    reader->buffer.length += got;
    reader->ended = got == 0;
    if (!reader->begun && (reader->ended || reader->buffer.length >= 3))
        skip_byte_order_mark(reader);
    return STATUS_OK;
}

struct record reader_ahead(struct reader *reader)
{
    bool hidden = !reader->begun; /* it may still be a byte order mark */
    char *data = reader->buffer.data;
    return (struct record){.bytes = data == NULL ? NULL : data + reader->at,
                           .length = hidden ? 0 : reader->buffer.length - reader->at,
                           .line = reader->line + 1};
}

void reader_take(struct reader *reader, size_t length, uint64_t lines)
{
    reader->at += length;
    reader->line += lines;
}

/* Drops what lies ahead, up to and with the next line feed. */
static enum status skip_line(struct reader *reader, struct err *err)
{
    for (;;) {
        struct record ahead = reader_ahead(reader);
        char *feed = ahead.length == 0 ? NULL : memchr(ahead.bytes, '\n', ahead.length);
        if (feed != NULL) {
            reader_take(reader, (size_t)(feed - ahead.bytes) + 1, 1);
            return STATUS_OK;
        }
        reader_take(reader, ahead.length, 0);
        if (reader->ended)
            return STATUS_OK;
        TRY(reader_more(reader, err));
    }
}

static enum status too_large(struct reader *reader, struct record *out, struct err *err)
{
    static char nothing[1];
    *out = (struct record){.bytes = nothing, .line = reader->line + 1, .too_large = true};
    return skip_line(reader, err);
}

enum status reader_line(struct reader *reader, struct record *out, struct err *err)
{
    size_t searched = 0;
    for (;;) {
        struct record ahead = reader_ahead(reader);
        char *feed = ahead.length > searched ? memchr(ahead.bytes + searched, '\n', ahead.length - searched) : NULL;
        size_t length = feed == NULL ? ahead.length : (size_t)(feed - ahead.bytes);
        if (length > reader->limit + 1) /* a carriage return does not count */
            return too_large(reader, out, err);
        if (feed == NULL && !reader->ended) {
            searched = ahead.length;
            TRY(reader_more(reader, err));
            continue;
        }
        *out = ahead;
        if (feed == NULL && ahead.length == 0) {
            out->bytes = NULL;
            return STATUS_OK;
        }
        reader_take(reader, length + (feed != NULL), feed != NULL);
        out->length = length > 0 && ahead.bytes[length - 1] == '\r' ? length - 1 : length;
        out->too_large = out->length > reader->limit;
        return STATUS_OK;
    }
}

enum status reader_whole(struct reader *reader, struct record *out, struct err *err)
{
    *out = (struct record){0};
    if (reader->ended)
        return STATUS_OK;
    while (!reader->ended && reader->buffer.length - reader->at <= reader->limit)
        TRY(reader_more(reader, err));
    *out = reader_ahead(reader);
    out->too_large = out->length > reader->limit;
    reader->ended = true;
    return STATUS_OK;
}
