/* Tracks the places that the characters of a normal form came from, in the text before it was normalised. Two callers
 * ask: Metaspace's scheme `first` puts its mark before a piece whose place is the beginning of the text, for which it
 * is enough to know how much of the front of the normal form came from the first character; and tokenizer_tokens asks
 * for the place of every byte.
 *
 * Source: NormalizedString in tokenizers 0.23. A step replaces characters of its input by others one by one; an
 * inserted character has the place of the last character that was read before it. */
#ifndef TOKENIZER_ORIGIN_H
#define TOKENIZER_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/utf8.h"

/* The bytes from .. until-1 of a text. */
struct span {
    uint32_t from, until;
};

/* Appends the place of `bytes` bytes. Errors: the buffer is broken. */
static inline void spans_put(struct buffer *to, struct span span, size_t bytes)
{
    struct span *end = (struct span *)(void *)buffer_reserve(to, bytes * sizeof span);
    if (!end) { return; }
    for (size_t i = 0; i < bytes; i++) { end[i] = span; }
    to->length += bytes * sizeof span;
}

/* Follows one step. Set `text`, its input, whose first `front` bytes came from the first character, and if places are
 * asked for, the three members after it; leave the others zero. A pointer that is NULL follows nothing. */
struct origin {
    const char *text;
    size_t front;
    const struct span *places; /* of each byte of the input; NULL: not asked for */
    struct buffer *to;         /* the same of the output */
    uint32_t start;            /* the place of what is inserted before anything is read */
    size_t read;               /* bytes of the input that the output so far replaces */
    size_t made;               /* bytes of the output that came from the first character, so far */
    size_t bytes;      /* bytes of the last character of the output, which is not counted in `read` and `made` yet */
    size_t characters; /* and the number of input characters that it replaces */
    bool ended;        /* the following text came from other characters */
};

/* True if more calls can change something. */
static inline bool origin_follows(const struct origin *origin)
{
    return origin && (origin->places || !origin->ended);
}

/* Counts the last character of the output, now that nothing can be added to it. Returns `made`, the step's result. */
static inline size_t origin_end(struct origin *origin)
{
    if (origin->bytes == 0) { return origin->made; }
    bool before = origin->characters == 0 && origin->read == 0; /* inserted before anything was read */
    size_t from = origin->characters > 0 || before ? origin->read : origin->read - 1;
    origin->ended |= from >= origin->front;
    if (!origin->ended) { origin->made += origin->bytes; }
    if (origin->places) {
        spans_put(origin->to, before ? (struct span){origin->start, origin->start} : origin->places[from],
                  origin->bytes);
    }
    for (; origin->characters > 0 && origin_follows(origin); origin->characters--) {
        utf8_next(origin->text, &origin->read);
    }
    origin->bytes = 0;
    return origin->made;
}

/* A character of `bytes` bytes replaces `characters` characters of the input; 0: it is inserted. */
static inline void origin_put(struct origin *origin, size_t bytes, size_t characters)
{
    if (!origin_follows(origin)) { return; }
    origin_end(origin);
    origin->bytes = bytes;
    origin->characters = characters;
}

/* Text is kept as it is. */
static inline void origin_keep(struct origin *origin, const char *text, size_t length)
{
    for (size_t at = 0; at < length && origin_follows(origin);) {
        size_t from = at;
        utf8_next(text, &at);
        origin_put(origin, at - from, 1);
    }
}

/* The next `bytes` bytes of the input are removed. */
static inline void origin_skip(struct origin *origin, size_t bytes)
{
    if (!origin_follows(origin)) { return; }
    origin_end(origin);
    origin->read += bytes;
}

/* Text is inserted. */
static inline void origin_insert(struct origin *origin, const char *text)
{
    for (size_t at = 0; text[at] && origin_follows(origin);) {
        size_t from = at;
        utf8_next(text, &at);
        origin_put(origin, at - from, 0);
    }
}

/* Precompiled removes characters of the input: the last character of the output replaces them, too. Those before the
 * first that is kept are not counted, which reproduces an error of the package. */
static inline void origin_drop(struct origin *origin, size_t characters)
{
    if (origin && origin->bytes > 0) { origin->characters += characters; }
}

#endif
