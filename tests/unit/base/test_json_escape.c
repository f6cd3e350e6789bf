/* Escapes after a backslash: every letter, every code point with and without a pair, and invalid ones. Values that are
 * copied unchanged. */
#include "harness.h"

#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/utf8.h"

/* Compares, and frees the buffer. */
#define ASSERT_HOLDS(to, expected)                                                                                     \
    do {                                                                                                               \
        buffer_append(to, "", 1);                                                                                      \
        assert_string_equal((to)->data, expected);                                                                     \
        buffer_free(to);                                                                                               \
    } while (0)

/* Returns the escape and its bytes; `*taken` is its length in the text. */
static enum json_escape read_one(const char *text, char utf8[4], size_t *length, size_t *taken)
{
    struct lexer reader = {text, text + strlen(text)};
    enum json_escape read = lexer_read_escape(&reader, utf8, length);
    *taken = (size_t)(reader.at - text);
    return read;
}

TEST(letters)
{
    static const char known[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t length, taken;
    for (int c = 1; c < 256; c++) {
        char text[] = {(char)c, 'x', '\0'}, utf8[4];
        const char *at = strchr(known, c);
        assert_int_equal(read_one(text, utf8, &length, &taken), at == NULL ? JSON_ESCAPE_BAD : JSON_ESCAPE_OK);
        if (at == NULL) { continue; }
        assert_int_equal(taken, 1);
        assert_int_equal(length, 1);
        assert_int_equal(utf8[0], meanings[at - known]);
    }
}

TEST(code_points)
{
    for (uint32_t c = 0; c <= 0x10ffff; c += c < 0x10100 ? 1 : 37) {
        char text[32], utf8[4], wanted[4];
        size_t length, taken;
        uint32_t above = c - 0x10000;
        if (c < 0x10000) {
            snprintf(text, sizeof text, c % 2 ? "u%04xz" : "u%04Xz", c);
        } else {
            snprintf(text, sizeof text, "u%04x\\u%04xz", 0xd800 + (above >> 10), 0xdc00 + (above & 0x3ff));
        }
        bool half = c >= 0xd800 && c <= 0xdfff;
        assert_int_equal(read_one(text, utf8, &length, &taken), half ? JSON_ESCAPE_HALF : JSON_ESCAPE_OK);
        if (half) { continue; }
        assert_int_equal(taken, strlen(text) - 1);
        assert_int_equal(length, utf8_put(wanted, c));
        assert_memory_equal(utf8, wanted, length);
    }
}

TEST(what_is_cut_short)
{
    static const char *const bad[] = {"", "u", "u12", "u123", "u12g4", "u-123", "U0041"};
    static const char *const half[] = {"ud83d",    "ud83dx",      "ud83d\\",      "ud83d\\n",
                                       "ud83d\\u", "ud83d\\ude0", "ud83d\\u0041", "ud83d\\ud83d"};
    char utf8[4];
    size_t length, taken;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(read_one(bad[i], utf8, &length, &taken), JSON_ESCAPE_BAD);
    }
    for (size_t i = 0; i < sizeof half / sizeof half[0]; i++) {
        assert_int_equal(read_one(half[i], utf8, &length, &taken), JSON_ESCAPE_HALF);
    }
}

TEST(values_as_they_are)
{
    static const char *const good[] = {"1", " [1, -2.5e+3,\"a\\u0041\"] ", "{\"a\":{},\"b\":[[],null,true]}", "\"\""};
    static const char *const bad[] = {"",    "[",   "[1,]",    "{\"a\"}", "{a:1}",    "01x",
                                      "1 2", "\"a", "\"\\x\"", "nul",     "\"\xff\"", "[1}"};
    char deep[2 * JSON_DEPTH_MAX + 3] = {0};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) { assert_true(json_valid(good[i], strlen(good[i]))); }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) { assert_false(json_valid(bad[i], strlen(bad[i]))); }
    memset(deep, '[', JSON_DEPTH_MAX);
    memset(deep + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    assert_true(json_valid(deep, 2 * JSON_DEPTH_MAX));
    memset(deep, '[', JSON_DEPTH_MAX + 1);
    memset(deep + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    assert_false(json_valid(deep, sizeof deep - 1));

    static const char value[] = "[\n\"a\xc2\x9b\x7f\\n\",\t1]";
    struct buffer to = {0};
    assert_true(buffer_json_value(&to, value, sizeof value - 1));
    assert_false(buffer_json_value(&to, "[1", 2));
    ASSERT_HOLDS(&to, "[\"a\\u009b\\u007f\\n\",1]");
}

TEST(printed_by_a_format)
{
    struct buffer to = {0};
    buffer_json(&to, "{'a':%s,'b':%s,'c':%.*s,'d':%hhd,'e':%+lld,'f':%+lld,", "x\"", "", 2, "yes", true, -1ll, 7ll);
    buffer_json(&to, "'g':[%d,%lld,%u,%lu,%zu,%g]}", -3, -4ll, 5u, 6ul, (size_t)7, 0.1);
    ASSERT_HOLDS(&to, "{\"a\":\"x\\\"\",\"b\":null,\"c\":\"ye\",\"d\":true,\"e\":null,\"f\":7,"
                      "\"g\":[-3,-4,5,6,7,0.1]}");
}

TEST(a_format_inside_a_string)
{
    struct buffer to = {0};
    buffer_json(&to, "['%s of %.*s','%llu','%016llx%016llx','%s']", "a\n\x9b", 1, "\"b", 7ull, 255ull, 1ull, "");
    ASSERT_HOLDS(&to, "[\"a\\u000a\\ufffd of \\\"\",\"7\",\"00000000000000ff0000000000000001\",\"\"]");
}

TEST(numbers_with_a_precision)
{
    struct buffer to = {0};
    buffer_json(&to, "[%.4g,%.1f,%.*f,%g,%.3f,%.12g]", 1.0 / 3, 2.25, 2, 1.0, (double)NAN, (double)INFINITY, 3e20);
    ASSERT_HOLDS(&to, "[0.3333,2.2,1.00,null,null,3e+20]");
}

TEST(no_comma_before_the_first)
{
    struct buffer to = {0};
    buffer_json(&to, "{");
    buffer_json(&to, ",'a':[");
    for (int i = 0; i < 3; i++) { buffer_json(&to, ",%d", i); }
    buffer_json(&to, "]");
    buffer_json(&to, ",'b':%s}", "[");
    buffer_json(&to, ",");
    ASSERT_HOLDS(&to, "{\"a\":[0,1,2],\"b\":\"[\"},");
}
