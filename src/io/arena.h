/* Memory for one reply of Redis: taken piece by piece, given back all at once. Zero-initialise, arena_free to end. */
#ifndef IO_ARENA_H
#define IO_ARENA_H

#include <stddef.h>

struct arena_block;

/* What was taken so far. */
struct arena {
    struct arena_block *blocks; /* the newest first */
    size_t used;
};

/* Returns aligned memory that lives until arena_reset, or NULL when there is none. */
void *arena_take(struct arena *arena, size_t bytes);

/* Bytes taken since the last reset. */
size_t arena_used(const struct arena *arena);

/* Takes everything back; keeps one block of ordinary size for the next reply. */
void arena_reset(struct arena *arena);

/* Gives all memory back and leaves an empty arena. */
void arena_free(struct arena *arena);

#endif
