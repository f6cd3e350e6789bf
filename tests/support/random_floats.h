/* Random matrices for the tests of the CPU's products. */
#ifndef TESTS_RANDOM_FLOATS_H
#define TESTS_RANDOM_FLOATS_H

#include <stdlib.h>

#include "harness.h"

static uint32_t random_state = 1;

/* In [-1, 1). */
static inline float next_random(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) * 0x1p-23f - 1.0f;
}

/* Aligned for the kernels; free() releases it. */
static inline void *zeros(size_t bytes)
{
    size_t whole = (bytes + 63) / 64 * 64;
    void *memory = aligned_alloc(64, whole);
    assert_non_null(memory);
    return memset(memory, 0, whole);
}

static inline float *random_floats(size_t count)
{
    float *values = zeros(count * sizeof *values);
    for (size_t i = 0; i < count; i++) { values[i] = next_random(); }
    return values;
}

#endif
