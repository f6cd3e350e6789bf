/* BPE: a piece of text starts as its bytes or its characters, and of all neighbours that may be merged those with the
 * lowest rank are, the leftmost first, until none may.
 *
 * Byte-level files write each byte as one printable character (GPT-2's alphabet); this part turns that back into bytes
 * once, so that text needs no such writing. Files with `byte_fallback` write characters as they are; one that the
 * vocabulary lacks starts as its bytes, written <0x00> to <0xFF>. */
#ifndef MODEL_TOKENIZER_BPE_H
#define MODEL_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/tokenizer/wordpiece.h"

struct bpe;

/* Two tokens that become one, as the file writes them; the rank is the place in the list. */
struct bpe_merge {
    const char *left, *right;
    size_t left_length, right_length;
};

/* Builds a model. A token that no bytes are written as is not found in text. `whole_first`: a piece that is a token is
 * that token, whatever the merges say (`ignore_merges`). `by_letters`: it starts as its characters.
 * Owns: the caller ends it with bpe_close; texts are not kept. Errors: STATUS_UNSUPPORTED when one of the 256 bytes has
 * no token; STATUS_BAD_INPUT when a merge names a token that is not there or makes one; STATUS_NO_MEMORY. */
MUST_CHECK enum status bpe_build(const struct trie_key *tokens, size_t token_count, const struct bpe_merge *merges,
                                 size_t merge_count, bool whole_first, bool by_letters, struct bpe **out,
                                 struct err *err);

/* Frees it. NULL is allowed. */
void bpe_close(struct bpe *bpe);

/* Appends the ids of one piece of at least one byte; by letters it must be UTF-8, and what is behind the last id that
 * there is room for may be left out. Takes O(n log n) time; memory is allocated for long pieces only. Errors: false
 * when there is none. Thread: any, on one model at once. */
MUST_CHECK bool bpe_encode(const struct bpe *bpe, const char *piece, size_t length, struct id_sink *sink);

#endif
