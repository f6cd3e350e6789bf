/* How the fields of a record become a document: one field, or several in a template; an id; fields to pass on. */
#ifndef BULK_RECIPE_H
#define BULK_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "bulk/document.h"

enum { RECIPE_FIELDS_MAX = 32, RECIPE_PARTS_MAX = 64, RECIPE_DEPTH_MAX = 16 };

/* All but `field` may be NULL. */
struct recipe_options {
    const char *field;    /* where the text is: "text", "meta.title" */
    const char *template; /* "{title}. {body}" instead; {{ and }} are braces */
    const char *id_field;
    const char *keep; /* "title,meta.year": fields that are passed on */
};

/* A piece of a template: words, or a field. */
struct recipe_part {
    const char *literal; /* [length], or NULL: a field */
    size_t length;
    uint32_t field;
};

/* What was read from the options: read-only, and for every record the same. */
struct recipe {
    char *fields[RECIPE_FIELDS_MAX]; /* [field_count] every name once, owned */
    uint32_t field_count;
    struct recipe_part parts[RECIPE_PARTS_MAX];
    uint32_t part_count;
    char *literals; /* what the parts point into, owned */
    bool has_id;
    uint32_t id;
    uint32_t kept[RECIPE_FIELDS_MAX], kept_count;
};

/* Reads the options, which need not live on. Owns: the caller ends it with recipe_close, also after an error.
 * Errors: STATUS_BAD_INPUT naming the option; STATUS_NO_MEMORY. */
MUST_CHECK enum status recipe_open(struct recipe *recipe, const struct recipe_options *options, struct err *err);

/* Frees the names and leaves an empty recipe. */
void recipe_close(struct recipe *recipe);

/* What a field of a record is. */
enum value_kind {
    VALUE_ABSENT,
    VALUE_NULL,
    VALUE_TEXT,   /* the text itself */
    VALUE_STRING, /* of JSON, without its quotes; one byte more at each side may be read */
    VALUE_SCALAR, /* a number, true or false, as it is written */
    VALUE_TREE,   /* an object or an array, as it is written */
};

/* A field of a record, as it stands in its bytes. */
struct value {
    enum value_kind kind;
    const char *bytes;
    size_t length;
};

/* Room for what a document is put together in; used again and again. */
struct recipe_scratch {
    struct buffer text, id, kept, message;
};

/* Frees the buffers and leaves empty ones. */
void recipe_scratch_free(struct recipe_scratch *scratch);

/* Fills text, id and kept fields of a document, or its code and message. Its bytes are the values' or the scratch's.
 * Shapes: values [recipe->field_count], in the order of `fields`. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status recipe_make(const struct recipe *recipe, const struct value *values,
                                   struct recipe_scratch *scratch, struct document *out, struct err *err);

#endif
