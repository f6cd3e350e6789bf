/* Memory for much data, such as weights and activations, that is gone through from end to end or written all over. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>

/* Memory aligned for vectors, or NULL when there is none. Large blocks ask for huge pages: first touching small ones
 * costs as much as a copy of what they hold, and a forward pass spends a tenth of its time looking up where they are
 * (more in a virtual machine). Owns: the caller ends it with free. */
void *memory_aligned(size_t bytes);

/* Hands out the next part of a block, aligned for vectors, or only counts when there is no block yet. */
void *memory_part(char *block, size_t *used, size_t bytes);

#endif
