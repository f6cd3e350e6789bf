/* The steps after pooling, on the host, in f32, the same for every backend: sentence-transformers' modules or the
 * layers of a classification head. A text's numbers have the same bits in any batch. */
#ifndef ENGINE_MODULES_H
#define ENGINE_MODULES_H

#include "base/err.h"
#include "engine/cpu/parallel_for.h"
#include "model/model.h"

struct modules;

/* Copies the weights of the model's modules, and gives them back if model->read_once. `*out` is NULL where there are
 * none. Owns: the caller ends it with modules_close. Errors: STATUS_UNSUPPORTED (they do not fit the model's sizes),
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status modules_open(const struct model *model, struct modules **out, struct err *err);

/* Frees them. NULL is allowed. */
void modules_close(struct modules *modules);

/* The floats of room that a run of `rows` rows takes. */
size_t modules_room(const struct modules *modules, uint32_t rows);

/* Runs rows through the modules. Helpers take part in products; `parallel` may be NULL. Shapes: vectors [rows, hidden],
 * beyond which products read a few more rows, so the room must directly follow them; room [modules_room], overwritten;
 * to [rows, model->dim], written, must not overlap the others. Thread: any; several may run the same modules at once.
 */
void modules_run(const struct modules *modules, struct parallel_for *parallel, uint32_t rows, const float *vectors,
                 float *room, float *to);

#endif
