/* Fields of one JSON object, picked by a scanner that builds no tree.
 *
 * The whole object is checked strictly against RFC 8259, except for escapes: recipe_make decodes those of the strings
 * it uses. If keys are equal, the last one counts, as in Python and JavaScript. */
#ifndef BULK_INPUT_JSON_H
#define BULK_INPUT_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "bulk/input/document.h"

enum { PICK_DEPTH_MAX = 64 };

/* The problem of a record. */
enum pick_problem {
    PICK_OK,
    PICK_NOT_OBJECT, /* another value, perhaps valid */
    PICK_BROKEN,     /* `*at` is the byte that is wrong */
    PICK_TOO_DEEP,
    PICK_BAD_UTF8,
};

/* Finds dotted paths ("meta.title") in an object; a missing one is VALUE_ABSENT. Shapes: paths [count], at most
 * RECIPE_FIELDS_MAX of at most RECIPE_DEPTH_MAX names; values [count], written, parts of `json`. Thread: any. */
enum pick_problem pick_fields(const char *json, size_t length, char *const *paths, uint32_t count, struct value *values,
                              size_t *at);

/* The search for the end of an element of an array. Zero-initialise; the bytes begin with the element's first. */
struct element_scan {
    uint32_t depth;
    bool string, escape;
    bool done;      /* the byte after it is a comma, the end of the array, or white space */
    uint64_t lines; /* line feeds in it */
};

/* Scans the next bytes of an element, and returns how many belong to it. It only looks for the end: pick_fields checks
 * the rest. Thread: any. */
size_t element_scan(struct element_scan *scan, const char *bytes, size_t length);

/* Appends the fields of an object that pick_fields found good, for a message: "title", "meta.year". It names the first
 * ones, about 160 bytes. Fields that are arrays are left out. */
void pick_names(struct buffer *to, const char *json, size_t length);

#endif
