/* Nearly every fault of UTF-8 shows in two bytes that follow each other, so three tables of 16 entries, for the two
 * halves of the first and the upper half of the second, say which faults each half allows; a fault that all three allow
 * is one. What is left is that third and fourth bytes stand just where a long sequence wants them.
 *
 * Source: Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte" (2021). */
#include "base/utf8_avx2.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

enum {
    SHORT = 1,        /* a lead byte and no continuation */
    LONG = 2,         /* a continuation behind ASCII */
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

/* Not zero where something is wrong. `last` is the block before. */
AVX2 static inline __m256i faults(__m256i now, __m256i last)
{
    __m256i third = _mm256_subs_epu8(BEFORE(now, last, 2), _mm256_set1_epi8(BYTE(0xE0 - 0x80)));
    __m256i fourth = _mm256_subs_epu8(BEFORE(now, last, 3), _mm256_set1_epi8(BYTE(0xF0 - 0x80)));
    __m256i must_follow = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8(BYTE(0x80)));
    return _mm256_xor_si256(must_follow, pair_faults(BEFORE(now, last, 1), now));
}

/* The end of the last code point that is surely whole: the one that the blocks end with may go on. */
static size_t before_last(const char *bytes, size_t end)
{
    size_t at = end;
    while (at > 0 && ((unsigned char)bytes[at - 1] & 0xC0) == 0x80)
        at--;
    return at > 0 ? at - 1 : 0;
}

AVX2 size_t utf8_avx2_prefix(const char *bytes, size_t length)
{
    const size_t block = sizeof(__m256i);
    __m256i last = _mm256_setzero_si256();
    size_t at = 0;
    for (; length - at >= block; at += block) {
        __m256i now = _mm256_loadu_si256((const void *)(bytes + at));
        __m256i wrong = faults(now, last);
        if (!_mm256_testz_si256(wrong, wrong))
            break;
        last = now;
    }
    return at == 0 ? 0 : before_last(bytes, at);
}

bool utf8_avx2_here(void)
{
    return __builtin_cpu_supports("avx2");
}

#else

size_t utf8_avx2_prefix(const char *bytes, size_t length)
{
    (void)bytes, (void)length;
    return 0;
}

bool utf8_avx2_here(void)
{
    return false;
}

#endif
