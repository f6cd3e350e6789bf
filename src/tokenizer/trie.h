/* A read-only set of byte strings with ids that finds the longest of them at the start of a text: a double-array trie,
 * one memory access per byte. */
#ifndef TOKENIZER_TRIE_H
#define TOKENIZER_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The child of node n for byte b is the slot base(n) + b, and it is n's child only if its mark is b's: no two nodes
 * have the same base. All zeros is a free slot. */
struct trie_slot {
    uint64_t base : 27; /* the children's slots are counted from here; never 0 if there are some */
    uint64_t taken : 1; /* some node counts its children from here */
    uint64_t mark : 9;  /* the byte that leads here, plus 1 */
    uint64_t id : 27;   /* plus 1; 0 if no key ends here */
};

struct trie {
    struct trie_slot *slots;
    size_t count; /* every base + 255 is below it */
};

/* One string of the set. */
struct trie_key {
    const char *bytes; /* not empty */
    size_t length;
    int32_t id; /* not negative, below TRIE_MAX_ID */
};

enum { TRIE_NONE = -1, TRIE_ROOT = 0, TRIE_MAX_ID = (1 << 27) - 1 };

/* Builds a trie over keys that are all different; sorts the array.
 * Owns: the caller ends it with trie_close; the keys' bytes are not kept. Errors: STATUS_NO_MEMORY; STATUS_BAD_INPUT
 * when a key is empty or occurs twice, or an id is too high. */
MUST_CHECK enum status trie_build(struct trie_key *keys, size_t count, struct trie **out, struct err *err);

/* Frees it. NULL is allowed. */
void trie_close(struct trie *trie);

/* The node after one byte, or TRIE_NONE. */
static inline int32_t trie_child(const struct trie *trie, int32_t node, char byte)
{
    uint32_t child = trie->slots[node].base + (unsigned char)byte;
    return trie->slots[child].mark == (unsigned char)byte + 1u ? (int32_t)child : TRIE_NONE;
}

/* The id of the key that ends at a node, or TRIE_NONE. */
static inline int32_t trie_id(const struct trie *trie, int32_t node)
{
    return (int32_t)trie->slots[node].id - 1;
}

/* Follows bytes from `node` on. Returns the node after them, or TRIE_NONE. */
int32_t trie_walk(const struct trie *trie, int32_t node, const char *bytes, size_t length);

/* Finds the longest key remainder below `node` (of at least one byte) that `bytes` starts with. `node` may be
 * TRIE_NONE. Returns its id and sets `*matched` to its bytes, or returns TRIE_NONE. */
int32_t trie_longest(const struct trie *trie, int32_t node, const char *bytes, size_t length, size_t *matched);

/* The id of exactly these bytes, or TRIE_NONE. */
int32_t trie_find(const struct trie *trie, const char *bytes, size_t length);

#endif
