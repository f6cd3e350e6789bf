/* See cpu_memory.h. */
#include "engine/cpu_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, HUGE_BYTES = 2 << 20 };

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

void *cpu_memory(size_t bytes)
{
    if (bytes < HUGE_BYTES)
        return aligned_alloc(ALIGNMENT, round_up(bytes + ALIGNMENT, ALIGNMENT));
    size_t whole = round_up(bytes, HUGE_BYTES);
    void *memory = aligned_alloc(HUGE_BYTES, whole);
    if (memory != NULL)
        (void)madvise(memory, whole, MADV_HUGEPAGE); /* small pages will do where it is refused */
    return memory;
}

void *cpu_memory_part(char *block, size_t *used, size_t bytes)
{
    void *at = block == NULL ? NULL : block + *used;
    *used += round_up(bytes, ALIGNMENT);
    return at;
}
