/* What stands behind a backslash: every letter, every code point with and without a pair, and what is none of them. */
#include "harness.h"

#include <stdio.h>

#include "base/json.h"
#include "base/utf8.h"

/* The escape, and its bytes; `*taken` is how much of the text it was. */
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
