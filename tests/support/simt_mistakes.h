/* Kernels that are wrong in one way each; see simt_mistakes.cu. */
#ifndef TESTS_SIMT_MISTAKES_H
#define TESTS_SIMT_MISTAKES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mistake_args {
    const float *in;
    float *out;
    uint32_t *counter;
};

/* The kernel of that name; NULL when there is none. */
const void *mistake_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
