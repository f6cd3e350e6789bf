/* Reading files whole: the content, the cap, and paths that are no files. */
#include "harness.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

TEST(reads_behind_what_is_there)
{
    char path[] = "/tmp/sluice-file-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "world\0!", 7), 7);
    close(fd);
    struct buffer buffer = {0};
    struct err err;
    buffer_string(&buffer, "hello ");
    assert_int_equal(file_read(path, 7, &buffer, &err), STATUS_OK);
    assert_int_equal(buffer.length, 13);
    assert_memory_equal(buffer.data, "hello world\0!\0", 14);
    assert_int_equal(file_read(path, 6, &buffer, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(buffer.length, 13);
    unlink(path);
    buffer_free(&buffer);
}

TEST(refuses_what_is_no_file)
{
    struct buffer buffer = {0};
    struct err err;
    assert_int_equal(file_read("/nonexistent/x", 10, &buffer, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nonexistent/x"));
    assert_int_equal(file_read("/tmp", 10, &buffer, &err), STATUS_BAD_INPUT);
    assert_int_equal(buffer.length, 0);
    buffer_free(&buffer);
}
