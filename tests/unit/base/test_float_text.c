/* Floats as text read back to the same bits, and with as few digits as that takes; halves are the nearest.
 *
 * ctest-cost: 10 */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "base/float_text.h"
#include "base/half.h"

static void reads_back(uint32_t bits)
{
    float value, back;
    char text[FLOAT_TEXT_MAX + 1];
    memcpy(&value, &bits, sizeof(value));
    size_t length = float_text_put(text, value);
    assert_true(length > 0 && length <= FLOAT_TEXT_MAX);
    text[length] = '\0';
    back = strtof(text, NULL);
    if (memcmp(&value, &back, sizeof(value)) != 0) { fail_msg("%a became %s", (double)value, text); }
    back = (float)strtod(text, NULL); /* as most JSON readers do */
    if (memcmp(&value, &back, sizeof(value)) != 0) { fail_msg("%a became %s, through a double", (double)value, text); }
}

/* Every exponent with many mantissas, both signs; 397 is prime to 2^32. */
TEST(floats_read_back_over_the_whole_range)
{
    for (uint64_t bits = 0; bits < 0x100000000u; bits += 397 * 3) {
        if ((bits >> 23 & 255) != 255) { reads_back((uint32_t)bits); }
    }
}

/* Numbers at which formatters fail: subnormals, powers of two and of ten and their neighbours, the largest. */
TEST(floats_read_back_at_the_edges)
{
    for (uint32_t bits = 0; bits < 70000; bits++) { reads_back(bits); }
    for (uint32_t exponent = 0; exponent < 255; exponent++) {
        for (uint32_t off = 0; off < 400; off++) {
            reads_back((exponent << 23) + off);
            reads_back(((exponent + 1) << 23) - 1 - off);
        }
    }
    for (int power = -45; power < 39; power++) {
        float value = (float)pow(10, power);
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        for (uint32_t off = 0; off < 200; off++) {
            if (bits >= 100) { reads_back(bits - 100 + off); }
        }
    }
}

/* Digits from the first that is not 0 to the last that is not 0. */
static int significant(const char *text)
{
    int count = 0, zeros = 0;
    for (; *text != '\0' && *text != 'e'; text++) {
        zeros = *text == '0' ? zeros + 1 : zeros;
        if (*text >= '1' && *text <= '9') {
            count += count > 0 ? zeros + 1 : 1;
            zeros = 0;
        }
    }
    return count;
}

/* The nearest decimal with one digit less is another float. Two kinds may get one more and are not looked at: powers of
 * two, because the floats below them are nearer than those above; and large integers that would read back from the very
 * middle between two floats. */
TEST(floats_have_no_digit_too_many)
{
    for (uint32_t bits = 1; bits < 0x4b800000u; bits += 7919) {
        if ((bits & 0x7fffff) == 0) { continue; }
        float value;
        char text[FLOAT_TEXT_MAX + 1], fewer[32];
        memcpy(&value, &bits, sizeof(value));
        text[float_text_put(text, value)] = '\0';
        int digits = significant(text);
        snprintf(fewer, sizeof(fewer), "%.*e", digits - 2, (double)value);
        if (digits > 1 && strtof(fewer, NULL) == value) {
            fail_msg("%a became %s, %s would do", (double)value, text, fewer);
        }
        assert_true(strchr(text, '.') == NULL || text[strcspn(text, "e") - 1] != '0');
    }
}

TEST(floats_print_short)
{
    static const struct {
        float value;
        const char *text;
    } examples[] = {
        {0.0f, "0"},
        {-0.0f, "-0.0"},
        {1.0f, "1"},
        {-1.5f, "-1.5"},
        {0.1f, "0.1"},
        {100.0f, "100"},
        {0.25f, "0.25"},
        {-0.0123456789f, "-0.012345679"},
        {1e9f, "1e+09"},
        {3.4028235e38f, "3.4028235e+38"},
        {1e-45f, "1e-45"},
        {0.99999994f, "0.99999994"},
        {16777216.0f, "16777216"},
        {1.5e-7f, "1.5e-07"},
        {1e-5f, "0.00001"},
        {123456784.0f, "123456784"},
        {1.5e-5f, "0.000015"},
    };
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        char text[FLOAT_TEXT_MAX + 1];
        text[float_text_put(text, examples[i].value)] = '\0';
        assert_string_equal(text, examples[i].text);
    }
}

static double value_of_half(uint16_t half)
{
    int exponent = half >> 10 & 31;
    double mantissa = half & 1023;
    double value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(mantissa + 1024, exponent - 25);
    return half & 0x8000 ? -value : value;
}

/* Every half comes back; a number between two becomes the nearer one, in the middle the even one. */
TEST(halves_are_the_nearest)
{
    for (uint32_t half = 0; half < 0x7c00; half++) {
        double value = value_of_half((uint16_t)half), next = value_of_half((uint16_t)(half + 1));
        if (half == 0x7bff) { next = 65536; }
        float middle = (float)((value + next) / 2);
        uint32_t even = half % 2 == 0 ? half : half + 1;
        assert_int_equal(half_from_float((float)value), half);
        assert_int_equal(half_from_float(-(float)value), half | 0x8000);
        assert_int_equal(half_from_float(nextafterf(middle, 0)), half);
        if (half < 0x7bff) {
            assert_int_equal(half_from_float(middle), even);
            assert_int_equal(half_from_float(nextafterf(middle, INFINITY)), half + 1);
        }
    }
}
