/* Makes a model's cpu_weights: chooses the kind of each product and packs it. */
#ifndef ENGINE_CPU_PACK_H
#define ENGINE_CPU_PACK_H

#include "engine/cpu/cpu_weights.h"

/* Packs the weights of a model. Owns: the caller ends it with cpu_weights_close. `backend` is left for the caller to
 * fill. Errors: STATUS_NO_MEMORY, STATUS_UNSUPPORTED (shapes that do not fit together), STATUS_INTERNAL. */
MUST_CHECK enum status cpu_weights_open(const struct model *model, enum precision precision, struct cpu_weights **out,
                                        struct err *err);

/* Frees them. NULL is allowed. */
void cpu_weights_close(struct cpu_weights *weights);

#endif
