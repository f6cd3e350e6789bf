/* The classification head of a model, on the host, in f32, the same for every backend: logits of a text from the vector
 * of its first token, with the same bits in any batch. */
#ifndef ENGINE_HEAD_H
#define ENGINE_HEAD_H

#include "base/err.h"
#include "model/model.h"

struct head;

/* Copies the weights of the model's head, and gives them back if model->read_once. `*out` is NULL where there is none.
 * Owns: the caller ends it with head_close. Errors: STATUS_UNSUPPORTED (they do not fit the model's sizes),
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status head_open(const struct model *model, struct head **out, struct err *err);

/* Frees it. NULL is allowed. */
void head_close(struct head *head);

/* Shapes: vector [dim], room [dim], overwritten, logits [labels], written.
 * Thread: any, on one head at once. */
void head_run(const struct head *head, const float *vector, float *room, float *logits);

#endif
