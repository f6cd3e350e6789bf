/* Vectors are normalised here unless a device has done it (backend_ops.finite), to the same bits. A daemon always does
 * it here, after the engine, because a request may ask for fewer floats, or for vectors that are not normalised. */
#include "engine/vector.h"

#include <math.h>
#include <string.h>

/* The sum of squares in f64, in order. */
void vector_normalize(float *vector, uint32_t dim)
{
    double squares = 0;
    for (uint32_t i = 0; i < dim; i++) { squares += (double)vector[i] * vector[i]; }
    float scale = (float)(1.0 / fmax(sqrt(squares), 1e-12));
    for (uint32_t i = 0; i < dim; i++) { vector[i] *= scale; }
}

/* In f64. The largest logit becomes exp(0), so that nothing overflows. */
void vector_score(float *logits, uint32_t count, enum scoring scoring)
{
    double largest = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < count; i++) { largest = fmax(largest, logits[i]); }
    for (uint32_t i = 0; i < count; i++) { sum += exp(logits[i] - largest); }
    for (uint32_t i = 0; i < count; i++) {
        if (scoring == SCORING_SIGMOID) {
            logits[i] = (float)(1 / (1 + exp(-(double)logits[i])));
        } else if (scoring == SCORING_SOFTMAX) {
            logits[i] = (float)(exp(logits[i] - largest) / sum);
        }
    }
}

/* Zero times a finite float is zero, and zero times any other float is NaN. Without a branch the loop runs at the speed
 * of memory; `dim` zeros add up to zero in any order. */
bool vector_finite(const float *vector, uint32_t dim)
{
    float sums[8] = {0};
    uint32_t i = 0;
    for (; i + 8 <= dim; i += 8) {
        for (int lane = 0; lane < 8; lane++) { sums[lane] += vector[i + lane] * 0.0f; }
    }
    for (; i < dim; i++) { sums[0] += vector[i] * 0.0f; }
    float sum = 0;
    for (int lane = 0; lane < 8; lane++) { sum += sums[lane]; }
    return sum == 0.0f;
}

/* Magnitudes of floats are ordered like their bits, and the sum sets the highest bit from the limit on. */
bool vector_below(const void *vector, uint32_t dim, float limit)
{
    const char *bytes = vector;
    uint32_t bits, limit_bits, reached = 0;
    memcpy(&limit_bits, &limit, sizeof limit);
    for (uint32_t i = 0; i < dim; i++) {
        memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
        reached |= (bits & 0x7fffffffu) + (0x80000000u - limit_bits);
    }
    return (reached & 0x80000000u) == 0;
}
