/* What precision "auto" means on this machine: of those that are exact enough (f32, bf16), the one in which this model
 * runs fastest, by a short measurement. Instruction sets do not tell: processors that have the instructions for bf16
 * take from half to twice the time of f32 with them. */
#ifndef ENGINE_AUTO_PRECISION_H
#define ENGINE_AUTO_PRECISION_H

#include "engine/backend.h"

/* Runs one layer of the model on one thread in f32 and in `native`, tens of milliseconds in all, and says which is
 * faster. The times are kept in the folder options->cache_path, so that a machine does not change its mind from start
 * to start; the log says what was chosen and why. `native`: PRECISION_F32 (nothing is measured) or PRECISION_BF16.
 * Errors: those of opening and running an engine. Thread: any. */
MUST_CHECK enum status auto_precision(const struct backend_ops *ops, const struct model *model,
                                      const struct engine_options *options, enum precision native, enum precision *out,
                                      struct err *err);

/* Which of two times (ns, above 0) wins. A difference of less than a twentieth is noise: then it is f32, which is more
 * exact. */
enum precision auto_precision_of(double f32_ns, double bf16_ns);

#endif
