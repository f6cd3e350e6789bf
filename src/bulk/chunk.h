/* Cutting long texts into chunks that the model takes whole. */
#ifndef BULK_CHUNK_H
#define BULK_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "model/model.h"

/* How; tokens 0: not at all. */
struct chunking {
    uint32_t tokens;  /* at most so many in a chunk, special tokens and prompt included */
    uint32_t overlap; /* about so many at the end of a chunk are at the beginning of the next one, too */
    bool mean;        /* one vector for a document, the mean of its chunks' */
};

/* A part of a text. */
struct chunk {
    size_t begin, end; /* bytes */
};

/* Reads "tokens:256,overlap:32,mean"; parts in any order, `tokens` is required.
 * Errors: STATUS_BAD_INPUT saying what is wrong with it. */
MUST_CHECK enum status chunking_parse(const char *text, struct chunking *out, struct err *err);

/* Cuts a text at ends of sentences where possible, else between words, else inside one. Every byte but white space at
 * the cuts is in a chunk; a text has at least one. Appends struct chunk to `chunks`; `scratch` is the thread's.
 * Errors: STATUS_NO_MEMORY; STATUS_BAD_INPUT (not UTF-8). Thread: any. */
MUST_CHECK enum status chunk_cut(const struct chunking *chunking, const struct model *model, const char *text,
                                 size_t length, struct buffer *chunks, struct buffer *scratch, struct err *err);

#endif
