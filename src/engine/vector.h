/* Arithmetic on finished sentence vectors, on the host. */
#ifndef ENGINE_VECTOR_H
#define ENGINE_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"

/* Scales a vector to length 1; a zero vector stays zero. Shapes: vector [dim], read and written. */
void vector_normalize(float *vector, uint32_t dim);

/* Turns logits into scores: sigmoid of each, or softmax of all. Shapes: logits [count], read and written. */
void vector_score(float *logits, uint32_t count, enum scoring scoring);

/* True if a vector holds neither NaN nor infinity. Shapes: vector [dim]. */
bool vector_finite(const float *vector, uint32_t dim);

/* True if all floats of a vector are smaller in magnitude than `limit`, which is positive and may be INFINITY; NaN and
 * infinity never are. Shapes: vector [dim] floats, at any address. */
bool vector_below(const void *vector, uint32_t dim, float limit);

#endif
