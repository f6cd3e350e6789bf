/* Texts to measure with: generated, all different, of a known number of tokens; or the lines of a file. */
#ifndef BENCH_TEXTS_H
#define BENCH_TEXTS_H

#include "base/buffer.h"
#include "model/model.h"

enum { TEXTS_WORDS = 96 };

/* The source of the texts. */
struct texts {
    const char *words[TEXTS_WORDS]; /* [word_count], each one token */
    uint32_t word_count;
    uint32_t around;  /* tokens around every text: special ones and a prompt */
    uint32_t tokens;  /* per text; 0: mixed lengths */
    uint32_t longest; /* the longest of mixed lengths */
    struct buffer file;
    const char **lines; /* [line_count], each ended by a NUL; NULL: made-up texts */
    size_t line_count;
};

/* Makes texts of this many tokens, special ones included. 0: mixed lengths from 6 to 200 tokens (or to the model's
 * limit), many short and few long, 56 on average.
 * Owns: the caller ends it with texts_close; `model` is not kept. Errors: STATUS_BAD_INPUT (more tokens than the model
 * takes; a vocabulary without common words). */
MUST_CHECK enum status texts_open(const struct model *model, uint32_t tokens, struct texts *out, struct err *err);

/* Repeats the lines of a file. Errors: those of file_read; STATUS_BAD_INPUT (no lines, or not UTF-8). */
MUST_CHECK enum status texts_read(const char *path, struct texts *out, struct err *err);

/* Frees the lines of a file. */
void texts_close(struct texts *texts);

/* Replaces `out` with text `number`; the same number gives the same text. */
void texts_put(const struct texts *texts, uint64_t number, struct buffer *out);

#endif
