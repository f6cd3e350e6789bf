/* Printing what others have written: whatever the bytes are, they stay on their line and control no terminal. */
#ifndef CLI_PRINT_H
#define CLI_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Prints printable UTF-8 as it is, and all other bytes as \xNN. */
void print_bytes(FILE *to, const char *bytes, size_t length);

#define DURATION_EXPECTS "a number with its unit: 500ms, 90s, 15m, 2h, 7d"

enum { DURATION_TEXT = 24 };

/* Reads a duration such as 500ms, 90s, 15m, 2h, 7d; false for anything else, and for more than ten years. Units: ms. */
bool duration_parse(const char *text, uint64_t *ms);

/* Whether it is a duration: for `accepts` of a setting. */
bool duration_is(const char *text);

/* Writes a duration in the largest unit of which it has at least two: "90s", "36h"; returns `text`. */
const char *duration_format(uint64_t ms, char text[DURATION_TEXT]);

#endif
