/* UTF-8 against a second, slow definition: decode by the bit layout, then refuse what RFC 3629 refuses. */
#include "harness.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/utf8.h"

static bool allowed(uint32_t code_point)
{
    return code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF);
}

TEST(every_code_point_round_trips)
{
    for (uint32_t c = 0; c <= 0x110000; c++) {
        if (!allowed(c)) { continue; }
        char bytes[4];
        size_t length = utf8_put(bytes, c);
        assert_true(utf8_valid(bytes, length));
        size_t at = 0;
        assert_int_equal(utf8_next(bytes, &at), c);
        assert_int_equal(at, length);
        assert_false(length > 1 && utf8_valid(bytes, length - 1));
    }
}

/* Only the shortest form of a value is valid. */
static bool slow_valid(const unsigned char *s, size_t length)
{
    uint32_t value;
    size_t need = s[0] < 0x80             ? 1
                  : (s[0] & 0xE0) == 0xC0 ? 2
                  : (s[0] & 0xF0) == 0xE0 ? 3
                  : (s[0] & 0xF8) == 0xF0 ? 4
                                          : 0;
    if (need == 0 || need != length) { return false; }
    value = need == 1 ? s[0] : s[0] & (0x7Fu >> need);
    for (size_t i = 1; i < need; i++) {
        if ((s[i] & 0xC0) != 0x80) { return false; }
        value = value << 6 | (s[i] & 0x3F);
    }
    size_t shortest = value < 0x80 ? 1 : value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
    return shortest == need && allowed(value);
}

/* The valid prefix by the definition, code point by code point. */
static size_t slow_prefix(const char *text, size_t length)
{
    size_t at = 0;
    for (size_t step = 1; at < length && step > 0; at += step) {
        for (step = 4; step > 0; step--) {
            if (step <= length - at && slow_valid((const unsigned char *)text + at, step)) { break; }
        }
    }
    return at;
}

TEST(every_lead_and_second_byte_agrees)
{
    static const unsigned char tails[] = {0x00, 0x7F, 0x80, 0xBF, 0xC0, 0xFF};
    assert_int_equal(utf8_valid_prefix("", 0), 0);
    for (unsigned a = 0; a < 256; a++) {
        for (unsigned b = 0; b < 256; b++) {
            for (size_t i = 0; i < sizeof tails; i++) {
                const char s[4] = {(char)a, (char)b, (char)tails[i], (char)0x80};
                for (size_t length = 1; length <= 4; length++) {
                    assert_int_equal(utf8_valid_prefix(s, length), slow_prefix(s, length));
                }
            }
        }
    }
}

static uint32_t state_of_chance = 1;

static uint32_t some(uint32_t below)
{
    state_of_chance = state_of_chance * 1664525u + 1013904223u;
    return (state_of_chance >> 8) % below;
}

static uint32_t some_code_point(uint32_t kind)
{
    static const uint32_t first[] = {0, 0x80, 0x800, 0x10000, 0xD700, 0x10FF00};
    static const uint32_t count[] = {0x80, 0x780, 0xF800, 0x100000, 0x1000, 0x100};
    uint32_t c = first[kind] + some(count[kind]);
    return allowed(c) ? c : 'x';
}

/* Long texts of all widths, at any place in memory and of any length, whole and with a byte changed: the code that
 * looks at many bytes at once gives the same as the code that looks at one. The copy is exactly as long as the text, so
 * that a sanitizer sees reads beyond it. */
TEST(long_texts_are_judged_alike)
{
    for (int round = 0; round < 20000; round++) {
        char text[300];
        size_t length = 0, most = 1 + some(sizeof text - 4);
        uint32_t kinds = 1 + some(6), wide = some(3);
        while (length < most) {
            length += utf8_put(text + length, some_code_point(some(4) < wide ? some(kinds) : some(kinds > 3 ? 4 : 1)));
        }
        length -= some(4) == 0 ? some(4) % length : 0; /* cut in the middle of one */
        if (some(2) == 0) { text[some((uint32_t)length)] = (char)some(256); }
        char *copy = malloc(length);
        assert_non_null(copy);
        memcpy(copy, text, length);
        size_t expected = slow_prefix(copy, length), found = utf8_valid_prefix(copy, length);
        free(copy);
        if (found != expected) {
            fail_msg("round %d: %zu of %zu bytes where %zu are valid", round, found, length, expected);
        }
    }
}

/* Every pair of bytes at every place of two blocks, and every lead with every tail across the border of blocks. */
TEST(faults_are_found_wherever_they_stand)
{
    static const unsigned char tails[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xF4};
    static const char *const fill[] = {"a", "\xc3\xa9", "\xe6\x9d\xb1", "\xf0\x9f\x98\x80"};
    char text[160];
    for (size_t f = 0; f < 4; f++) {
        size_t width = strlen(fill[f]);
        for (size_t at = 20 * width; at < 24 * width + 40; at++) {
            for (unsigned lead = 0; lead < 256; lead++) {
                for (size_t t = 0; t < sizeof tails; t++) {
                    for (size_t i = 0; i < sizeof text; i++) { text[i] = fill[f][i % width]; }
                    text[at] = (char)lead;
                    text[at + 1] = (char)tails[t];
                    size_t length = sizeof text - sizeof text % width;
                    if (utf8_valid_prefix(text, length) != slow_prefix(text, length)) {
                        fail_msg("%02x %02x at %zu", lead, tails[t], at);
                    }
                }
            }
        }
    }
}

/* Each bad byte becomes U+FFFD; in a buffer of fixed size the text is cut, but never inside a code point. */
TEST(bytes_become_text)
{
    static const struct {
        const char *bytes, *text;
    } cases[] = {{"", ""},
                 {"plain", "plain"},
                 {"\xff", "\xef\xbf\xbd"},
                 {"a\xe9z", "a\xef\xbf\xbdz"},
                 {"\xe6\x97", "\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xe6\x97\xa5\xed\xa0\x80", "\xe6\x97\xa5\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xc3\xa9\xc3", "\xc3\xa9\xef\xbf\xbd"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buffer buffer = {0};
        size_t length = strlen(cases[i].bytes), whole = strlen(cases[i].text);
        buffer_utf8(&buffer, cases[i].bytes, length);
        assert_int_equal(buffer.length, whole);
        assert_true(whole == 0 || memcmp(buffer.data, cases[i].text, whole) == 0);
        buffer_free(&buffer);
        for (size_t size = length + 1; size <= whole + 2; size++) {
            char text[64];
            memcpy(text, cases[i].bytes, length + 1);
            memset(text + size, '#', sizeof text - size);
            utf8_mend(text, size);
            assert_true(strlen(text) < size && text[size] == '#');
            assert_true(utf8_valid(text, strlen(text)));
            assert_memory_equal(text, cases[i].text, strlen(text));
            assert_true(size <= whole ? strlen(text) + 3 >= size - 1 : strlen(text) == whole);
        }
    }
}
