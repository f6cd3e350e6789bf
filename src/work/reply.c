/* Floats to text. JSON is the default encoding and the dearest step of a reply, hence a formatter of our own.
 *
 * Nine significant digits identify every f32. A float is exact in double, one multiplication by a power of ten brings
 * it into [1e8, 1e9), and rounding gives the nine digits as an integer. The product is off by at most three roundings
 * of a double, 4e-7 of the last digit, while two neighbouring floats are at least 5.9 of them apart: it always reads
 * back. */
#include "work/reply.h"

#include <math.h>
#include <string.h>

enum { SIGNIFICANT = 9, POWER_LEAST = -30, POWER_MOST = 54 };

/* Powers of ten, from POWER_LEAST on. */
static const double powers[POWER_MOST - POWER_LEAST + 1] = {
    1e-30, 1e-29, 1e-28, 1e-27, 1e-26, 1e-25, 1e-24, 1e-23, 1e-22, 1e-21, 1e-20, 1e-19, 1e-18, 1e-17, 1e-16,
    1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9,  1e-8,  1e-7,  1e-6,  1e-5,  1e-4,  1e-3,  1e-2,  1e-1,
    1e0,   1e1,   1e2,   1e3,   1e4,   1e5,   1e6,   1e7,   1e8,   1e9,   1e10,  1e11,  1e12,  1e13,  1e14,
    1e15,  1e16,  1e17,  1e18,  1e19,  1e20,  1e21,  1e22,  1e23,  1e24,  1e25,  1e26,  1e27,  1e28,  1e29,
    1e30,  1e31,  1e32,  1e33,  1e34,  1e35,  1e36,  1e37,  1e38,  1e39,  1e40,  1e41,  1e42,  1e43,  1e44,
    1e45,  1e46,  1e47,  1e48,  1e49,  1e50,  1e51,  1e52,  1e53,  1e54,
};

static const char digit_pairs[201] = "0001020304050607080910111213141516171819"
                                     "2021222324252627282930313233343536373839"
                                     "4041424344454647484950515253545556575859"
                                     "6061626364656667686970717273747576777879"
                                     "8081828384858687888990919293949596979899";

/* Writes nine digits and returns how many remain without trailing zeros (at least one). */
static int put_digits(char digits[SIGNIFICANT], uint32_t value)
{
    for (int at = SIGNIFICANT - 2; at > 0; at -= 2) {
        memcpy(digits + at, digit_pairs + (size_t)(value % 100) * 2, 2);
        value /= 100;
    }
    digits[0] = (char)('0' + value);
    int count = SIGNIFICANT;
    while (count > 1 && digits[count - 1] == '0')
        count--;
    return count;
}

/* Splits a positive finite value into nine digits and the decimal exponent of the first: value = d.dddddddd *
 * 10^exponent. The estimate from the binary exponent is right or one too small. */
static uint32_t nine_digits(double value, int *exponent)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    int binary = (int)(bits >> 52) - 1023;
    int decimal = (binary * 1233 - (binary < 0 ? 4095 : 0)) / 4096; /* floor(binary * log10(2)) */
    double scaled = value * powers[SIGNIFICANT - 1 - decimal - POWER_LEAST];
    if (scaled >= 999999999.5) {
        decimal++;
        scaled = value * powers[SIGNIFICANT - 1 - decimal - POWER_LEAST];
    }
    *exponent = decimal;
    uint32_t digits = (uint32_t)(scaled + 0.5);
    return digits < 100000000u ? 100000000u : digits;
}

static char *put_scientific(char *to, const char *digits, int count, int exponent)
{
    *to++ = digits[0];
    if (count > 1) {
        *to++ = '.';
        memcpy(to, digits + 1, (size_t)count - 1);
        to += count - 1;
    }
    *to++ = 'e';
    *to++ = exponent < 0 ? '-' : '+';
    unsigned size = (unsigned)(exponent < 0 ? -exponent : exponent);
    memcpy(to, digit_pairs + (size_t)(size % 100) * 2, 2);
    return to + 2;
}

static char *put_plain(char *to, const char *digits, int count, int exponent)
{
    if (exponent < 0) {
        memset(to, '0', 7);
        to[1] = '.';
        to += 1 - exponent;
        memcpy(to, digits, SIGNIFICANT); /* a fixed length is one move; only `count` of them stay */
        return to + count;
    }
    int whole = exponent + 1;
    memcpy(to, digits, SIGNIFICANT); /* trailing zeros are still there: 100 keeps its own */
    if (count <= whole)
        return to + whole;
    to[whole] = '.';
    memcpy(to + whole + 1, digits + whole, (size_t)(count - whole));
    return to + count + 1;
}

size_t reply_put_float(char *to, float value)
{
    char *at = to;
    if (signbit(value))
        *at++ = '-';
    if (value == 0) {
        memcpy(at, "0.0", 3); /* "-0" would be read as an integer and lose its sign */
        return (size_t)(at + (signbit(value) ? 3 : 1) - to);
    }
    char digits[SIGNIFICANT];
    int exponent;
    int count = put_digits(digits, nine_digits(fabs((double)value), &exponent));
    bool plain = exponent >= -5 && exponent < SIGNIFICANT;
    at = plain ? put_plain(at, digits, count, exponent) : put_scientific(at, digits, count, exponent);
    return (size_t)(at - to);
}
