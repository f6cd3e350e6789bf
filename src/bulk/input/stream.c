/* Several gzip members or zstd frames in a row are one text, as for gunzip and unzstd. */
#include "bulk/input/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/utf8.h"

enum { RAW_BYTES = 1 << 17, MAGIC_BYTES = 4, LOOK_MS = 100 };

struct stream {
    int fd;
    const char *name;
    const volatile sig_atomic_t *stop;
    enum packing { UNKNOWN, PLAIN, GZIP, ZSTD } packing;
    unsigned char raw[RAW_BYTES];
    size_t raw_at, raw_end;
    uint64_t raw_read;
    bool raw_ended;
    bool between; /* between members or frames: the file may end here */
    z_stream zlib;
    ZSTD_DStream *zstd;
};

/* Waits until there is something to read; false once it was stopped. */
static bool wait_readable(const struct stream *stream)
{
    struct pollfd input = {.fd = stream->fd, .events = POLLIN};
    while (__atomic_load_n(stream->stop, __ATOMIC_RELAXED) == 0) {
        int ready = poll(&input, 1, LOOK_MS);
        if (ready > 0 || (ready < 0 && errno != EINTR)) { return true; } /* an error is told by the read */
    }
    return false;
}

/* Reads more into `raw`. */
static enum status fill_raw(struct stream *stream, struct err *err)
{
    if (stream->raw_at > 0) {
        memmove(stream->raw, stream->raw + stream->raw_at, stream->raw_end - stream->raw_at);
        stream->raw_end -= stream->raw_at;
        stream->raw_at = 0;
    }
    ssize_t got;
    do {
        if (stream->stop && !wait_readable(stream)) {
            return err_set(err, STATUS_UNAVAILABLE, "reading %s was stopped", stream->name);
        }
        got = read(stream->fd, stream->raw + stream->raw_end, RAW_BYTES - stream->raw_end);
    } while (got < 0 && errno == EINTR);
    if (got < 0) { return err_set_errno(err, "cannot read %s", stream->name); }
    stream->raw_end += (size_t)got;
    stream->raw_read += (size_t)got;
    stream->raw_ended = got == 0;
    return STATUS_OK;
}

static enum status broken(const struct stream *stream, const char *what, struct err *err)
{
    uint64_t at = stream->raw_read - (stream->raw_end - stream->raw_at);
    return err_set(err, STATUS_BAD_INPUT, "%s byte %llu: broken %s: %s", stream->name, (unsigned long long)at,
                   stream->packing == GZIP ? "gzip" : "zstd", what);
}

static enum status gzip_unpack(struct stream *stream, char *to, size_t room, size_t *got, struct err *err)
{
    if (stream->between) { /* only another member may follow, or zeros that fill a block */
        while (stream->raw_at < stream->raw_end && stream->raw[stream->raw_at] == 0) { stream->raw_at++; }
        if (stream->raw_at == stream->raw_end) { return STATUS_OK; }
    }
    stream->between = false;
    z_stream *zlib = &stream->zlib;
    zlib->next_in = stream->raw + stream->raw_at;
    zlib->avail_in = (uInt)(stream->raw_end - stream->raw_at);
    zlib->next_out = (Bytef *)to;
    zlib->avail_out = (uInt)room;
    int code = inflate(zlib, Z_NO_FLUSH);
    stream->raw_at = stream->raw_end - zlib->avail_in;
    *got = room - zlib->avail_out;
    if (code == Z_STREAM_END) {
        stream->between = true;
        code = inflateReset(zlib);
    }
    if (code == Z_MEM_ERROR) { return err_set(err, STATUS_NO_MEMORY, "no memory to unpack %s", stream->name); }
    if (code != Z_OK && code != Z_BUF_ERROR) {
        return broken(stream, zlib->msg ? zlib->msg : "it cannot be unpacked", err);
    }
    return STATUS_OK;
}

static enum status zstd_unpack(struct stream *stream, char *to, size_t room, size_t *got, struct err *err)
{
    ZSTD_inBuffer in = {stream->raw + stream->raw_at, stream->raw_end - stream->raw_at, 0};
    ZSTD_outBuffer out = {to, room, 0};
    size_t code = ZSTD_decompressStream(stream->zstd, &out, &in);
    stream->raw_at += in.pos;
    *got = out.pos;
    if (ZSTD_isError(code)) { return broken(stream, ZSTD_getErrorName(code), err); }
    if (in.pos > 0 || out.pos > 0) { stream->between = code == 0; }
    return STATUS_OK;
}

static enum status find_packing(struct stream *stream, struct err *err)
{
    const unsigned char *magic = stream->raw;
    while (stream->raw_end < MAGIC_BYTES && !stream->raw_ended) { TRY(fill_raw(stream, err)); }
    memset(stream->raw + stream->raw_end, 0, stream->raw_end < MAGIC_BYTES ? MAGIC_BYTES - stream->raw_end : 0);
    bool frame = magic[0] == 0x28 && magic[1] == 0xb5 && magic[2] == 0x2f && magic[3] == 0xfd;
    bool skippable = (magic[0] & 0xf0) == 0x50 && magic[1] == 0x2a && magic[2] == 0x4d && magic[3] == 0x18;
    bool gzip = magic[0] == 0x1f && magic[1] == 0x8b && magic[2] == 8, zstd = frame || skippable;
    if (gzip && inflateInit2(&stream->zlib, 15 + 16) != Z_OK) { /* the largest window; a gzip header */
        return err_set(err, STATUS_NO_MEMORY, "no memory to unpack %s", stream->name);
    }
    if (zstd && !(stream->zstd = ZSTD_createDStream())) {
        return err_set(err, STATUS_NO_MEMORY, "no memory to unpack %s", stream->name);
    }
    stream->packing = gzip ? GZIP : zstd ? ZSTD : PLAIN;
    return STATUS_OK;
}

/* Called with bytes in `raw`, or at the end of the file. */
static enum status unpack(struct stream *stream, char *to, size_t room, size_t *got, struct err *err)
{
    if (stream->packing == GZIP) { return gzip_unpack(stream, to, room, got, err); }
    if (stream->packing == ZSTD) { return zstd_unpack(stream, to, room, got, err); }
    size_t have = stream->raw_end - stream->raw_at;
    *got = have < room ? have : room;
    memcpy(to, stream->raw + stream->raw_at, *got);
    stream->raw_at += *got;
    return STATUS_OK;
}

enum status stream_open(const char *path, const volatile sig_atomic_t *stop, struct stream **out, struct err *err)
{
    bool standard = strcmp(path, "-") == 0;
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream) { return err_set(err, STATUS_NO_MEMORY, "no memory to read %s", path); }
    stream->name = standard ? "standard input" : path;
    stream->stop = stop;
    /* One that can be stopped does not wait for the writer of a named pipe here, but where it looks at `stop`. */
    stream->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | (stop ? O_NONBLOCK : 0));
    if (stream->fd < 0) {
        free(stream);
        return err_set_errno(err, "cannot open %s", path);
    }
    if (!standard && stop) { fcntl(stream->fd, F_SETFL, fcntl(stream->fd, F_GETFL) & ~O_NONBLOCK); }
    *out = stream;
    return STATUS_OK;
}

void stream_close(struct stream *stream)
{
    if (!stream) { return; }
    if (stream->packing == GZIP) { inflateEnd(&stream->zlib); }
    ZSTD_freeDStream(stream->zstd);
    if (stream->fd > STDIN_FILENO) { close(stream->fd); }
    free(stream);
}

void stream_watch(struct stream *stream, const volatile sig_atomic_t *stop)
{
    stream->stop = stop;
}

const char *stream_name(const struct stream *stream)
{
    return stream->name;
}

uint64_t stream_raw_bytes(const struct stream *stream)
{
    return stream->raw_read;
}

enum status stream_read(struct stream *stream, char *to, size_t room, size_t *got, struct err *err)
{
    *got = 0;
    if (stream->packing == UNKNOWN) { TRY(find_packing(stream, err)); }
    for (;;) {
        size_t before = stream->raw_at;
        TRY(unpack(stream, to, room, got, err)); /* the decoder may still hold unpacked bytes */
        if (*got > 0) { return STATUS_OK; }
        if (stream->raw_at > before && stream->raw_at < stream->raw_end) {
            continue; /* an empty member; another one follows */
        }
        if (stream->raw_ended) { break; }
        TRY(fill_raw(stream, err));
    }
    return stream->packing != PLAIN && !stream->between ? broken(stream, "it ends early", err) : STATUS_OK;
}

/* --- The reader: one buffer, consumed at the front and filled at the back. --- */

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

enum status reader_more(struct reader *reader, struct err *err)
{
    buffer_consume(&reader->buffer, reader->at);
    reader->at = 0;
    char *to = buffer_reserve(&reader->buffer, PIECE_BYTES);
    if (!to) { return err_set(err, STATUS_NO_MEMORY, "no memory to read %s", stream_name(reader->stream)); }
    size_t got;
    if (stream_read(reader->stream, to, PIECE_BYTES, &got, err) != STATUS_OK) {
        return err_prefix(err, "line %llu", (unsigned long long)reader->line + 1);
    }
    reader->buffer.length += got;
    reader->got += got;
    reader->ended = got == 0;
    if (reader->most > 0 && reader->got > reader->most) {
        return err_set(err, STATUS_BAD_INPUT, "%s has more than %llu bytes when it is unpacked",
                       stream_name(reader->stream), (unsigned long long)reader->most);
    }
    if (!reader->begun && (reader->ended || reader->buffer.length >= 3)) {
        reader->begun = true;
        bool mark = reader->buffer.length >= 3 && memcmp(reader->buffer.data, "\xef\xbb\xbf", 3) == 0;
        reader->at = mark ? 3 : 0;
    }
    return STATUS_OK;
}

struct record reader_ahead(struct reader *reader)
{
    bool hidden = !reader->begun; /* this may be part of a byte order mark */
    char *data = reader->buffer.data;
    return (struct record){.bytes = data ? data + reader->at : NULL,
                           .length = hidden ? 0 : reader->buffer.length - reader->at,
                           .line = reader->line + 1};
}

void reader_take(struct reader *reader, size_t length, uint64_t lines)
{
    reader->at += length;
    reader->line += lines;
}

/* Drops everything up to and including the next line feed. */
static enum status skip_line(struct reader *reader, struct err *err)
{
    for (;;) {
        struct record ahead = reader_ahead(reader);
        char *feed = ahead.length == 0 ? NULL : memchr(ahead.bytes, '\n', ahead.length);
        if (feed) {
            reader_take(reader, (size_t)(feed - ahead.bytes) + 1, 1);
            return STATUS_OK;
        }
        reader_take(reader, ahead.length, 0);
        if (reader->ended) { return STATUS_OK; }
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
        size_t length = feed ? (size_t)(feed - ahead.bytes) : ahead.length;
        if (length > reader->limit + 1) { /* a carriage return does not count */
            return too_large(reader, out, err);
        }
        if (!feed && !reader->ended) {
            searched = ahead.length;
            TRY(reader_more(reader, err));
            continue;
        }
        *out = ahead;
        if (!feed && ahead.length == 0) {
            out->bytes = NULL;
            return STATUS_OK;
        }
        reader_take(reader, length + (feed != NULL), feed != NULL);
        out->length = length > 0 && ahead.bytes[length - 1] == '\r' ? length - 1 : length;
        out->bytes[out->length] = '\0'; /* over the line's end, or into the room of the read that found no more */
        out->too_large = out->length > reader->limit;
        return STATUS_OK;
    }
}

enum status reader_text(struct reader *reader, struct record *out, struct err *err)
{
    TRY(reader_line(reader, out, err));
    const char *name = stream_name(reader->stream);
    size_t valid = out->bytes ? utf8_valid_prefix(out->bytes, out->length) : 0;
    if (out->too_large) {
        return err_set(err, STATUS_BAD_INPUT, "%s line %llu: longer than %zu bytes", name,
                       (unsigned long long)out->line, reader->limit);
    }
    if (out->bytes && valid < out->length) {
        return err_set(err, STATUS_BAD_INPUT, "%s line %llu: not UTF-8 at byte %zu; convert the file first (iconv)",
                       name, (unsigned long long)out->line, valid);
    }
    return STATUS_OK;
}

enum status reader_whole(struct reader *reader, struct record *out, struct err *err)
{
    *out = (struct record){0};
    if (reader->whole) { return STATUS_OK; }
    while (!reader->ended && reader->buffer.length - reader->at <= reader->limit) { TRY(reader_more(reader, err)); }
    *out = reader_ahead(reader);
    out->too_large = out->length > reader->limit;
    reader->ended = reader->whole = true;
    return STATUS_OK;
}
