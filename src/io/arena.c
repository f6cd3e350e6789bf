/* A list of blocks: the next one is larger than the last, so that a reply of any size costs few allocations. */
#include "io/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

enum { BLOCK_FIRST = 16 << 10, BLOCK_KEPT = 1 << 20, BLOCK_LARGEST = 4 << 20 };

struct arena_block {
    struct arena_block *older;
    size_t size, used;
    alignas(max_align_t) char bytes[];
};

static struct arena_block *add_block(struct arena *arena, size_t bytes)
{
    size_t size = arena->blocks ? arena->blocks->size * 2 : BLOCK_FIRST;
    if (size > BLOCK_LARGEST) {
        size = BLOCK_LARGEST;
    }
    if (size < bytes) {
        size = bytes;
    }
    if (size > SIZE_MAX - sizeof(struct arena_block)) {
        return NULL;
    }
    struct arena_block *block = malloc(sizeof *block + size);
    if (block) {
        block->older = arena->blocks;
        block->size = size;
        block->used = 0;
        arena->blocks = block;
    }
    return block;
}

void *arena_take(struct arena *arena, size_t bytes)
{
    size_t align = alignof(max_align_t);
    if (bytes > SIZE_MAX - align) {
        return NULL;
    }
    bytes = (bytes + align - 1) / align * align;
    struct arena_block *block = arena->blocks;
    if (!block || block->size - block->used < bytes) {
        block = add_block(arena, bytes);
        if (!block) {
            return NULL;
        }
    }
    void *memory = block->bytes + block->used;
    block->used += bytes;
    arena->used += bytes;
    return memory;
}

size_t arena_used(const struct arena *arena)
{
    return arena->used;
}

static void drop_blocks(struct arena_block *block)
{
    while (block) {
        struct arena_block *older = block->older;
        free(block);
        block = older;
    }
}

void arena_reset(struct arena *arena)
{
    struct arena_block *newest = arena->blocks;
    if (newest && newest->size <= BLOCK_KEPT) {
        drop_blocks(newest->older);
        newest->older = NULL;
        newest->used = 0;
    } else {
        arena_free(arena);
    }
    arena->used = 0;
}

void arena_free(struct arena *arena)
{
    drop_blocks(arena->blocks);
    *arena = (struct arena){0};
}
