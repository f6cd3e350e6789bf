/* JSON of model files: the checks that bytes must pass before cJSON may see them, and typed fields with errors that
 * name both the file and the field.
 *
 * cJSON accepts invalid UTF-8, cuts strings at an escaped NUL and keeps the first of two equal keys; all three are
 * refused here. Depth and size are bounded because it recurses and needs some forty times the memory of the text.
 * Thread: one at a time in the process, as for cJSON. */
#ifndef BASE_JSON_TREE_H
#define BASE_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/err.h"

#define JSON_MAX_DEPTH 32
#define JSON_CONFIG_MAX_BYTES ((size_t)1 << 20)

/* Parses one whole JSON text. `bytes[length]` must be a NUL; `name` is the file's name for messages.
 * Owns: the caller ends `*out` with cJSON_Delete. Errors: STATUS_BAD_INPUT (not JSON, not UTF-8, too deep, a key twice
 * in one object, an escaped NUL), STATUS_NO_MEMORY. */
MUST_CHECK enum status json_parse(const char *bytes, size_t length, const char *name, cJSON **out, struct err *err);

/* Reads and parses DIRECTORY/NAME, an object or an array of at most `limit` bytes.
 * Owns: as json_parse. Errors: as json_parse and file_read. */
MUST_CHECK enum status json_read(const char *directory, const char *name, size_t limit, cJSON **out, struct err *err);

/* As json_read with JSON_CONFIG_MAX_BYTES, but a file that does not exist gives STATUS_OK and `*out` NULL. */
MUST_CHECK enum status json_read_optional(const char *directory, const char *name, cJSON **out, struct err *err);

/* The field of an object, or NULL when it is absent or null. */
const cJSON *json_field(const cJSON *object, const char *field);

/* Refuses a value that is no object, or has a field outside `known` and `empty`, lists that end with NULL; null counts
 * as absent, and fields in `empty`, which may be NULL, must be empty. `name` is the object's, for messages.
 * Errors: STATUS_BAD_INPUT (no object), STATUS_UNSUPPORTED. */
MUST_CHECK enum status json_only(const cJSON *object, const char *name, const char *const *known,
                                 const char *const *empty, struct err *err);

/* True if a name is in a list that ends with NULL. */
bool json_is_in(const char *const *list, const char *name);

/* True if the value is empty: NULL, null, false, "", {} or []. */
bool json_is_empty(const cJSON *value);

/* Reads a field that is true or false; an absent or null one leaves `*value` as it is. `name` is the file's, for
 * messages. Errors: STATUS_BAD_INPUT when the value is of another type. */
MUST_CHECK enum status json_bool(const cJSON *object, const char *name, const char *field, bool *value,
                                 struct err *err);

/* As json_bool, for a number. Errors: also when it is not whole or outside least..most. */
MUST_CHECK enum status json_u32(const cJSON *object, const char *name, const char *field, uint32_t least, uint32_t most,
                                uint32_t *value, struct err *err);

/* As json_bool, for a number with a fraction. */
MUST_CHECK enum status json_double(const cJSON *object, const char *name, const char *field, double *value,
                                   struct err *err);

/* As json_bool, for a string. Owns: it stays the object's. */
MUST_CHECK enum status json_string(const cJSON *object, const char *name, const char *field, const char **value,
                                   struct err *err);

/* Refuses a string other than `only`; an absent or null one is fine. Errors: as json_string, and STATUS_UNSUPPORTED. */
MUST_CHECK enum status json_must_be(const cJSON *object, const char *name, const char *field, const char *only,
                                    struct err *err);

/* Reads a whole number of at most 2^53 from a value. False when it is anything else. */
MUST_CHECK bool json_whole(const cJSON *value, uint64_t *out);

#endif
