/* The processor in words, for whoever keeps what was measured on it. */
#ifndef ENGINE_CPU_DESCRIBE_H
#define ENGINE_CPU_DESCRIBE_H

#include <stddef.h>

/* "Intel(R) Xeon(R) ..., amx, 2 threads": its model, the kernels that run on it, and how many threads this process may
 * keep busy, because they share caches and memory. */
void cpu_describe(const char *kernels, char *out, size_t size);

#endif
