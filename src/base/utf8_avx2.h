/* UTF-8 by 32 bytes at a time. Private to base/utf8.c. */
#ifndef BASE_UTF8_AVX2_H
#define BASE_UTF8_AVX2_H

#include <stdbool.h>
#include <stddef.h>

/* Whether this processor has what the function needs. */
bool utf8_avx2_here(void);

/* How many leading bytes are whole, valid code points for sure: looks at blocks of 32 up to the first with a fault.
 * What is behind is not judged. */
size_t utf8_avx2_prefix(const char *bytes, size_t length);

#endif
