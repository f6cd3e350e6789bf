/* Which block of the pool of keys and values belongs to which sequence. It knows numbers only; the decoder has the
 * memory.
 *
 * A sequence has a table: block of position p is blocks[p / BLOCK_TOKENS]. A block whose tokens are all computed is
 * published: later sequences that begin with the same tokens share it. It stays in the pool after its last sequence has
 * ended, until the pool needs the block; the one that was used least recently goes first. Nobody writes into a
 * published block, so sharing needs no copies.
 *
 * Nothing is allocated after blocks_open. Thread: one at a time. */
#ifndef GENERATE_BLOCKS_H
#define GENERATE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { BLOCK_TOKENS = 16 };

struct blocks;

/* The blocks of a sequence. All zero, with memory for its numbers, is an empty one. */
struct block_table {
    uint32_t *blocks; /* the sequence's memory: as many as it will ever have */
    uint32_t count;
    uint32_t published; /* the first `published` of them are */
    uint64_t chain;     /* names the tokens of the published ones, in the pool */
};

/* The blocks that hold this many tokens. */
static inline uint32_t blocks_for(uint32_t tokens)
{
    return (uint32_t)(((uint64_t)tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
}

/* Makes a pool of `count` free blocks, numbered from 0. Owns: the caller ends it with blocks_close. Errors:
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status blocks_open(uint32_t count, struct blocks **out, struct err *err);

/* Frees it. NULL is allowed. */
void blocks_close(struct blocks *blocks);

/* The blocks in the pool, and those that no sequence uses, published or not. */
uint32_t blocks_total(const struct blocks *blocks);
uint32_t blocks_free(const struct blocks *blocks);

/* Fills an empty table with `wanted` blocks, at least blocks_for(count): first the published ones that hold the
 * beginning of ids[count], but at least the last token is left to compute. `*shared`: the tokens that are computed
 * already, a multiple of BLOCK_TOKENS. `share` false: none. False, and nothing has changed: the pool has too few. */
MUST_CHECK bool blocks_begin(struct blocks *blocks, struct block_table *table, const int32_t *ids, uint32_t count,
                             uint32_t wanted, bool share, uint32_t *shared);

/* Appends blocks until the table has `wanted`. False, and nothing has changed: the pool has too few. */
MUST_CHECK bool blocks_extend(struct blocks *blocks, struct block_table *table, uint32_t wanted);

/* Publishes the table's blocks whose tokens are all among the first `computed` of ids. */
void blocks_publish(struct blocks *blocks, struct block_table *table, const int32_t *ids, uint32_t computed);

/* Gives all blocks of a table back and leaves it empty. */
void blocks_end(struct blocks *blocks, struct block_table *table);

#endif
