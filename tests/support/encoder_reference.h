/* The forward pass in plain f64 loops, written from the maths alone: the reference for the engine's numbers. */
#ifndef TESTS_ENCODER_REFERENCE_H
#define TESTS_ENCODER_REFERENCE_H

#include "model/model.h"

/* The vector of one text. Shapes: ids [length]; to [dim] f64, written. */
void reference_encode(const struct model *model, const int32_t *ids, uint32_t length, double *to);

#endif
