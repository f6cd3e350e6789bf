#include "generate/blocks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

/* No block. */
#define NONE UINT32_MAX

struct block {
    uint32_t references;
    uint32_t before, after; /* in the list of free blocks, if it has no references */
    uint32_t next;          /* in its bucket, if it is published */
    /* The serial number of its publication, 0: it is not published; and that of the block before it, 0: it is the
     * first. Serial numbers are never used again, so `parent` and `ids` together name all tokens up to the block's end
     * exactly; the hash only finds it. */
    uint64_t serial, parent;
    int32_t ids[BLOCK_TOKENS];
};

struct blocks {
    struct block *blocks; /* [total] */
    uint32_t *buckets;    /* [mask + 1]: the first published block */
    uint32_t total, free, mask;
    uint32_t head, tail; /* of the free blocks: the head is taken next, so plain ones precede published ones */
    uint64_t serials;    /* given out */
};

enum status blocks_open(uint32_t count, struct blocks **out, struct err *err)
{
    *out = NULL;
    uint32_t buckets = 1;
    while (buckets < count) { buckets *= 2; }
    struct blocks *blocks = calloc(1, sizeof *blocks);
    if (blocks) {
        blocks->blocks = calloc(count ? count : 1, sizeof *blocks->blocks);
        blocks->buckets = malloc(buckets * sizeof *blocks->buckets);
    }
    if (!blocks || !blocks->blocks || !blocks->buckets) {
        blocks_close(blocks);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the table of %u blocks", count);
    }
    blocks->mask = buckets - 1;
    for (uint32_t i = 0; i < buckets; i++) { blocks->buckets[i] = NONE; }
    blocks->total = blocks->free = count;
    blocks->head = count > 0 ? 0 : NONE;
    blocks->tail = count > 0 ? count - 1 : NONE;
    for (uint32_t i = 0; i < count; i++) {
        blocks->blocks[i].before = i > 0 ? i - 1 : NONE;
        blocks->blocks[i].after = i + 1 < count ? i + 1 : NONE;
    }
    *out = blocks;
    return STATUS_OK;
}

void blocks_close(struct blocks *blocks)
{
    if (!blocks) { return; }
    free(blocks->blocks);
    free(blocks->buckets);
    free(blocks);
}

uint32_t blocks_total(const struct blocks *blocks)
{
    return blocks->total;
}

uint32_t blocks_free(const struct blocks *blocks)
{
    return blocks->free;
}

static uint32_t *find_bucket(struct blocks *blocks, uint64_t parent, const int32_t ids[BLOCK_TOKENS])
{
    uint64_t hash = parent;
    for (unsigned i = 0; i < BLOCK_TOKENS; i++) {
        hash ^= (uint32_t)ids[i];
        hash = random_next(&hash);
    }
    return &blocks->buckets[hash & blocks->mask];
}

/* The published block of these tokens after those that `parent` names, or NONE. */
static uint32_t find_published(struct blocks *blocks, uint64_t parent, const int32_t ids[BLOCK_TOKENS])
{
    uint32_t number = *find_bucket(blocks, parent, ids);
    for (; number != NONE; number = blocks->blocks[number].next) {
        const struct block *block = &blocks->blocks[number];
        if (block->parent == parent && memcmp(block->ids, ids, sizeof block->ids) == 0) { break; }
    }
    return number;
}

static void forget_published(struct blocks *blocks, uint32_t number)
{
    struct block *block = &blocks->blocks[number];
    uint32_t *link = find_bucket(blocks, block->parent, block->ids);
    while (*link != number) { link = &blocks->blocks[*link].next; }
    *link = block->next;
    block->serial = 0;
}

/* Takes a reference, the first of which takes the block out of the list of free ones. */
static void take_reference(struct blocks *blocks, uint32_t number)
{
    struct block *block = &blocks->blocks[number];
    if (block->references++ > 0) { return; }
    *(block->before == NONE ? &blocks->head : &blocks->blocks[block->before].after) = block->after;
    *(block->after == NONE ? &blocks->tail : &blocks->blocks[block->after].before) = block->before;
    blocks->free--;
}

/* Gives a reference back, the last of which frees the block: a published one as the last to be taken again. */
static void drop_reference(struct blocks *blocks, uint32_t number)
{
    struct block *block = &blocks->blocks[number];
    assert(block->references > 0);
    if (--block->references > 0) { return; }
    block->before = block->serial > 0 ? blocks->tail : NONE;
    block->after = block->serial > 0 ? NONE : blocks->head;
    *(block->before == NONE ? &blocks->head : &blocks->blocks[block->before].after) = number;
    *(block->after == NONE ? &blocks->tail : &blocks->blocks[block->after].before) = number;
    blocks->free++;
}

bool blocks_extend(struct blocks *blocks, struct block_table *table, uint32_t wanted)
{
    if (wanted <= table->count) { return true; }
    if (wanted - table->count > blocks->free) { return false; }
    while (table->count < wanted) {
        uint32_t number = blocks->head;
        if (blocks->blocks[number].serial > 0) { forget_published(blocks, number); }
        take_reference(blocks, number);
        table->blocks[table->count++] = number;
    }
    return true;
}

bool blocks_begin(struct blocks *blocks, struct block_table *table, const int32_t *ids, uint32_t count, uint32_t wanted,
                  bool share, uint32_t *shared)
{
    assert(table->count == 0 && count > 0 && wanted >= blocks_for(count));
    uint32_t found = 0, unused = 0;
    uint64_t chain = 0;
    *shared = 0;
    while (share && (found + 1) * BLOCK_TOKENS < count) {
        uint32_t number = find_published(blocks, chain, ids + found * BLOCK_TOKENS);
        if (number == NONE) { break; }
        unused += blocks->blocks[number].references == 0;
        chain = blocks->blocks[number].serial;
        table->blocks[found++] = number;
    }
    if (wanted - found + unused > blocks->free) { return false; }
    for (uint32_t i = 0; i < found; i++) { take_reference(blocks, table->blocks[i]); }
    table->count = table->published = found;
    table->chain = chain;
    *shared = found * BLOCK_TOKENS;
    bool extended = blocks_extend(blocks, table, wanted);
    assert(extended);
    return extended;
}

void blocks_publish(struct blocks *blocks, struct block_table *table, const int32_t *ids, uint32_t computed)
{
    while ((table->published + 1) * BLOCK_TOKENS <= computed) {
        const int32_t *own = ids + table->published * BLOCK_TOKENS;
        uint32_t number = find_published(blocks, table->chain, own);
        if (number == NONE) { /* else another sequence has published the same: this copy stays a plain block */
            number = table->blocks[table->published];
            struct block *block = &blocks->blocks[number];
            uint32_t *bucket = find_bucket(blocks, table->chain, own);
            memcpy(block->ids, own, sizeof block->ids);
            block->parent = table->chain;
            block->serial = ++blocks->serials;
            block->next = *bucket;
            *bucket = number;
        }
        table->chain = blocks->blocks[number].serial;
        table->published++;
    }
}

void blocks_end(struct blocks *blocks, struct block_table *table)
{
    /* The last block first: the beginning of a text is what others share, so it is to stay longest. */
    while (table->count > 0) { drop_reference(blocks, table->blocks[--table->count]); }
    table->published = 0;
    table->chain = 0;
}
