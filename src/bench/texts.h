/* Texts to measure with: made up, with a known number of tokens and no two alike; or the lines of a file. */
#ifndef BENCH_TEXTS_H
#define BENCH_TEXTS_H

#include "base/buffer.h"
#include "model/model.h"

enum { TEXTS_WORDS = 96 };

/* Where the texts come from. */
struct texts {
    const char *words[TEXTS_WORDS]; /* [word_count], each one token */
    uint32_t word_count;
    uint32_t around;  /* tokens that stand around every text: the special ones, a prompt */
    uint32_t tokens;  /* of each text; 0: of mixed lengths */
    uint32_t longest; /* of mixed ones */
    struct buffer file;
    const char **lines; /* [line_count], each ended by a NUL; NULL: made up */
    size_t line_count;
};

/* Texts of so many tokens, the special ones included; 0 for mixed lengths: many short ones and few long ones, from 6
 * to 200 tokens (or what the model takes), 56 on average. Owns: the caller ends it with texts_close; `model` is not
 * kept. Errors: STATUS_BAD_INPUT (more tokens than the model takes; a vocabulary without common words). */
MUST_CHECK enum status texts_open(const struct model *model, uint32_t tokens, struct texts *out, struct err *err);

/* The lines of a file, over and over. Errors: those of file_read; STATUS_BAD_INPUT (it has none, or is not UTF-8). */
MUST_CHECK enum status texts_read(const char *path, struct texts *out, struct err *err);

/* Frees what was read. */
void texts_close(struct texts *texts);

/* Writes text number `number` in place of what is in `out`, the same for the same number. */
void texts_put(const struct texts *texts, uint64_t number, struct buffer *out);

#endif
