/* Source: RFC 3629, section 4 (the table of well-formed byte sequences). */
#include "base/utf8.h"

#include <string.h>

#include "base/utf8_avx2.h"

enum { WIDE_BYTES = 64 }; /* from here on blocks are worth it */

/* Length of the well-formed sequence at the start of `s`, or 0. */
static size_t sequence_length(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80)
        return 1;
    size_t need;
    unsigned char low = 0x80, high = 0xBF; /* bounds of the second byte */
    if (s[0] >= 0xC2 && s[0] <= 0xDF) {
        need = 2;
    } else if ((s[0] & 0xF0) == 0xE0) {
        need = 3;
        low = s[0] == 0xE0 ? 0xA0 : 0x80;
        high = s[0] == 0xED ? 0x9F : 0xBF;
    } else if (s[0] >= 0xF0 && s[0] <= 0xF4) {
        need = 4;
        low = s[0] == 0xF0 ? 0x90 : 0x80;
        high = s[0] == 0xF4 ? 0x8F : 0xBF;
    } else {
        return 0;
    }
    if (left < need || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < need; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    return need;
}

/* Where the first byte stands that is not ASCII, rounded down to 8. */
static size_t ascii_prefix(const char *bytes, size_t length)
{
    size_t at = 0;
    for (uint64_t word; length - at >= sizeof word; at += sizeof word) {
        memcpy(&word, bytes + at, sizeof word);
        if ((word & 0x8080808080808080ull) != 0)
            break;
    }
    return at;
}

/* ASCII by words; from the first other byte on by blocks, where the processor has them, else one by one. */
size_t utf8_valid_prefix(const char *bytes, size_t length)
{
    size_t at = ascii_prefix(bytes, length);
    if (length - at >= WIDE_BYTES && utf8_avx2_here())
        at += utf8_avx2_prefix(bytes + at, length - at);
    while (at < length) {
        if ((unsigned char)bytes[at] < 0x80) {
            size_t ascii = ascii_prefix(bytes + at, length - at);
            at += ascii > 0 ? ascii : 1;
            continue;
        }
        size_t step = sequence_length((const unsigned char *)bytes + at, length - at);
        if (step == 0)
            break;
        at += step;
    }
    return at;
}

bool utf8_valid(const char *bytes, size_t length)
{
    return utf8_valid_prefix(bytes, length) == length;
}

uint32_t utf8_next(const char *bytes, size_t *at)
{
    const unsigned char *s = (const unsigned char *)bytes + *at;
    if (s[0] < 0x80) {
        *at += 1;
        return s[0];
    }
    if (s[0] < 0xE0) {
        *at += 2;
        return (uint32_t)(s[0] & 0x1F) << 6 | (s[1] & 0x3F);
    }
    if (s[0] < 0xF0) {
        *at += 3;
        return (uint32_t)(s[0] & 0x0F) << 12 | (uint32_t)(s[1] & 0x3F) << 6 | (s[2] & 0x3F);
    }
    *at += 4;
    return (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3F) << 12 | (uint32_t)(s[2] & 0x3F) << 6 | (s[3] & 0x3F);
}

size_t utf8_put(char *to, uint32_t code_point)
{
    unsigned char *s = (unsigned char *)to;
    if (code_point < 0x80) {
        s[0] = (unsigned char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        s[0] = (unsigned char)(0xC0 | code_point >> 6);
        s[1] = (unsigned char)(0x80 | (code_point & 0x3F));
        return 2;
    }
    if (code_point < 0x10000) {
        s[0] = (unsigned char)(0xE0 | code_point >> 12);
        s[1] = (unsigned char)(0x80 | (code_point >> 6 & 0x3F));
        s[2] = (unsigned char)(0x80 | (code_point & 0x3F));
        return 3;
    }
    s[0] = (unsigned char)(0xF0 | code_point >> 18);
    s[1] = (unsigned char)(0x80 | (code_point >> 12 & 0x3F));
    s[2] = (unsigned char)(0x80 | (code_point >> 6 & 0x3F));
    s[3] = (unsigned char)(0x80 | (code_point & 0x3F));
    return 4;
}
