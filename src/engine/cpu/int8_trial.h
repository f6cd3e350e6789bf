/* How many layers of a model int8 may have. Each layer that is computed in whole numbers adds its rounding to that of
 * the others, and by how much lies in the weights. So before a model's weights are packed, some texts of one token go
 * through it in f32; and while they are packed, the last layer first, the same go through those that are in int8 so
 * far, for as long as what comes out is near enough. A text of one token needs no attention (its only weight is one),
 * and short texts are those whose roundings no mean takes away. */
#ifndef ENGINE_CPU_INT8_TRIAL_H
#define ENGINE_CPU_INT8_TRIAL_H

#include "engine/cpu/weights.h"

struct int8_trial;

/* Takes the texts through all layers in f32. Of `weights` there have to be embeddings, norms and biases; the model's
 * products fit its sizes, and are read once. Owns: the caller ends it with int8_trial_close.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status int8_trial_open(const struct cpu_weights *weights, struct int8_trial **out, struct err *err);

/* Takes them from what came out of the layers before `first` through the others in int8. Returns whether the vectors
 * are near enough to those in f32. */
bool int8_trial_passes(struct int8_trial *trial, uint32_t first);

/* Frees it. NULL is allowed. */
void int8_trial_close(struct int8_trial *trial);

#endif
