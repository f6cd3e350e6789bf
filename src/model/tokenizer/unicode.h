/* What the `tokenizers` package thinks of each character, as tables that were made by asking it.
 *
 * Its judgements come from several Unicode versions at once, so no library's own tables give the same ids.
 * Source: tests/golden/make_unicode_tables.py writes unicode_tables.c. */
#ifndef MODEL_TOKENIZER_UNICODE_H
#define MODEL_TOKENIZER_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* What a character is to the tokenizer; several may hold. */
enum unicode_flag {
    UNICODE_CONTROL = 1,     /* text cleaning removes it */
    UNICODE_SPACE = 2,       /* separates words */
    UNICODE_PUNCTUATION = 4, /* is a word of its own */
    UNICODE_MARK = 8,        /* accent stripping removes it */
    UNICODE_CJK = 16,        /* is put between blanks */
    UNICODE_WORD = 32,       /* beside it an added token with single_word does not match */
};

enum { UNICODE_LIMIT = 0x110000, UNICODE_MAX_PARTS = 4 };

/* All characters from `first` up to the next range's. `order` is the canonical combining class. */
struct unicode_range {
    uint32_t first;
    uint8_t flags;
    uint8_t order;
};

/* What one character becomes: `count` code points at `at` in the array of targets. */
struct unicode_mapping {
    uint32_t from;
    uint16_t at;
    uint16_t count;
};

/* The range that a code point below UNICODE_LIMIT lies in. */
const struct unicode_range *unicode_lookup(uint32_t code_point);

/* The full canonical decomposition of one character; the character itself where it has none.
 * Shapes: to [UNICODE_MAX_PARTS], the returned number of them written. */
size_t unicode_decompose(uint32_t code_point, uint32_t *to);

/* Its lower case, in the same way. */
size_t unicode_lowercase(uint32_t code_point, uint32_t *to);

extern const struct unicode_range unicode_ranges[];
extern const uint32_t unicode_range_count;
extern const struct unicode_mapping unicode_decompositions[];
extern const uint32_t unicode_decomposition_count;
extern const uint32_t unicode_decomposition_targets[];
extern const struct unicode_mapping unicode_lowercases[];
extern const uint32_t unicode_lowercase_count;
extern const uint32_t unicode_lowercase_targets[];

#endif
