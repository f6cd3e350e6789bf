/* In a build without CUDA. */
#include <stdio.h>

#include "product_yardstick.h"

int product_yardstick(const struct engine_options *options, const struct gpu_timing *timing, char *const *shapes,
                      uint32_t count)
{
    (void)options, (void)timing, (void)shapes, (void)count;
    fprintf(stderr, "gpu_check: this build has no CUDA\n");
    return 77;
}
