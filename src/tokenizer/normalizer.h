/* BERT's text normalisation, one character at a time, so that a long text is read only as far as needed.
 *
 * The steps, in the package's order: cleaning, blanks around CJK, decomposition, accent stripping, lower case; the word
 * splitter uses the character classes of the result. */
#ifndef TOKENIZER_NORMALIZER_H
#define TOKENIZER_NORMALIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The steps applied to a text; each as the field of that name in the tokenizer's files. */
struct normalizer_options {
    bool clean_text;
    bool handle_chinese_chars;
    bool strip_accents;
    bool lowercase;
};

/* A character's contribution to the words of a text. */
enum normal_kind {
    NORMAL_NOTHING,  /* it is removed */
    NORMAL_TEXT,     /* one character of a word */
    NORMAL_SPACE,    /* the end of a word */
    NORMAL_ISOLATED, /* one character that is a word of its own */
    NORMAL_COMPLEX,  /* anything else: ask normalizer_expand */
};

/* The result in the common case, of a character below U+10000: the UTF-8 of one character. */
struct normal_entry {
    uint8_t kind;
    uint8_t length; /* 1..3 */
    char bytes[4];
};

/* One character of the result. A removed accent of combining class 0 is reported as NORMAL_BREAK, because marks are not
 * sorted across it. */
struct normal_character {
    uint32_t code_point;
    uint8_t order; /* combining class; 0 if nothing is decomposed, and so nothing sorted */
};

#define NORMAL_BREAK UINT32_MAX
enum { NORMAL_TABLE = 0x10000, NORMAL_MAX_CHARACTERS = 8 };

/* Read-only once it is made, so that every thread may use it. */
struct normalizer {
    struct normalizer_options options;
    struct normal_entry table[NORMAL_TABLE];
};

/* Makes a normaliser and its table. Owns: the caller ends it with normalizer_close.
 * Errors: NULL when memory ran out. */
struct normalizer *normalizer_open(struct normalizer_options options);

/* Frees it. NULL is allowed. */
void normalizer_close(struct normalizer *normalizer);

/* Writes the characters that one character becomes, before sorting. Shapes: to [NORMAL_MAX_CHARACTERS], the returned
 * number written. */
size_t normalizer_expand(const struct normalizer_options *options, uint32_t code_point, struct normal_character *to);

/* Inserts a character into UTF-8 text whose marks from `run` on are sorted, after those of its class and before higher
 * ones. Shapes: text [length + 4]; the returned number of bytes is added. */
size_t normalizer_insert(char *text, size_t run, size_t length, struct normal_character character);

#endif
