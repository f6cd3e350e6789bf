/* The files of single sentence-transformers modules; only sentence_config.c calls these. */
#ifndef MODEL_SENTENCE_FILES_H
#define MODEL_SENTENCE_FILES_H

#include "model/json.h"
#include "model/sentence_config.h"

/* Each reads one file of DIRECTORY into its part of `out`. `folder` is "" or ends with a slash.
 * Errors: as sentence_config_read. */
MUST_CHECK enum status sentence_read_transformer(const char *directory, const char *folder, struct sentence_config *out,
                                                 struct err *err);
MUST_CHECK enum status sentence_read_pooling(const char *directory, const char *folder, struct sentence_config *out,
                                             struct err *err);
MUST_CHECK enum status sentence_read_normalize(const char *directory, const char *folder, struct err *err);

/* Keeps all prompts and picks `wanted` for every text, or the default one where `wanted` is NULL; "" picks none. */
MUST_CHECK enum status sentence_read_prompts(const char *directory, const char *wanted, struct sentence_config *out,
                                             struct err *err);

/* Refuses an object that has a field outside `known`, a list that ends with NULL; null counts as absent. */
MUST_CHECK enum status sentence_check_fields(const cJSON *object, const char *name, const char *const *known,
                                             struct err *err);

#endif
