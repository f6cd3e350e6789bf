/* Fields of tokenizer.json that must be there, and objects that may hold no others: what is not known may change ids.
 */
#ifndef MODEL_TOKENIZER_FIELDS_H
#define MODEL_TOKENIZER_FIELDS_H

#include "model/json.h"

/* In all of these `path` is the object's name for messages: the file's, a colon and the way to the object. */

/* Refuses a field that is not in the list, which ends with NULL. Errors: STATUS_UNSUPPORTED; STATUS_BAD_INPUT when it
 * is no object at all. */
MUST_CHECK enum status fields_only(const cJSON *object, const char *path, const char *const *known, struct err *err);

/* Reads a field that must be there, of any type, a bool or a string. Owns: value and string stay the object's.
 * Errors: STATUS_BAD_INPUT, also for one of another type. */
MUST_CHECK enum status fields_need(const cJSON *object, const char *path, const char *field, const cJSON **value,
                                   struct err *err);
MUST_CHECK enum status fields_bool(const cJSON *object, const char *path, const char *field, bool *value,
                                   struct err *err);
MUST_CHECK enum status fields_string(const cJSON *object, const char *path, const char *field, const char **value,
                                     struct err *err);

/* Reads a token's id: a whole number below INT32_MAX. Errors: STATUS_BAD_INPUT. */
MUST_CHECK enum status fields_id(const cJSON *value, const char *path, int32_t *id, struct err *err);

/* Refuses a part whose `type` is another than expected; one that is NULL has the type "null".
 * Errors: STATUS_UNSUPPORTED; STATUS_BAD_INPUT when there is no type. */
MUST_CHECK enum status fields_type(const cJSON *object, const char *path, const char *expected, struct err *err);

#endif
