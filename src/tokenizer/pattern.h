/* The regexes that byte-level tokenizers split text by, each recognised by its exact text and executed by a scanner
 * written for it. They match all of a text, so its pieces are adjacent. */
#ifndef TOKENIZER_PATTERN_H
#define TOKENIZER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* The regex of GPT-2, which ByteLevel has without naming it. */
extern const char pattern_gpt2[], pattern_qwen2[];

struct pattern;

/* Finds the scanner of a regex.
 * Owns: the caller ends it with pattern_close. Errors: STATUS_UNSUPPORTED, naming the regex; STATUS_NO_MEMORY. */
MUST_CHECK enum status pattern_open(const char *regex, struct pattern **out, struct err *err);

/* Makes the scanner of Digits: a piece is a number, or what is between numbers. `individual`: a piece has one digit
 * only. Owns: as pattern_open. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status pattern_open_digits(bool individual, struct pattern **out, struct err *err);

/* Frees it. NULL is allowed. */
void pattern_close(struct pattern *pattern);

/* Returns the end of the piece of valid UTF-8 that starts at `at`, which is before `length`. Thread: any. */
size_t pattern_next(const struct pattern *pattern, const char *text, size_t length, size_t at);

#endif
