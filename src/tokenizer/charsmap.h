/* The normaliser `Precompiled` of sentencepiece's tokenizers: a map from short strings to others, by Unicode's
 * user-perceived characters (graphemes): a grapheme of less than six bytes is replaced as a whole by the replacement of
 * its shortest beginning in the map; if there is none, each of its characters that the map has is replaced. */
#ifndef TOKENIZER_CHARSMAP_H
#define TOKENIZER_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "tokenizer/origin.h"

struct charsmap;

/* Reads the field `precompiled_charsmap` of a tokenizer.json: base64 of a trie and the replacements.
 * Owns: the caller ends it with charsmap_close. Errors: STATUS_BAD_INPUT, STATUS_NO_MEMORY. */
MUST_CHECK enum status charsmap_open(const char *base64, struct charsmap **out, struct err *err);

/* Frees it. NULL is allowed. */
void charsmap_close(struct charsmap *map);

/* Appends the mapped form of valid UTF-8. `origin` may be NULL. Errors: the buffer is broken. */
void charsmap_apply(const struct charsmap *map, const char *text, size_t length, struct buffer *out,
                    struct origin *origin);

/* The largest number of characters (`bytes` false) or bytes that one byte of text becomes. */
size_t charsmap_growth(const struct charsmap *map, bool bytes);

/* True if it changes neither blanks nor ASCII letters and digits. */
bool charsmap_keeps_words(const struct charsmap *map);

/* A character's class in the rules for the borders of graphemes. The zero width joiner is GRAPHEME_SPACING, the
 * non-joiner GRAPHEME_EXTEND. */
enum grapheme_class {
    GRAPHEME_OTHER,
    GRAPHEME_CONTROL,
    GRAPHEME_EXTEND,
    GRAPHEME_LINKER, /* extends too, and joins Indic consonants */
    GRAPHEME_SPACING,
    GRAPHEME_PREPEND,
    GRAPHEME_PICTURE,
    GRAPHEME_CONSONANT, /* Indic */
    GRAPHEME_L,         /* Hangul from here on */
    GRAPHEME_V,
    GRAPHEME_T,
    GRAPHEME_LV,
    GRAPHEME_LVT,
    GRAPHEME_CLASS = 15,     /* a mask */
    GRAPHEME_COMBINING = 16, /* a flag: the normaliser StripAccents removes it */
};

/* All characters from `first` up to the next range's. */
struct grapheme_range {
    uint32_t first;
    uint8_t class; /* and the flag */
};

/* Source: tests/golden/make_grapheme_tables.py writes grapheme_tables.c. */
extern const struct grapheme_range grapheme_ranges[];
extern const uint32_t grapheme_range_count;

/* The class of a code point below 0x110000, and its flag. */
uint8_t grapheme_lookup(uint32_t code_point);

#endif
