/* Picks fields out of one JSON object, by a scanner of our own that holds no tree (see work/inputs.h for why).
 *
 * The whole text is checked strictly as RFC 8259 says, but for the meaning of escapes, which recipe_make looks at where
 * a string is used. Of two equal keys the last one counts, as in Python and JavaScript. */
#ifndef BULK_INPUT_JSON_H
#define BULK_INPUT_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "bulk/input/document.h"

enum { JSON_PICK_DEPTH_MAX = 64 };

/* What is wrong with a record. */
enum json_pick_problem {
    JSON_PICK_OK,
    JSON_PICK_NOT_OBJECT, /* good JSON perhaps, but another value */
    JSON_PICK_BROKEN,     /* `*at` is the byte that is wrong */
    JSON_PICK_TOO_DEEP,
    JSON_PICK_BAD_UTF8,
};

/* Looks for dotted paths ("meta.title") in an object; what is not there stays VALUE_ABSENT.
 * Shapes: paths [count], at most RECIPE_FIELDS_MAX of at most RECIPE_DEPTH_MAX names; values [count], written, slices
 * of `json`. Thread: any. */
enum json_pick_problem json_pick(const char *json, size_t length, char *const *paths, uint32_t count,
                                 struct value *values, size_t *at);

/* Strings of JSON, both ways. */

/* Appends bytes as a JSON string, quotes and all; what is not UTF-8 becomes U+FFFD. */
void json_put_string(struct buffer *to, const char *bytes, size_t length);

/* Appends what a JSON string says; `bytes` are those between the quotes, valid UTF-8. False when an escape is unknown
 * or half of a surrogate pair stands alone; the content is then not complete. */
bool json_decode_string(struct buffer *to, const char *bytes, size_t length);

#endif
