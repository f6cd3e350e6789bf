/* JSON read where it lies, without a tree, and strings written. Source: RFC 8259. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/* What is left to read. */
struct lexer {
    const char *at, *end;
};

/* Moves behind white space. */
void lexer_skip_space(struct lexer *lexer);

/* Moves behind the expected character, if it is the next. */
bool lexer_take(struct lexer *lexer, char expected);

/* Moves to the next byte that does not stand for itself in a string: a quote, a backslash or a control character. */
void lexer_skip_plain(struct lexer *lexer);

/* What follows a backslash. */
enum json_escape {
    JSON_ESCAPE_OK,
    JSON_ESCAPE_BAD,  /* none that JSON knows */
    JSON_ESCAPE_HALF, /* half of a surrogate pair: no character */
};

/* Reads what follows a backslash, and moves after that; the second half of a surrogate pair is part of it. Where
 * it is not JSON_ESCAPE_OK, `at` is where it went wrong. Shapes: utf8 [4], `*length` of them written. */
enum json_escape lexer_read_escape(struct lexer *lexer, char utf8[4], size_t *length);

/* Decodes a string and appends it; `bytes` are those between the quotes, valid UTF-8. False when an escape is unknown
 * or a surrogate has no pair; the content is then incomplete. */
bool buffer_json_decode(struct buffer *to, const char *bytes, size_t length);

/* Appends bytes as a string with quotes; what is not UTF-8 becomes U+FFFD. */
void buffer_json_string(struct buffer *to, const char *bytes, size_t length);

#endif
