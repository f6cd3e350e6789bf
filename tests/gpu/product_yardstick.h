/* The speed of cuBLASLt on bare matrix products: the yardstick by which the engine's operations per second are divided.
 */
#ifndef TESTS_GPU_PRODUCT_YARDSTICK_H
#define TESTS_GPU_PRODUCT_YARDSTICK_H

#include "gpu_run.h"

/* Measures for each shape "ROWSxOUTPUTSxINPUTS" the fastest of the algorithms that the library offers, on random
 * numbers, and prints {"shape": "8192x8192x8192", "precision": "f16", "tflops": [t, ...]}, a figure for each round.
 * Returns the process' exit code: 77 where the build or the machine has no CUDA. */
int product_yardstick(const struct engine_options *options, const struct gpu_timing *timing, char *const *shapes,
                      uint32_t count);

#endif
