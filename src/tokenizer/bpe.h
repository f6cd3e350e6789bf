/* BPE: a piece of text starts as its bytes or its characters; then, of all neighbours that may be merged, those with
 * the lowest rank are merged, the leftmost first, until none are left.
 *
 * Byte-level files write each byte as one printable character (GPT-2's alphabet); tokens are turned back into bytes
 * once, here, so that text need not be written in it. Files with `byte_fallback` write characters as they are; one that
 * the vocabulary lacks starts as its bytes, written <0x00> to <0xFF>. */
#ifndef TOKENIZER_BPE_H
#define TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tokenizer/wordpiece.h"

struct bpe;

/* Two tokens that become one, as the file writes them; the rank is the index in the list. */
struct bpe_merge {
    const char *left, *right;
    size_t left_length, right_length;
};

/* The byte that a character of GPT-2's alphabet stands for, or -1. */
int bpe_byte(uint32_t code_point);

/* Builds a model. A token that is not the spelling of any bytes is never found in text. `whole_first`: a piece that is
 * a token is that token, whatever the merges say (`ignore_merges`). `by_letters`: a piece starts as its characters.
 * Owns: the caller ends it with bpe_close; texts are not kept. Errors: STATUS_UNSUPPORTED when, by letters, one of the
 * 256 bytes has no token; STATUS_BAD_INPUT when a merge names or makes a token that is not in the vocabulary;
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status bpe_build(const struct trie_key *tokens, size_t token_count, const struct bpe_merge *merges,
                                 size_t merge_count, bool whole_first, bool by_letters, struct bpe **out,
                                 struct err *err);

/* The first byte without a token, which is left out of pieces; -1: there is none. */
int bpe_missing_byte(const struct bpe *bpe);

/* Frees it. NULL is allowed. */
void bpe_close(struct bpe *bpe);

/* Appends the ids of one piece of at least one byte; by letters it must be UTF-8. Ids for which the sink has no room
 * may be left out. Takes O(n log n) time; memory is allocated for long pieces only. Errors: false when memory ran out.
 * Thread: any, on one model at once. */
MUST_CHECK bool bpe_encode(const struct bpe *bpe, const char *piece, size_t length, struct id_sink *sink);

#endif
