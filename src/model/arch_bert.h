/* config.json of a BERT encoder. */
#ifndef MODEL_ARCH_BERT_H
#define MODEL_ARCH_BERT_H

#include "base/err.h"
#include "model/model.h"

/* Reads DIRECTORY/config.json into the architecture fields of `model`. `name` is what messages call the file.
 * Errors: STATUS_NOT_FOUND, STATUS_BAD_INPUT, STATUS_UNSUPPORTED (another architecture, or a field that changes the
 * maths and is not known here), STATUS_NO_MEMORY; the message names file and field. Thread: one at a time (cJSON). */
MUST_CHECK enum status bert_config_read(const char *directory, const char *name, struct model *model, struct err *err);

/* "gelu", "gelu_tanh" or "relu". */
const char *activation_name(enum activation activation);

#endif
