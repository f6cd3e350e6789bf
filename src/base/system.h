/* Memory for large data such as weights and activations, which is read or written from end to end. */
#ifndef BASE_SYSTEM_H
#define BASE_SYSTEM_H

#include <pthread.h>
#include <stddef.h>

/* Memory aligned for vectors, or NULL when there is none. Large blocks ask for huge pages: first touching small ones
 * costs as much as a copy of what they hold, and a forward pass spends a tenth of its time looking up where they are
 * (more in a virtual machine). Owns: the caller ends it with free. */
void *memory_aligned(size_t bytes);

/* Zeros in whole pages, huge ones for large blocks, or NULL when there is no memory: for tables that grow, because a
 * freed block goes back to the system at once and leaves no gap. Owns: the caller ends it with memory_unmap. */
void *memory_map(size_t bytes);

/* Gives back the whole pages in a range of memory that is still allocated but no longer read. */
void memory_release(const void *first, size_t bytes);

/* Gives back a block of memory_map that has this many bytes. NULL is allowed. */
void memory_unmap(void *memory, size_t bytes);

/* Hands out the next part of a block, aligned for vectors, or only counts when there is no block yet. */
void *memory_part(char *block, size_t *used, size_t bytes);

/* The share of a core that a thread gets while others use it, too. It can only be lowered, which needs no rights, and
 * for good: raising it again would need them. */

/* The calling thread takes what others leave of its core: a sixtieth if they use all of it, and it gives it up at once
 * to a thread that wakes up. If the kernel refuses, nothing changes: that costs latency only. Thread: any. */
void priority_idle(void);

/* Starts a thread with all signals blocked, which other threads handle. Returns 0, or the error as errno has it. */
int thread_start(pthread_t *thread, void *(*run)(void *context), void *context);

/* The calling thread, and those that it starts from now on, take a tenth of a core if others use all of it. */
void priority_background(void);

#endif
