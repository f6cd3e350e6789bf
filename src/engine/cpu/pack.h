/* Makes a model's cpu_weights: chooses the kind of each product and packs it. */
#ifndef ENGINE_CPU_PACK_H
#define ENGINE_CPU_PACK_H

#include "engine/cpu/cpu_weights.h"

/* Packs the weights of a model; in int8 the products of options->int8, or, if it is NULL, all in both kinds, for a
 * trial, and all are then in int8. Owns: the caller ends it with cpu_weights_close. `backend` is left for the caller to
 * fill. Errors: STATUS_NO_MEMORY, STATUS_UNSUPPORTED (shapes that do not fit together). */
MUST_CHECK enum status cpu_weights_open(const struct model *model, const struct engine_options *options,
                                        struct cpu_weights **out, struct err *err);

/* Ends a trial: keeps each product's weight in linear[] alone. Thread: while no pass is under way. */
void cpu_weights_settle(struct cpu_weights *weights);

/* Frees them. NULL is allowed. */
void cpu_weights_close(struct cpu_weights *weights);

#endif
