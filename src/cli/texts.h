/* A line of text to token ids, as the daemon does it: the model's prompt first, cut at the model's limit. */
#ifndef CLI_TEXTS_H
#define CLI_TEXTS_H

#include "base/buffer.h"
#include "cli/lines.h"
#include "model/model.h"

/* Turns a line into at most model->max_tokens ids. `scratch` is kept between calls and freed by the caller.
 * Shapes: ids [model->max_tokens] int32, written. Errors: those of tokenizer_encode, STATUS_NO_MEMORY. */
MUST_CHECK enum status texts_encode(const struct model *model, const struct line *line, struct buffer *scratch,
                                    int32_t *ids, uint32_t *count, struct err *err);

#endif
