/* Picks fields out of one JSON object, by a scanner of our own that holds no tree (see work/inputs.h for why).
 *
 * The whole text is checked strictly as RFC 8259 says, but for the meaning of escapes, which recipe_make looks at where
 * a string is used. Of two equal keys the last one counts, as in Python and JavaScript. */
#ifndef BULK_JSON_PICK_H
#define BULK_JSON_PICK_H

#include "bulk/recipe.h"

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

#endif
