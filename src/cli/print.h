/* Bytes of others on a terminal: whatever they are, they stay on their line and control nothing. */
#ifndef CLI_PRINT_H
#define CLI_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "io/resp.h"

/* Prints bytes as they are where they are printable UTF-8; the rest as \xNN. */
void print_bytes(FILE *to, const char *bytes, size_t length);

/* Prints bytes as a string of JSON, with quotes around it. Controls (C0, DEL, and C1, which some terminals obey like an
 * escape sequence) become \uNNNN, what is not UTF-8 becomes \ufffd. */
void print_json_string(FILE *to, const char *bytes, size_t length);

/* Spans of time as people write them: 500ms, 90s, 15m, 2h, 7d. */

#define DURATION_EXPECTS "a number with its unit: 500ms, 90s, 15m, 2h, 7d"

enum { DURATION_TEXT = 24 };

/* Reads a span; false when it is none, or longer than ten years. Units: ms. */
bool duration_parse(const char *text, uint64_t *ms);

/* Whether it is one: `accepts` of a row of settings. */
bool duration_is(const char *text);

/* Writes a span in its largest unit of which there are at least two: "90s", "36h"; returns `text`. */
const char *duration_format(uint64_t ms, char text[DURATION_TEXT]);

/* The embedding of a reply as JSON, whatever its encoding. */

/* Prints the vector as an array of numbers; of a reply to several texts (which has a `count`) as an array of arrays.
 * Errors: STATUS_BAD_INPUT when it is not what the reply's `encoding` and `dim` say; STATUS_NO_MEMORY. */
MUST_CHECK enum status print_embedding(FILE *to, const struct resp_value *reply, const struct resp_value *value,
                                       struct err *err);

/* A reply of Redis as one line of JSON, whatever its encoding. */

/* Whether an answer to HGETALL holds a reply that will not change any more. */
bool reply_is_final(const struct resp_value *reply);

/* Prints {"id": ..., every field of the reply}: the vector as an array of numbers, counts as numbers, the rest as
 * strings. Errors: STATUS_BAD_INPUT when the answer is not a reply of Sluice. */
MUST_CHECK enum status print_reply(FILE *to, const char *id, const struct resp_value *reply, struct err *err);

#endif
