/* Source: RFC 3629, section 4 (the table of well-formed byte sequences). */
#include "base/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Returns whether this processor has the instructions that the function needs. */
static bool utf8_avx2_here(void);

/* Returns how many leading bytes are certainly whole, valid code points: reads blocks of 32 up to the first with a
 * fault, and does not judge the bytes after that. */
static size_t utf8_avx2_prefix(const char *bytes, size_t length);

enum { WIDE_BYTES = 64 }; /* from this length on blocks are worth it */

/* Length of the well-formed sequence at the start of `s`, or 0. */
static size_t sequence_length(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80) { return 1; }
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
    if (left < need || s[1] < low || s[1] > high) { return 0; }
    for (size_t i = 2; i < need; i++) {
        if ((s[i] & 0xC0) != 0x80) { return 0; }
    }
    return need;
}

/* The index of the first byte that is not ASCII, rounded down to 8. */
static size_t ascii_prefix(const char *bytes, size_t length)
{
    size_t at = 0;
    for (uint64_t word; length - at >= sizeof word; at += sizeof word) {
        memcpy(&word, bytes + at, sizeof word);
        if ((word & 0x8080808080808080ull) != 0) { break; }
    }
    return at;
}

/* Reads ASCII by words; from the first other byte on by blocks if the processor can, else one by one. */
size_t utf8_valid_prefix(const char *bytes, size_t length)
{
    size_t at = ascii_prefix(bytes, length);
    if (length - at >= WIDE_BYTES && utf8_avx2_here()) { at += utf8_avx2_prefix(bytes + at, length - at); }
    while (at < length) {
        if ((unsigned char)bytes[at] < 0x80) {
            size_t ascii = ascii_prefix(bytes + at, length - at);
            at += ascii > 0 ? ascii : 1;
            continue;
        }
        size_t step = sequence_length((const unsigned char *)bytes + at, length - at);
        if (step == 0) { break; }
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

/* Nearly every fault of UTF-8 shows in two adjacent bytes, so three tables of 16 entries, for the two halves of the
 * first and the upper half of the second, say which faults each half allows; a fault that all three allow is present.
 * It remains to check that third and fourth bytes are exactly where a long sequence needs them.
 *
 * Source: Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte" (2021). */

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

enum {
    SHORT = 1,        /* a lead byte and no continuation */
    LONG = 2,         /* a continuation after ASCII */
    OVERLONG_3 = 4,   /* E0 80..9F */
    LARGE = 8,        /* F4 90..BF and above: beyond U+10FFFF */
    SURROGATE = 16,   /* ED A0..BF */
    OVERLONG_2 = 32,  /* C0, C1 */
    OVERLONG_4 = 64,  /* F0 80..8F; and F5 80..8F and above, which are too large */
    TWO_FOLLOW = 128, /* two continuations: right only where must_follow says so */
    ANY_LOW = SHORT | LONG | TWO_FOLLOW,
    HIGH_LOW = ANY_LOW | LARGE | OVERLONG_4,
    FOLLOWS = LONG | OVERLONG_2 | TWO_FOLLOW, /* a continuation as the second byte */
};

#define TWICE(...) _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)
#define BYTE(x) ((char)(x))

/* The bytes `count` places before those of `now`. */
#define BEFORE(now, last, count) _mm256_alignr_epi8(now, _mm256_permute2x128_si256(last, now, 0x21), 16 - (count))

AVX2 static inline __m256i upper_half(__m256i x)
{
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(0x0f));
}

AVX2 static inline __m256i pair_faults(__m256i first, __m256i second)
{
    const __m256i first_upper =
        TWICE(LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG, BYTE(TWO_FOLLOW), BYTE(TWO_FOLLOW), BYTE(TWO_FOLLOW),
              BYTE(TWO_FOLLOW), SHORT | OVERLONG_2, SHORT, SHORT | OVERLONG_3 | SURROGATE, SHORT | LARGE | OVERLONG_4);
    const __m256i first_lower = TWICE(
        BYTE(ANY_LOW | OVERLONG_2 | OVERLONG_3 | OVERLONG_4), BYTE(ANY_LOW | OVERLONG_2), BYTE(ANY_LOW), BYTE(ANY_LOW),
        BYTE(ANY_LOW | LARGE), BYTE(HIGH_LOW), BYTE(HIGH_LOW), BYTE(HIGH_LOW), BYTE(HIGH_LOW), BYTE(HIGH_LOW),
        BYTE(HIGH_LOW), BYTE(HIGH_LOW), BYTE(HIGH_LOW), BYTE(HIGH_LOW | SURROGATE), BYTE(HIGH_LOW), BYTE(HIGH_LOW));
    const __m256i second_upper =
        TWICE(SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, BYTE(FOLLOWS | OVERLONG_3 | OVERLONG_4),
              BYTE(FOLLOWS | OVERLONG_3 | LARGE), BYTE(FOLLOWS | SURROGATE | LARGE), BYTE(FOLLOWS | SURROGATE | LARGE),
              SHORT, SHORT, SHORT, SHORT);
    __m256i lower = _mm256_and_si256(first, _mm256_set1_epi8(0x0f));
    __m256i upper_allows = _mm256_shuffle_epi8(first_upper, upper_half(first));
    __m256i lower_allows = _mm256_shuffle_epi8(first_lower, lower);
    __m256i second_allows = _mm256_shuffle_epi8(second_upper, upper_half(second));
    return _mm256_and_si256(_mm256_and_si256(upper_allows, lower_allows), second_allows);
}

/* Bits that are not zero where something is wrong. `last` is the block before. */
AVX2 static inline __m256i faults(__m256i now, __m256i last)
{
    __m256i third = _mm256_subs_epu8(BEFORE(now, last, 2), _mm256_set1_epi8(BYTE(0xE0 - 0x80)));
    __m256i fourth = _mm256_subs_epu8(BEFORE(now, last, 3), _mm256_set1_epi8(BYTE(0xF0 - 0x80)));
    __m256i must_follow = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8(BYTE(0x80)));
    return _mm256_xor_si256(must_follow, pair_faults(BEFORE(now, last, 1), now));
}

/* The end of the last code point that is surely whole: the one at the end of the blocks may continue after them. */
static size_t before_last(const char *bytes, size_t end)
{
    size_t at = end;
    while (at > 0 && ((unsigned char)bytes[at - 1] & 0xC0) == 0x80) { at--; }
    return at > 0 ? at - 1 : 0;
}

AVX2 static size_t utf8_avx2_prefix(const char *bytes, size_t length)
{
    const size_t block = sizeof(__m256i);
    __m256i last = _mm256_setzero_si256();
    size_t at = 0;
    for (; length - at >= block; at += block) {
        __m256i now = _mm256_loadu_si256((const void *)(bytes + at));
        __m256i wrong = faults(now, last);
        if (!_mm256_testz_si256(wrong, wrong)) { break; }
        last = now;
    }
    return at == 0 ? 0 : before_last(bytes, at);
}

static bool utf8_avx2_here(void)
{
    return __builtin_cpu_supports("avx2");
}

#else

static size_t utf8_avx2_prefix(const char *bytes, size_t length)
{
    (void)bytes, (void)length;
    return 0;
}

static bool utf8_avx2_here(void)
{
    return false;
}

#endif

size_t utf8_printable(const char *bytes, size_t length)
{
    unsigned char first = (unsigned char)bytes[0];
    if (first < 0x80) { return first >= 0x20 && first != 0x7f && first != '\\'; }
    size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (size > length || !utf8_valid(bytes, size) || (first == 0xc2 && (unsigned char)bytes[1] < 0xa0)) { return 0; }
    return size;
}

void utf8_mend(char *text, size_t size)
{
    size_t length = strlen(text), at = utf8_valid_prefix(text, length);
    while (at < length && at + UTF8_REPLACEMENT_BYTES < size) {
        size_t rest = at + UTF8_REPLACEMENT_BYTES, after = length - at - 1, room = size - 1 - rest;
        if (after > room) {
            for (after = room; after > 0 && ((unsigned char)text[at + 1 + after] & 0xC0) == 0x80;) { after--; }
        }
        memmove(text + rest, text + at + 1, after);
        memcpy(text + at, UTF8_REPLACEMENT, UTF8_REPLACEMENT_BYTES);
        length = rest + after;
        at = rest + utf8_valid_prefix(text + rest, after);
    }
    text[at] = '\0';
}
