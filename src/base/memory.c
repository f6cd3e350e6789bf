#include "base/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, HUGE_BYTES = 2 << 20 };

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

void *memory_aligned(size_t bytes)
{
    size_t unit = bytes < HUGE_BYTES ? ALIGNMENT : HUGE_BYTES;
    size_t whole = bytes == 0 ? unit : round_up(bytes, unit);
    void *memory = aligned_alloc(unit, whole);
    if (memory != NULL && unit == HUGE_BYTES)
        (void)madvise(memory, whole, MADV_HUGEPAGE); /* small pages will do where it is refused */
    return memory;
}

void *memory_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_BYTES)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

void memory_unmap(void *memory, size_t bytes)
{
    if (memory != NULL)
        (void)munmap(memory, bytes);
}

void *memory_part(char *block, size_t *used, size_t bytes)
{
    void *at = block == NULL ? NULL : block + *used;
    *used += round_up(bytes, ALIGNMENT);
    return at;
}
