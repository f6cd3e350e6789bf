/* Spans of time as people write them: 500ms, 90s, 15m, 2h, 7d. */
#ifndef BASE_DURATION_H
#define BASE_DURATION_H

#include <stdbool.h>
#include <stdint.h>

#define DURATION_EXPECTS "a number with its unit: 500ms, 90s, 15m, 2h, 7d"

#define DAY_MS UINT64_C(86400000)

enum { DURATION_TEXT = 24 };

/* Reads a duration such as 500ms, 90s, 15m, 2h, 7d; false for anything else, and for more than ten years. Units: ms. */
bool duration_parse(const char *text, uint64_t *ms);

/* Returns whether the text is a duration: for `accepts` of a setting. */
bool duration_is(const char *text);

/* Writes a duration in the largest unit that gives at least 2: "90s", "36h"; returns `text`. */
const char *duration_format(uint64_t ms, char text[DURATION_TEXT]);

#endif
