/* Printing what others have written: whatever the bytes are, they stay on their line and control no terminal. */
#ifndef CLI_PRINT_H
#define CLI_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "redis/resp.h"

/* Prints printable UTF-8 as it is, and all other bytes as \xNN. */
void print_bytes(FILE *to, const char *bytes, size_t length);

/* Prints bytes as a JSON string with its quotes. Controls become \uNNNN (C0, DEL, and C1, which some terminals obey
 * like an escape sequence); what is not UTF-8 becomes \ufffd. */
void print_json_string(FILE *to, const char *bytes, size_t length);

/* Prints a text as a JSON string to standard output, or null for "". */
void print_json_text(const char *text);

#define DURATION_EXPECTS "a number with its unit: 500ms, 90s, 15m, 2h, 7d"

enum { DURATION_TEXT = 24 };

/* Reads a duration such as 500ms, 90s, 15m, 2h, 7d; false for anything else, and for more than ten years. Units: ms. */
bool duration_parse(const char *text, uint64_t *ms);

/* Whether it is a duration: for `accepts` of a setting. */
bool duration_is(const char *text);

/* Writes a duration in the largest unit of which it has at least two: "90s", "36h"; returns `text`. */
const char *duration_format(uint64_t ms, char text[DURATION_TEXT]);

/* Prints a line of JSON: {"id": ..., every field of the reply}. Vectors and scores are arrays of numbers, labels and
 * the best documents the JSON that they are, counts are numbers, the rest are strings. Errors: STATUS_BAD_INPUT if the
 * answer is not a reply of Sluice. */
MUST_CHECK enum status print_reply(FILE *to, const char *id, const struct resp_value *reply, struct err *err);

#endif
