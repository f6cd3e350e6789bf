/* Sequence-classification models: detects the directories that hold one, and reads its head from config.json. */
#ifndef MODEL_HEAD_H
#define MODEL_HEAD_H

#include <stdbool.h>

#include "base/err.h"
#include "model/model.h"

/* Finds out if `architectures` of DIRECTORY/NAME, a config.json, begins with a ...ForSequenceClassification.
 * Errors: as json_read. Thread: one at a time (cJSON). */
MUST_CHECK enum status head_is_there(const char *directory, const char *name, bool *there, struct err *err);

/* Reads labels and scorings of model->head from DIRECTORY/NAME, for a model whose family is known; a head.score that is
 * set stays. The head's layers become the model's modules, of which there are none before, and its pooling may become
 * the model's. Owns: the caller ends it with head_free, also after an error. Errors: STATUS_BAD_INPUT,
 * STATUS_UNSUPPORTED (a family without a known head, another pooling or activation), STATUS_NO_MEMORY; the message
 * names file and field. Thread: one at a time (cJSON). */
MUST_CHECK enum status head_read_config(const char *name, struct model *model, struct err *err);

/* The class in a name like "torch.nn.modules.activation.Tanh"; "" if it is not one of torch's. */
const char *head_torch_class(const char *name);

/* The scoring that sentence-transformers' CrossEncoder writes as the name of a torch class. `name` and `field` are for
 * messages. Errors: STATUS_UNSUPPORTED. */
MUST_CHECK enum status head_parse_activation(const char *name, const char *field, const char *text, enum scoring *out,
                                             struct err *err);

/* Frees the labels' names. */
void head_free(struct model_head *head);

#endif
