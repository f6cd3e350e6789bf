/* Reads JSON in place, without a tree, and writes strings. Source: RFC 8259. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

/* The bytes that are left to read. */
struct lexer {
    const char *at, *end;
};

/* Moves past white space. */
void lexer_skip_space(struct lexer *lexer);

/* Moves past the expected character, if it is the next. */
bool lexer_take(struct lexer *lexer, char expected);

/* Moves to the next byte that has a special meaning in a string: a quote, a backslash or a control character. */
void lexer_skip_plain(struct lexer *lexer);

/* Moves past a string whose opening quote was taken; `*bytes` [*length] are those between the quotes. The letter of an
 * escape is checked, but not the digits after a u. False: it is not a string. */
bool lexer_string(struct lexer *lexer, const char **bytes, size_t *length);

/* Moves past a number, true, false or null. False: it is none of these. */
bool lexer_scalar(struct lexer *lexer);

enum { JSON_DEPTH_MAX = 64 };

/* Moves past a value of any kind and the white space before it; the value is inside `depth` others. False: it is not a
 * value, or deeper than JSON_DEPTH_MAX. */
bool lexer_value(struct lexer *lexer, unsigned depth);

/* A member of an object that is walked. Zero-initialise it before the first. */
struct lexer_member {
    const char *name; /* [length], between its quotes */
    size_t length;
    bool whole; /* after the last member: the object has ended as it should; if not, `at` is the byte that is wrong */
};

/* Reads the name of an object's first member, or of the next one, and moves to its value. The caller moves past the
 * value. False: there is none; the lexer is then past the object, if it is whole. */
bool lexer_next_member(struct lexer *lexer, struct lexer_member *member);

/* Returns whether it has this name, which has no escapes. */
bool lexer_member_is(const struct lexer_member *member, const char *name);

/* Returns whether the bytes are one value in UTF-8, except for the digits after the u of an escape. */
bool json_valid(const char *bytes, size_t length);

/* The result of reading an escape. */
enum json_escape {
    JSON_ESCAPE_OK,
    JSON_ESCAPE_BAD,  /* no escape of JSON */
    JSON_ESCAPE_HALF, /* half of a surrogate pair: no character */
};

/* Reads the rest of an escape after its backslash and moves past it; the second half of a surrogate pair is part of it.
 * If the result is not JSON_ESCAPE_OK, `at` is where the error is. Shapes: utf8 [4], `*length` of them written. */
enum json_escape lexer_read_escape(struct lexer *lexer, char utf8[4], size_t *length);

/* Decodes a string and appends it; `bytes` are those between the quotes, valid UTF-8. False when an escape is unknown
 * or a surrogate has no pair; the content is then incomplete. */
bool buffer_json_decode(struct buffer *to, const char *bytes, size_t length);

/* Finds a member of an object, not of those inside it; `*value` [*value_length] are the bytes of its value. NULL is an
 * empty object. False: it has no such member, or is not an object up to there. If names are equal, the first counts. */
bool json_member(const char *object, size_t length, const char *name, const char **value, size_t *value_length);

/* Reads a member that is a number from 0 to 2^64 - 1; a fraction is cut off. False, and 0: there is none. */
bool json_member_number(const char *object, size_t length, const char *name, uint64_t *number);

/* Copies a member: a string is decoded, any other value is copied as it is. Shapes: text [size]; what does not fit is
 * cut off. False, and "": there is no such member. */
bool json_member_text(const char *object, size_t length, const char *name, char *text, size_t size);

/* Appends bytes as a string with quotes; bytes that are not UTF-8 become U+FFFD. */
void buffer_json_string(struct buffer *to, const char *bytes, size_t length);

/* Writing on one line, without characters that control a terminal. */

enum { JSON_ESCAPE_BYTES = 6 };

/* Writes the first character of `bytes` as it is written in a string, and sets `used` to its length. Controls become
 * \uNNNN (C0, DEL, and C1, which some terminals obey like an escape sequence); a byte that is not UTF-8 becomes
 * \ufffd. Shapes: bytes [length], at least one; to [JSON_ESCAPE_BYTES]; returns how many of it were written. */
size_t json_escaped(char *to, const char *bytes, size_t length, size_t *used);

/* Appends JSON by a format as of printf, in which ' stands for the quote ". A comma at its start is left out right
 * after [ or {, so the first element of a list is written as the others. %s writes a string by json_escaped: with its
 * quotes, or null for ""; %.*s with quotes always; without them where the format has them around it. %hhd writes true
 * or false, %+lld null for a negative number, %llx 16 digits, %g 15 unless it has a precision; a number that is not
 * finite is null. Others: %f; d and u of int, long, long long and size_t. */
void buffer_json(struct buffer *to, const char *format, ...) PRINTF_LIKE(2, 3);

/* Appends a value that is JSON already; false, and nothing is appended, if it is not. */
bool buffer_json_value(struct buffer *to, const char *bytes, size_t length);

#endif
