/* Lists of whole numbers in an option: "16,64,256". */
#ifndef BENCH_NUMBERS_H
#define BENCH_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { NUMBERS_MAX = 16 };

/* A list that was read. */
struct numbers {
    int64_t items[NUMBERS_MAX];
    size_t count;
};

/* Reads 1 to NUMBERS_MAX numbers from `least` to `most`; `option` names the option in messages.
 * Errors: STATUS_BAD_INPUT. */
MUST_CHECK enum status numbers_parse(const char *option, const char *text, int64_t least, int64_t most,
                                     struct numbers *out, struct err *err);

/* Reads a list of words, each one of `known` (ended by NULL), into their places there. Errors: STATUS_BAD_INPUT. */
MUST_CHECK enum status numbers_parse_words(const char *option, const char *text, const char *const *known,
                                           struct numbers *out, struct err *err);

#endif
