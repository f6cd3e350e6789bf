/* Pooling in plain f64: the reference for the numbers of the engine and of the device's kernel. */
#ifndef TESTS_POOL_REFERENCE_H
#define TESTS_POOL_REFERENCE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "../../src/model/pooling.h"

/* One number of a text's vector. Shapes: x [rows], `stride` apart: the column of its tokens. */
static inline double pool_reference(enum pooling pooling, const double *x, size_t stride, uint32_t rows)
{
    double sum = 0, weighted = 0, most = -INFINITY, n = rows;
    for (uint32_t r = 0; r < rows; r++) {
        double value = x[r * stride];
        sum += value;
        weighted += value * (r + 1) / (n * (n + 1) / 2);
        most = fmax(most, value);
    }
    const double values[POOLINGS] = {
        [POOLING_MEAN] = sum / n,
        [POOLING_CLS] = x[0],
        [POOLING_MAX] = most,
        [POOLING_MEAN_SQRT_LEN] = sum / sqrt(n),
        [POOLING_WEIGHTED_MEAN] = weighted,
        [POOLING_LAST] = x[(rows - 1) * stride],
    };
    return values[pooling];
}

#endif
