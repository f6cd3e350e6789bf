/* Tracks the characters that a normaliser produces from the first character of a text. Metaspace's scheme `first` puts
 * its mark before a piece that begins with one of them: `tokenizers` keeps, for each character of the normal form, the
 * place in the text that it came from, and checks whether that is 0. Here only the front of the normal form is tracked,
 * because only there it can be 0.
 *
 * Source: NormalizedString in tokenizers 0.23. A step replaces characters of its input by others one by one; an
 * inserted character has the place of the last character that was read before it. */
#ifndef TOKENIZER_ORIGIN_H
#define TOKENIZER_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/utf8.h"

/* Follows one step. Set `text`, its input, whose first `front` bytes came from the first character; leave the others
 * zero. A pointer that is NULL follows nothing. */
struct origin {
    const char *text;
    size_t front;
    size_t read;       /* bytes of the input that the output so far replaces */
    size_t made;       /* bytes of the output that came from the first character, so far */
    size_t bytes;      /* bytes of the last character of the output, which is not counted in `read` and `made` yet */
    size_t characters; /* and the number of input characters that it replaces */
    bool ended;        /* the following text came from other characters */
};

/* Counts the last character of the output, now that nothing can be added to it. Returns `made`, the step's result. */
static inline size_t origin_end(struct origin *origin)
{
    size_t from = origin->characters > 0 || origin->read == 0 ? origin->read : origin->read - 1;
    if (origin->bytes == 0 || origin->ended) { return origin->made; }
    origin->ended = from >= origin->front;
    if (!origin->ended) { origin->made += origin->bytes; }
    while (origin->characters > 0 && !origin->ended) {
        utf8_next(origin->text, &origin->read);
        origin->characters--;
    }
    origin->bytes = 0;
    return origin->made;
}

/* A character of `bytes` bytes replaces `characters` characters of the input; 0: it is inserted. */
static inline void origin_put(struct origin *origin, size_t bytes, size_t characters)
{
    if (!origin || origin->ended) { return; }
    origin_end(origin);
    origin->bytes = bytes;
    origin->characters = characters;
}

/* Text is kept as it is. */
static inline void origin_keep(struct origin *origin, const char *text, size_t length)
{
    for (size_t at = 0; origin && !origin->ended && at < length;) {
        size_t from = at;
        utf8_next(text, &at);
        origin_put(origin, at - from, 1);
    }
}

/* Characters of the input are removed. Those before the first that is kept are not counted, which reproduces an error
 * of the package. */
static inline void origin_drop(struct origin *origin, size_t characters)
{
    if (origin && origin->bytes > 0) { origin->characters += characters; }
}

#endif
