/* UTF-8 against a second, slow definition: decode by the bit layout, then refuse what RFC 3629 refuses. */
#include "harness.h"

#include <stdbool.h>

#include "base/utf8.h"

static bool allowed(uint32_t code_point)
{
    return code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF);
}

static void every_code_point_round_trips(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x110000; c++) {
        if (!allowed(c))
            continue;
        char bytes[4];
        size_t length = utf8_put(bytes, c);
        assert_true(utf8_valid(bytes, length));
        size_t at = 0;
        assert_int_equal(utf8_next(bytes, &at), c);
        assert_int_equal(at, length);
        assert_false(length > 1 && utf8_valid(bytes, length - 1));
    }
}

/* The shortest form that holds the value is the only one. */
static bool slow_valid(const unsigned char *s, size_t length)
{
    uint32_t value;
    size_t need = s[0] < 0x80             ? 1
                  : (s[0] & 0xE0) == 0xC0 ? 2
                  : (s[0] & 0xF0) == 0xE0 ? 3
                  : (s[0] & 0xF8) == 0xF0 ? 4
                                          : 0;
    if (need == 0 || need != length)
        return false;
    value = need == 1 ? s[0] : s[0] & (0x7Fu >> need);
    for (size_t i = 1; i < need; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return false;
        value = value << 6 | (s[i] & 0x3F);
    }
    size_t shortest = value < 0x80 ? 1 : value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
    return shortest == need && allowed(value);
}

static void every_lead_and_second_byte_agrees(void **state)
{
    (void)state;
    static const unsigned char tails[] = {0x00, 0x7F, 0x80, 0xBF, 0xC0, 0xFF};
    unsigned char s[4];
    for (unsigned a = 0; a < 256; a++)
        for (unsigned b = 0; b < 256; b++)
            for (size_t i = 0; i < sizeof tails; i++)
                for (size_t length = 1; length <= 4; length++) {
                    s[0] = (unsigned char)a, s[1] = (unsigned char)b, s[2] = tails[i], s[3] = 0x80;
                    bool whole = utf8_valid_prefix((char *)s, length) == length;
                    bool first = slow_valid(s, length);
                    if (first)
                        assert_true(whole);
                    if (whole && s[0] >= 0x80 && length == (s[0] >= 0xF0 ? 4u : s[0] >= 0xE0 ? 3u : 2u))
                        assert_true(first);
                }
}

static void prefix_stops_at_the_fault(void **state)
{
    (void)state;
    char text[64];
    for (size_t at = 0; at < 40; at++) {
        memset(text, 'a', sizeof text);
        text[at] = (char)0xFF;
        assert_int_equal(utf8_valid_prefix(text, 48), at);
    }
    assert_int_equal(utf8_valid_prefix("", 0), 0);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_code_point_round_trips),
    cmocka_unit_test(every_lead_and_second_byte_agrees),
    cmocka_unit_test(prefix_stops_at_the_fault),
};

TEST_MAIN(cases)
