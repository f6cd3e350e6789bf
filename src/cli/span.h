/* Spans of time as people write them: 500ms, 90s, 15m, 2h, 7d. */
#ifndef CLI_SPAN_H
#define CLI_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#define SPAN_EXPECTS "a number with its unit: 500ms, 90s, 15m, 2h, 7d"

enum { SPAN_TEXT = 24 };

/* Reads a span; false when it is none, or longer than ten years. Units: ms. */
bool span_parse(const char *text, uint64_t *ms);

/* Whether it is one: `accepts` of a row of settings. */
bool span_is(const char *text);

/* Writes a span in its largest unit of which there are at least two: "90s", "36h"; returns `text`. */
const char *span_format(uint64_t ms, char text[SPAN_TEXT]);

#endif
