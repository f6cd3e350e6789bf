/* The names by which results can be told apart: equal ids mean equal vectors for equal texts. */
#ifndef MODEL_IDENTITY_H
#define MODEL_IDENTITY_H

#include "base/err.h"
#include "model/model.h"

/* Fills revision and id of a model whose every other field is set. The weights are hashed tensor by tensor in the
 * architecture's own order, so that shards, prefixes and heads do not matter; `folder` is where the tokenizer's files
 * are. Errors: STATUS_IO and others of file_read, STATUS_NO_MEMORY. */
MUST_CHECK enum status identity_fill(struct model *model, const char *folder, struct err *err);

/* The revision alone, from the weights. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status identity_fill_revision(struct model *model, struct err *err);

#endif
