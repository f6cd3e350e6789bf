/* What cuBLASLt reaches on bare matrix products: the yardstick that the engine's operations per second are divided by.
 */
#ifndef TESTS_GPU_PRODUCT_YARDSTICK_H
#define TESTS_GPU_PRODUCT_YARDSTICK_H

#include "gpu_run.h"

/* For each shape "ROWSxOUTPUTSxINPUTS": the fastest of the algorithms that the library offers, on random numbers, as
 * the median of the rounds: {"shape": "8192x8192x8192", "precision": "f16", "tflops": [t, ...]}, a figure for each
 * round. Returns the process' exit code: 77 where the build or the machine has no CUDA. */
int product_yardstick(const struct engine_options *options, const struct gpu_timing *timing, char *const *shapes,
                      uint32_t count);

#endif
