/* Stop strings, whatever the pieces in which a text comes. */
#include <stdlib.h>

#include "base/random.h"
#include "generate/text_out.h"
#include "harness.h"

/* What a text is when it has come in pieces of `piece` bytes; at each moment it must begin with what was sent. */
static void expect_text(const char *const *stops, unsigned stop_count, const char *text, const char *expected,
                        bool stopped)
{
    size_t length = strlen(text);
    for (size_t piece = 1; piece <= length; piece++) {
        struct text_out out = {.stops = stops, .stop_count = stop_count};
        size_t sent = 0;
        for (size_t at = 0; at < length && !out.stopped; at += piece) {
            buffer_append(&out.text, text + at, piece < length - at ? piece : length - at);
            text_out_check(&out, false);
            assert_true(out.ready >= sent && out.ready <= strlen(expected));
            assert_memory_equal(out.text.data, expected, out.ready);
            sent = out.ready;
        }
        text_out_check(&out, true);
        assert_int_equal(out.stopped, stopped);
        assert_int_equal(out.ready, strlen(expected));
        assert_int_equal(out.text.length, strlen(expected));
        assert_memory_equal(out.text.data, expected, strlen(expected));
        buffer_free(&out.text);
    }
}

TEST(a_text_ends_before_the_first_stop_string)
{
    static const char *const stops[] = {"###", "\nUser:"};
    expect_text(stops, 2, "one ## two", "one ## two", false);
    expect_text(stops, 2, "one ### two", "one ", true);
    expect_text(stops, 2, "one ####", "one ", true);
    expect_text(stops, 2, "a\nUser\nUser: b", "a\nUser", true);
    expect_text(stops, 2, "a\nUs", "a\nUs", false);
    expect_text(stops, 2, "###", "", true);
    expect_text(NULL, 0, "### ", "### ", false);
}

TEST(a_stop_string_inside_another_does_not_wait_for_it)
{
    static const char *const stops[] = {"abcde", "bc"};
    expect_text(stops, 2, "xabcx", "xa", true);
    expect_text(stops, 2, "xabd", "xabd", false);
}

TEST(characters_of_several_bytes_are_compared_whole)
{
    static const char *const stops[] = {"€"};
    expect_text(stops, 1, "a\xe2\x82\xad", "a\xe2\x82\xad", false);
    expect_text(stops, 1, "a€b", "a", true);
}

/* All that may be sent is sent: one byte more would be the beginning of a stop string. */
TEST(no_more_is_held_back_than_has_to_be)
{
    static const char *const stops[] = {"aab", "ba"};
    struct text_out out = {.stops = stops, .stop_count = 2};
    static const struct {
        char byte;
        size_t ready;
    } steps[] = {{'c', 1}, {'a', 1}, {'a', 1}, {'a', 2}, {'c', 5}, {'b', 5}, {'b', 6}, {'c', 8}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        buffer_append(&out.text, &steps[i].byte, 1);
        text_out_check(&out, false);
        assert_int_equal(out.ready, steps[i].ready);
    }
    buffer_free(&out.text);
}
