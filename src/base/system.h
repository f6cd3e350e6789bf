/* Memory for large data such as weights and activations, which is read or written from end to end. */
#ifndef BASE_SYSTEM_H
#define BASE_SYSTEM_H

#include <stddef.h>

/* Memory aligned for vectors, or NULL when there is none. Large blocks ask for huge pages: first touching small ones
 * costs as much as a copy of what they hold, and a forward pass spends a tenth of its time looking up where they are
 * (more in a virtual machine). Owns: the caller ends it with free. */
void *memory_aligned(size_t bytes);

/* Zeros in whole pages, huge ones for large blocks, or NULL when there is no memory: for tables that grow, as what is
 * given back is the system's at once and leaves no gap behind. Owns: the caller ends it with memory_unmap. */
void *memory_map(size_t bytes);

/* Gives back memory_map's block of so many bytes. NULL is allowed. */
void memory_unmap(void *memory, size_t bytes);

/* Hands out the next part of a block, aligned for vectors, or only counts when there is no block yet. */
void *memory_part(char *block, size_t *used, size_t bytes);

/* How much a thread insists on a core, where the kernel shares the cores out. Only downwards, which needs no rights,
 * and for good: the way back would need them. */

/* The calling thread takes what is left of its core: a sixtieth where others want it, and it leaves it at once to
 * a thread that wakes up. Where the kernel refuses, all stays as it was: that costs latency only. Thread: any. */
void priority_idle(void);

/* The calling thread, and those that it starts from now on, take a tenth of a core where others want all of it. */
void priority_background(void);

#endif
