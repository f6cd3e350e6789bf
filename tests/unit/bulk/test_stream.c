/* Packed files: their content, several members, and the place where they are broken; and lines out of them with a
 * bound. */
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "bulk/input/stream.h"

static char path[64];

static void write_file(const void *bytes, size_t length)
{
    strcpy(path, "/tmp/sluice-stream-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, length), length);
    close(fd);
}

static size_t pack_gzip(const char *text, size_t length, char *to, size_t room)
{
    z_stream zlib = {0};
    assert_int_equal(deflateInit2(&zlib, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    zlib.next_in = (Bytef *)(uintptr_t)text;
    zlib.avail_in = (uInt)length;
    zlib.next_out = (Bytef *)to;
    zlib.avail_out = (uInt)room;
    assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
    deflateEnd(&zlib);
    return room - zlib.avail_out;
}

/* The whole content; *status is how it ended. */
static size_t read_all(char *to, size_t room, enum status *status, struct err *err)
{
    struct stream *stream;
    size_t length = 0, got = 1;
    *status = stream_open(path, NULL, &stream, err);
    assert_int_equal(*status, STATUS_OK);
    while (*status == STATUS_OK && got > 0) {
        *status = stream_read(stream, to + length, room - length < 7 ? room - length : 7, &got, err);
        length += *status == STATUS_OK ? got : 0;
    }
    stream_close(stream);
    unlink(path);
    return length;
}

/* Writes a file, and expects this content of it. */
static void expect_content(const char *bytes, size_t length, const char *content)
{
    char back[512];
    enum status status;
    struct err err;
    write_file(bytes, length);
    assert_int_equal(read_all(back, sizeof back, &status, &err), strlen(content));
    assert_int_equal(status, STATUS_OK);
    assert_memory_equal(back, content, strlen(content));
}

#define TEXT "one line\nand another one, and another one, and another one\n"

static const char text[] = TEXT;

TEST(plain_gzip_and_zstd)
{
    char packed[512];
    expect_content(text, sizeof text - 1, text);
    size_t length = pack_gzip(text, sizeof text - 1, packed, sizeof packed);
    length += pack_gzip("", 0, packed + length, sizeof packed - length);
    length += pack_gzip("", 0, packed + length, sizeof packed - length);
    length += pack_gzip("end", 3, packed + length, sizeof packed - length);
    memset(packed + length, 0, 10); /* padding */
    expect_content(packed, length + 10, TEXT "end");
    length = ZSTD_compress(packed, sizeof packed, text, sizeof text - 1, 3);
    length += ZSTD_compress(packed + length, sizeof packed - length, "end", 3, 3);
    expect_content(packed, length, TEXT "end");
}

TEST(tiny_files)
{
    static const char *const tiny[] = {"", "\x1f", "\x1f\x8b", "\x1f\x8b\x28"};
    for (size_t length = 0; length < 4; length++) { expect_content(tiny[length], length, tiny[length]); }
}

/* A file that is cut anywhere, or has a flipped bit, gives an error that names file and byte; a bit in the head of a
 * member may give other plain text. The whole text never comes without an error. */
TEST(broken_files_are_errors)
{
    char packed[512], back[4096];
    enum status status;
    struct err err;
    size_t lengths[2] = {pack_gzip(text, sizeof text - 1, packed, 256)};
    lengths[1] = ZSTD_compress(packed + 256, 256, text, sizeof text - 1, 3);
    for (int kind = 0; kind < 2; kind++) {
        for (size_t cut = 4; cut < lengths[kind]; cut++) {
            write_file(packed + (size_t)256 * (size_t)kind, cut);
            char name[64];
            strcpy(name, path);
            read_all(back, sizeof back, &status, &err);
            assert_int_equal(status, STATUS_BAD_INPUT);
            assert_non_null(strstr(err.message, name));
            assert_non_null(strstr(err.message, "ends early"));
        }
    }
    packed[lengths[0] - 6] ^= 1; /* the checksum */
    write_file(packed, lengths[0]);
    read_all(back, sizeof back, &status, &err);
    assert_int_equal(status, STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "broken gzip"));
}

TEST(lines_have_a_bound)
{
    struct reader reader;
    struct record record;
    struct err err;
    const char lines[] = "\xef\xbb\xbf"
                         "12345\r\n123456\n\n12345678901234567890\nlast";
    static const struct {
        const char *text;
        uint64_t line;
        bool too_large;
    } expected[] = {{"12345", 1, false}, {"", 2, true}, {"", 3, false}, {"", 4, true}, {"last", 5, false}};
    write_file(lines, sizeof lines - 1);
    assert_int_equal(reader_open(&reader, path, 5, NULL, &err), STATUS_OK);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(reader_line(&reader, &record, &err), STATUS_OK);
        assert_non_null(record.bytes);
        assert_int_equal(record.line, expected[i].line);
        assert_int_equal(record.too_large, expected[i].too_large);
        if (!record.too_large) { assert_int_equal(record.length, strlen(expected[i].text)); }
        if (!record.too_large) { assert_memory_equal(record.bytes, expected[i].text, record.length + 1); }
    }
    assert_int_equal(reader_line(&reader, &record, &err), STATUS_OK);
    assert_null(record.bytes);
    reader_close(&reader);
    unlink(path);
}

static void *set_flag(void *context)
{
    __atomic_store_n((sig_atomic_t *)context, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* A read of a pipe to which nobody writes ends once another thread sets the flag. */
TEST(a_read_that_waits_can_be_stopped)
{
    sig_atomic_t never = 0, stop = 0;
    int ends[2];
    char name[32], to[8];
    size_t got;
    pthread_t thread;
    struct stream *stream;
    struct err err;
    assert_int_equal(pipe(ends), 0);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    assert_int_equal(stream_open(name, &never, &stream, &err), STATUS_OK);
    assert_int_equal(write(ends[1], "begun", 5), 5);
    assert_int_equal(stream_read(stream, to, sizeof to, &got, &err), STATUS_OK);
    assert_int_equal(got, 5);
    stream_watch(stream, &stop);
    assert_int_equal(pthread_create(&thread, NULL, set_flag, &stop), 0);
    assert_int_equal(stream_read(stream, to, sizeof to, &got, &err), STATUS_UNAVAILABLE);
    pthread_join(thread, NULL);
    stream_close(stream);
    close(ends[0]);
    close(ends[1]);
}

/* A line of 64 MB is skipped with the memory of one piece. */
TEST(long_lines_take_no_memory)
{
    strcpy(path, "/tmp/sluice-stream-XXXXXX");
    int fd = mkstemp(path);
    assert_int_equal(ftruncate(fd, 64 << 20), 0); /* NULs */
    assert_int_equal(pwrite(fd, "\nend\n", 5, 64 << 20), 5);
    close(fd);
    struct reader reader;
    struct record record;
    struct err err;
    assert_int_equal(reader_open(&reader, path, 1 << 20, NULL, &err), STATUS_OK);
    assert_int_equal(reader_line(&reader, &record, &err), STATUS_OK);
    assert_true(record.too_large);
    assert_in_range(reader.buffer.capacity, 1, 4 << 20);
    assert_int_equal(reader_line(&reader, &record, &err), STATUS_OK);
    assert_int_equal(record.line, 2);
    assert_memory_equal(record.bytes, "end", 3);
    reader_close(&reader);
    unlink(path);
}
