/* A read-only set of byte strings with ids that finds the longest of them at the start of a text: a double-array trie,
 * one memory access per byte. */
#ifndef MODEL_TOKENIZER_TRIE_H
#define MODEL_TOKENIZER_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct trie;

/* One string of the set. */
struct trie_key {
    const char *bytes; /* not empty */
    size_t length;
    int32_t id; /* not negative */
};

enum { TRIE_NONE = -1, TRIE_ROOT = 0 };

/* Builds a trie over keys that are all different; sorts the array.
 * Owns: the caller ends it with trie_close; the keys' bytes are not kept. Errors: STATUS_NO_MEMORY; STATUS_BAD_INPUT
 * when a key is empty or occurs twice. */
MUST_CHECK enum status trie_build(struct trie_key *keys, size_t count, struct trie **out, struct err *err);

/* Frees it. NULL is allowed. */
void trie_close(struct trie *trie);

/* Follows bytes from `node` on. Returns the node behind them, or TRIE_NONE. */
int32_t trie_walk(const struct trie *trie, int32_t node, const char *bytes, size_t length);

/* Finds the longest key remainder below `node` (of at least one byte) that `bytes` starts with. `node` may be
 * TRIE_NONE. Returns its id and sets `*matched` to its bytes, or returns TRIE_NONE. */
int32_t trie_longest(const struct trie *trie, int32_t node, const char *bytes, size_t length, size_t *matched);

/* The id of exactly these bytes, or TRIE_NONE. */
int32_t trie_find(const struct trie *trie, const char *bytes, size_t length);

#endif
