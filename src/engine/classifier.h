/* The classification head of a model, on the host, in f32, the same for every backend: logits of a text from the vector
 * of its first token, with the same bits in any batch. */
#ifndef ENGINE_CLASSIFIER_H
#define ENGINE_CLASSIFIER_H

#include "base/err.h"
#include "model/model.h"

struct classifier;

/* Copies the weights of the model's head, and gives them back if model->read_once. `*out` is NULL where there is none.
 * Owns: the caller ends it with classifier_close. Errors: STATUS_UNSUPPORTED (they do not fit the model's sizes),
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status classifier_open(const struct model *model, struct classifier **out, struct err *err);

/* Frees it. NULL is allowed. */
void classifier_close(struct classifier *classifier);

/* Shapes: vector [dim], room [dim], overwritten, logits [labels], written.
 * Thread: any, on one classifier at once. */
void classifier_run(const struct classifier *classifier, const float *vector, float *room, float *logits);

#endif
