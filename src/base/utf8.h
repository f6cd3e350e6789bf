/* Strict UTF-8: what RFC 3629 allows, nothing else (no surrogates, no overlong forms, nothing above U+10FFFF). */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* U+FFFD, which replaces bytes that are not UTF-8. */
#define UTF8_REPLACEMENT "\xef\xbf\xbd"
enum { UTF8_REPLACEMENT_BYTES = sizeof UTF8_REPLACEMENT - 1 };

/* Returns how many leading bytes are whole, valid code points; equal to `length` when all are. */
size_t utf8_valid_prefix(const char *bytes, size_t length);

/* Returns whether all bytes are valid UTF-8. */
bool utf8_valid(const char *bytes, size_t length);

/* Reads the code point at `*at` of valid UTF-8 and moves `*at` past it. */
uint32_t utf8_next(const char *bytes, size_t *at);

/* Writes a code point as one to four bytes and returns how many. */
size_t utf8_put(char *to, uint32_t code_point);

/* The length of the printable sequence at the front, 0 if there is none. Not printable are control characters,
 * including C1 (C2 80..9F), which some terminals obey, and a backslash. Shapes: bytes [length], at least one. */
size_t utf8_printable(const char *bytes, size_t length);

/* Makes a C string valid UTF-8 in place, as buffer_utf8 does in a copy; if it then has no room, it is cut between code
 * points. Shapes: text [size]. */
void utf8_mend(char *text, size_t size);

#endif
