/* The growable buffer: content survives growth, overflow marks it broken and nothing else. */
#include "harness.h"

#include "base/buffer.h"

TEST(grows_and_keeps_content)
{
    struct buffer buffer = {0};
    for (int i = 0; i < 5000; i++) { buffer_format(&buffer, "%d,", i); }
    assert_true(buffer_ok(&buffer));
    const char *at = buffer.data;
    for (int i = 0; i < 5000; i++) {
        char expected[16];
        int length = snprintf(expected, sizeof expected, "%d,", i);
        assert_memory_equal(at, expected, (size_t)length);
        at += length;
    }
    assert_ptr_equal(at, buffer.data + buffer.length);
    buffer_free(&buffer);
    assert_null(buffer.data);
}

TEST(consume_drops_the_front)
{
    struct buffer buffer = {0};
    buffer_string(&buffer, "hello world");
    buffer_consume(&buffer, 6);
    assert_int_equal(buffer.length, 5);
    assert_memory_equal(buffer.data, "world", 5);
    buffer_consume(&buffer, 100);
    assert_int_equal(buffer.length, 0);
    buffer_free(&buffer);
}

TEST(impossible_size_breaks_it)
{
    struct buffer buffer = {0};
    buffer_string(&buffer, "kept");
    assert_null(buffer_reserve(&buffer, SIZE_MAX - 2));
    assert_false(buffer_ok(&buffer));
    buffer_string(&buffer, "ignored");
    assert_int_equal(buffer.length, 4);
    buffer_free(&buffer);
}
