/* Memory for weights and activations. Large blocks ask for huge pages: a pass touches all weights once, and with small
 * pages the processor spends a tenth of the time looking up where they are (more in a virtual machine). */
#ifndef ENGINE_CPU_MEMORY_H
#define ENGINE_CPU_MEMORY_H

#include <stddef.h>

/* Memory aligned for vectors, or NULL. Owns: the caller ends it with free. */
void *cpu_memory(size_t bytes);

/* Hands out the next part of a block, aligned for vectors, or only counts when there is no block yet. */
void *cpu_memory_part(char *block, size_t *used, size_t bytes);

#endif
