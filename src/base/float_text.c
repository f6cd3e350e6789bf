/* JSON is the default encoding and floats as text are the most expensive step of a reply, hence our own formatter.
 *
 * A float gets the fewest digits that still read back to it. Every decimal within its reach, half the distance to its
 * neighbours, reads back to it. A power of ten brings the reach into (0.5, 5]. There the nearest integer always reads
 * back, the nearest one that ends in 0 may, and no rounder number needs to be tried. Float, reach and most powers are
 * exact in double and the products are off by less than 1e-7, so the reach is reduced by as much; that also keeps the
 * text away from the middle between two floats, where readers that go through double would err. */
#include "base/float_text.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { DIGITS = 9, POWER_MIN = -31, POWER_MAX = 46 };

/* Powers of ten, from POWER_MIN on. */
static const double powers[POWER_MAX - POWER_MIN + 1] = {
    1e-31, 1e-30, 1e-29, 1e-28, 1e-27, 1e-26, 1e-25, 1e-24, 1e-23, 1e-22, 1e-21, 1e-20, 1e-19, 1e-18, 1e-17, 1e-16,
    1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9,  1e-8,  1e-7,  1e-6,  1e-5,  1e-4,  1e-3,  1e-2,  1e-1,  1e0,
    1e1,   1e2,   1e3,   1e4,   1e5,   1e6,   1e7,   1e8,   1e9,   1e10,  1e11,  1e12,  1e13,  1e14,  1e15,  1e16,
    1e17,  1e18,  1e19,  1e20,  1e21,  1e22,  1e23,  1e24,  1e25,  1e26,  1e27,  1e28,  1e29,  1e30,  1e31,  1e32,
    1e33,  1e34,  1e35,  1e36,  1e37,  1e38,  1e39,  1e40,  1e41,  1e42,  1e43,  1e44,  1e45,  1e46,
};

/* A number of at most nine digits, `places` of them after the point. */
struct decimal {
    uint32_t digits;
    uint32_t ends_in_zero; /* 0 or 1 */
    int places;
};

/* Returns the shortest decimal of a positive finite value. */
static struct decimal find_shortest(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits--;
    float below; /* at least as near as the next float above */
    memcpy(&below, &bits, sizeof(below));
    double reach = ((double)value - (double)below) / 2; /* a power of two */
    uint64_t reach_bits;
    memcpy(&reach_bits, &reach, sizeof(reach_bits));
    int binary = (int)(reach_bits >> 52) - 1023;
    int places = ((-1 - binary) * 1233 + (64 << 12)) / 4096 - 63; /* floor(log10(0.5 / reach)) + 1 */
    double power = powers[places - POWER_MIN], scaled = value * power;
    uint32_t nearest = (uint32_t)(scaled + 0.5), ten = (uint32_t)(scaled * 0.1 + 0.5) * 10;
    uint32_t take_ten = fabs(ten - scaled) < reach * power - 1e-7; /* unpredictable, hence no branch */
    return (struct decimal){nearest ^ ((nearest ^ ten) & -take_ten), take_ten, places};
}

/* Writes nine digits, zero-padded in front, and returns how many remain without trailing zeros. Eight of them are split
 * within one word: into halves, quarters and single digits. */
static int put_digits(char *to, struct decimal decimal)
{
    uint32_t first = decimal.digits / 100000000, low = decimal.digits % 100000000;
    uint64_t split = low / 10000 | (uint64_t)(low % 10000) << 32;
    uint64_t hundreds = (split * 10486 >> 20) & 0x7f0000007full;
    split = hundreds | (split - 100 * hundreds) << 16;
    uint64_t tens = (split * 103 >> 10) & 0xf000f000f000full;
    split = tens | (split - 10 * tens) << 8;
    uint64_t text = split | 0x3030303030303030ull;
    const char eight[8] = {(char)text,         (char)(text >> 8),  (char)(text >> 16), (char)(text >> 24),
                           (char)(text >> 32), (char)(text >> 40), (char)(text >> 48), (char)(text >> 56)};
    to[0] = (char)('0' + first);
    memcpy(to + 1, eight, sizeof(eight));
    int count = DIGITS - (int)decimal.ends_in_zero;
    if (split >> 48 == 0) {
        while (count > 1 && to[count - 1] == '0') { count--; }
    }
    return count;
}

/* Writes a value below one, as nearly all floats of a normalised vector are: the digits go straight to their place. */
static char *put_fraction(char *to, struct decimal decimal)
{
    memset(to, '0', 8);
    char *digits = to + 2 + decimal.places - DIGITS; /* with eight places, the point replaces their leading zero */
    char *end = digits + put_digits(digits, decimal);
    to[1] = '.';
    return end;
}

static char *put_scientific(char *to, const char *digits, int count, int exponent)
{
    *to++ = digits[0];
    if (count > 1) {
        *to++ = '.';
        memcpy(to, digits + 1, (size_t)count - 1);
        to += count - 1;
    }
    unsigned size = (unsigned)(exponent < 0 ? -exponent : exponent);
    *to++ = 'e';
    *to++ = exponent < 0 ? '-' : '+';
    *to++ = (char)('0' + size / 10 % 10);
    *to++ = (char)('0' + size % 10);
    return to;
}

static char *put_plain(char *to, const char *digits, int count, int exponent)
{
    int whole = exponent + 1;
    memcpy(to, digits, DIGITS); /* trailing zeros are included: 100 keeps its two */
    if (count <= whole) { return to + whole; }
    to[whole] = '.';
    memcpy(to + whole + 1, digits + whole, (size_t)(count - whole));
    return to + count + 1;
}

/* Writes any other value, which is d.dddddddd * 10^exponent. */
static char *put_other(char *to, struct decimal decimal)
{
    char digits[DIGITS];
    int shift = 0;
    for (; decimal.digits < 100000000; decimal.digits *= 10) { shift++; }
    decimal.ends_in_zero |= shift > 0;
    int count = put_digits(digits, decimal);
    int exponent = DIGITS - 1 - shift - decimal.places;
    bool plain = exponent >= 0 && exponent < DIGITS;
    return plain ? put_plain(to, digits, count, exponent) : put_scientific(to, digits, count, exponent);
}

size_t float_text_put(char *to, float value)
{
    char *at = to + (signbit(value) != 0);
    *to = '-';
    value = fabsf(value);
    if (value == 0) {
        memcpy(at, "0.0", 3); /* "-0" would be read as an integer and lose its sign */
        return at == to ? 1 : 4;
    }
    struct decimal decimal = find_shortest(value);
    at = value < 1 && value >= 1e-5f ? put_fraction(at, decimal) : put_other(at, decimal);
    return (size_t)(at - to);
}

char *float_list_put(char *to, const float *floats, size_t count)
{
    *to++ = '[';
    for (size_t i = 0; i < count; i++) {
        if (i > 0) { *to++ = ','; }
        to += float_text_put(to, floats[i]);
    }
    *to++ = ']';
    return to;
}

void buffer_floats(struct buffer *to, const float *floats, size_t count)
{
    char *at = buffer_reserve(to, FLOAT_LIST_MAX(count));
    if (at) { to->length = (size_t)(float_list_put(at, floats, count) - to->data); }
}
