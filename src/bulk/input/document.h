/* Documents, and the recipe that makes them from records. */
#ifndef BULK_INPUT_DOCUMENT_H
#define BULK_INPUT_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

/* 128 bits that stand for a text. Two of ten million texts share them with a probability below 1e-24. */
struct hash {
    uint64_t low, high;
};

/* True if two hashes, and in effect their texts, are equal. */
static inline bool hash_equal(struct hash a, struct hash b)
{
    return a.low == b.low && a.high == b.high;
}

/* The reason why a row of a job has no vector. A bad row is a failed row: it is listed, its vector is NaN or null, and
 * the job goes on; an error that ends the job is an enum status instead. Files do not contain these numbers. */
enum row_code {
    ROW_OK,
    ROW_UNREADABLE, /* a file of a folder that could not be read */
    ROW_TOO_LARGE,
    ROW_BAD_UTF8,
    ROW_EMPTY_TEXT,
    ROW_BAD_JSON,
    ROW_NOT_OBJECT,
    ROW_BAD_CSV,
    ROW_MISSING_FIELD,
    ROW_NOT_TEXT,
    ROW_NON_FINITE,
    ROW_F16_RANGE,
    ROW_NO_TOKENS,
    ROW_REFUSED, /* by the queue */
    ROW_CHANGED, /* its vector is that of an earlier document */
    ROW_CODES,
};

/* The name in files: "bad_utf8". */
const char *failure_name(enum row_code code);

/* A sentence that depends on the code only, so that an interrupted job lists the same failures as one that was not. */
const char *failure_text(enum row_code code);

/* Hashes of a document, by which a later run sees whether it has changed. */
struct fingerprint {
    uint64_t id;      /* 0: it has none */
    uint64_t content; /* its text and the fields passed on; 0: it failed when it was read */
};

/* A record of the input as a text, or the reason why it has none. Its maker owns all bytes. */
struct document {
    uint64_t number;    /* in the job, from 0 */
    uint64_t first_row; /* of its chunks; set only in a retry, else 0 */
    const char *file;
    uint64_t line; /* where it begins, from 1 */

    const char *text;
    size_t text_bytes;
    uint32_t texts; /* 0: `text` is one; else it is that many, one after the other, and `kept` begins with the end of
                     * each in it (uint32_t, of any alignment) */
    const char *id; /* as JSON; NULL: its number is its id, unless it lacks one */
    size_t id_bytes;
    bool lacks_id;    /* a field is the id, and the record is too broken to have it */
    const char *kept; /* fields to pass on, as JSON members: ,"title":"x","year":1 */
    size_t kept_bytes;

    enum row_code code; /* not ROW_OK: it has no text */
    const char *message;
    size_t message_bytes;
    struct hash hash;               /* of the text; in a prepared batch with the job's seed */
    struct fingerprint fingerprint; /* set by the job */
};

/* --- The recipe: the fields of a record for its text (one, or several in a template), its id, and to pass on. --- */

enum { RECIPE_FIELDS_MAX = 32, RECIPE_PARTS_MAX = 64, RECIPE_DEPTH_MAX = 16 };

/* All may be NULL. */
struct recipe_options {
    const char *field;    /* the field with the text: "meta.title"; NULL: "text" */
    const char *template; /* "{title}. {body}" instead; {{ and }} are braces */
    const char *id_field;
    const char *keep; /* "title,meta.year": fields that are passed on */
    bool chunks;      /* rows are chunks: "text" is the chunk's, whatever field it comes from */
};

/* A part of a template: literal text, or a field. */
struct recipe_part {
    const char *literal; /* [length], or NULL: a field */
    size_t length;
    uint32_t field;
};

/* The parsed options. */
struct recipe {
    char *fields[RECIPE_FIELDS_MAX]; /* [field_count] distinct names, owned */
    uint32_t field_count;
    struct recipe_part parts[RECIPE_PARTS_MAX];
    uint32_t part_count;
    char *literals; /* the parts point into it, owned */
    bool has_id;
    uint32_t id;
    uint32_t kept[RECIPE_FIELDS_MAX], kept_count;
    bool keeps_text;    /* "text" is passed on */
    bool keeps_chunks;  /* the chunk's text is passed on, in place of a field of that name */
    const char *option; /* the first option that only records with fields can obey: "--id-field"; NULL: none */
};

/* Parses the options, which need not outlive it. Owns: the caller ends it with recipe_close, also after an error.
 * Errors: STATUS_BAD_INPUT naming the option; STATUS_NO_MEMORY. */
MUST_CHECK enum status recipe_open(struct recipe *recipe, const struct recipe_options *options, struct err *err);

/* Frees the names and leaves an empty recipe. */
void recipe_close(struct recipe *recipe);

/* The kind of a field. */
enum value_kind {
    VALUE_ABSENT,
    VALUE_NULL,
    VALUE_TEXT,   /* the text itself */
    VALUE_STRING, /* of JSON, between its quotes, which may be read too */
    VALUE_SCALAR, /* a number, true or false, as it is written */
    VALUE_TREE,   /* an object or an array, as it is written */
};

/* A field of a record, as written in it. */
struct value {
    enum value_kind kind;
    const char *bytes;
    size_t length;
};

/* Reusable buffers in which documents are made. */
struct recipe_scratch {
    struct buffer text, id, kept, message;
};

/* Frees the buffers and leaves empty ones. */
void recipe_scratch_free(struct recipe_scratch *scratch);

/* Sets text, id and kept fields of a document, or its code and message. They point into the values or the scratch.
 * Shapes: values [recipe->field_count], in the order of `fields`. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status recipe_make(const struct recipe *recipe, const struct value *values,
                                   struct recipe_scratch *scratch, struct document *out, struct err *err);

#endif
