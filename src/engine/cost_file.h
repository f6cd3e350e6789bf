/* A calibration that is kept: a start that finds one measures nothing.
 *
 * A file holds what one model's shape costs on one device with so many threads, in one precision and version, in lines
 * of text that say so; any other has another name. The last line is a checksum. What the batches of a run have taught
 * is not kept: they may have run beside anything.
 *
 *     sluice cost 4
 *     version 0.3.0
 *     backend cpu
 *     device Intel(R) Xeon(R) Processor, amx, 2 threads
 *     threads 2
 *     precision bf16
 *     shape layers 6 hidden 384 heads 12 inner 1536 tokens 256 pooling mean
 *     pass 512 strip 32 room 264 half 0.625 helped 256
 *     terms 41000 9800.5 0.75 help 0.625
 *     checksum 1f2e3d4c5b6a7988
 */
#ifndef ENGINE_COST_FILE_H
#define ENGINE_COST_FILE_H

#include "base/buffer.h"
#include "engine/cost.h"

/* What a calibration is of. */
struct cost_source {
    struct engine *engine;
    const struct model *model;
    unsigned threads; /* that compute, and help each other */
};

/* Reads the file of an engine and its model. Errors: STATUS_NOT_FOUND; STATUS_BAD_INPUT (damaged, or no such file at
 * all; the message names it); those of file_read. `out` is not known then. */
MUST_CHECK enum status cost_recall(const char *directory, const struct cost_source *of, struct cost *out,
                                   struct err *err);

/* Writes it whole; makes the directory. Errors: those of cache_write. */
MUST_CHECK enum status cost_remember(const char *directory, const struct cost_source *of, const struct cost *cost,
                                     struct err *err);

/* What stands in a file, and what is believed of it: that which cost_print would print. `text` has a NUL behind it.
 * Errors of cost_parse: STATUS_BAD_INPUT, STATUS_NO_MEMORY; `out` is not known then. */
void cost_print(const struct cost_source *of, const struct cost *cost, struct buffer *out);
MUST_CHECK enum status cost_parse(const char *text, size_t length, const struct cost_source *of, struct cost *out,
                                  struct err *err);

#endif
