/* Escapes in JSON strings, for code that reads such strings without a parser. Source: RFC 8259, section 7. */
#ifndef BASE_JSON_ESCAPE_H
#define BASE_JSON_ESCAPE_H

#include <stddef.h>

/* What stands behind a backslash. */
enum json_escape {
    JSON_ESCAPE_OK,
    JSON_ESCAPE_BAD,  /* none that JSON knows */
    JSON_ESCAPE_HALF, /* half of a surrogate pair: no character */
};

/* Reads what stands behind a backslash at `*at`, and moves it behind that; the second half of a surrogate pair is part
 * of it. Where it is not JSON_ESCAPE_OK, `*at` is where it went wrong. Shapes: utf8 [4], `*length` of them written. */
enum json_escape json_escape_read(const char **at, const char *end, char utf8[4], size_t *length);

#endif
