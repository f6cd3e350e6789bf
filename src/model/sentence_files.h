/* The files of single sentence-transformers modules; only sentence_config.c calls these. */
#ifndef MODEL_SENTENCE_FILES_H
#define MODEL_SENTENCE_FILES_H

#include "model/json.h"
#include "model/sentence_config.h"

/* Reads the encoder's own file, sentence_bert_config.json: token limit and lower case. `folder` is "" or ends with a
 * slash, here and below. A file that does not exist says nothing. Errors: as sentence_config_read. */
MUST_CHECK enum status sentence_read_transformer(const char *directory, const char *folder, struct sentence_config *out,
                                                 struct err *err);

/* Reads the pooling module's config.json: which pooling, over how many floats, and whether prompts count.
 * Errors: as sentence_config_read; STATUS_BAD_INPUT also for a module without a folder. */
MUST_CHECK enum status sentence_read_pooling(const char *directory, const char *folder, struct sentence_config *out,
                                             struct err *err);

/* Checks that the normalising module, whose presence says all, has no options that are not known here.
 * Errors: as sentence_config_read. */
MUST_CHECK enum status sentence_read_normalize(const char *directory, const char *folder, struct err *err);

/* Keeps all prompts and picks `wanted` for every text, or the default one where `wanted` is NULL; "" picks none.
 * Errors: as sentence_config_read. */
MUST_CHECK enum status sentence_read_prompts(const char *directory, const char *wanted, struct sentence_config *out,
                                             struct err *err);

/* Refuses an object that has a field outside `known`, a list that ends with NULL; null counts as absent.
 * Errors: STATUS_UNSUPPORTED; STATUS_BAD_INPUT when it is no object at all. */
MUST_CHECK enum status sentence_check_fields(const cJSON *object, const char *name, const char *const *known,
                                             struct err *err);

#endif
