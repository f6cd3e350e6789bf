/* Chooses the precision for "auto" on this machine: of those that are exact enough (f32, bf16), the one in which this
 * model runs fastest, by a short measurement. The instruction set alone does not decide it: on processors that have
 * bf16 instructions, bf16 takes from half to twice the time of f32. */
#ifndef ENGINE_AUTO_PRECISION_H
#define ENGINE_AUTO_PRECISION_H

#include "engine/backend.h"

/* Runs one layer of the model on one thread in f32 and in `native`, tens of milliseconds in all, and returns the faster
 * one in `out`. The times are kept in the folder options->cache_path, so that the choice is the same at every start;
 * the log gives the choice and the reason. `native`: PRECISION_F32 (nothing is measured) or PRECISION_BF16. Errors:
 * those of opening and running an engine. Thread: any. */
MUST_CHECK enum status auto_precision(const struct backend_ops *ops, const struct model *model,
                                      const struct engine_options *options, enum precision native, enum precision *out,
                                      struct err *err);

/* The precision with the shorter time (ns, above 0). A difference of less than a twentieth is noise: then f32, which is
 * more exact. */
enum precision auto_precision_of(double f32_ns, double bf16_ns);

#endif
