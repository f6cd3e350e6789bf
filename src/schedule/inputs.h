/* The JSON of `inputs`, an array of texts, read by our own scanner: no byte of a request reaches a general parser
 * (cJSON cuts texts at an escaped NUL and takes forty times their memory).
 *
 * Strict as RFC 8259: only white space before, between and after the texts, no control characters, no unknown escapes,
 * no half surrogate pairs, only UTF-8. An escaped NUL is a character like any other. A text may not be empty. Source:
 * RFC 8259, sections 2, 5 and 7. */
#ifndef SCHEDULE_INPUTS_H
#define SCHEDULE_INPUTS_H

#include <stddef.h>
#include <stdint.h>

#include "schedule/request.h"

/* The first error in an array. */
enum inputs_problem {
    INPUTS_OK,
    INPUTS_NOT_JSON,   /* `at` is where */
    INPUTS_NOT_ARRAY,  /* JSON, but something else */
    INPUTS_NO_TEXTS,   /* it is empty */
    INPUTS_NOT_TEXT,   /* an element is not a string; from this value on `count` is the number of the first bad one */
    INPUTS_BAD_STRING, /* a control character, an unknown escape, no end */
    INPUTS_BAD_UTF8,   /* also half a surrogate pair */
    INPUTS_EMPTY_TEXT,
    INPUTS_TOO_MANY,
    INPUTS_TOO_LARGE,
};

/* The content of an array, or where its first error is. */
struct inputs {
    enum inputs_problem problem;
    uint32_t count; /* texts; with a problem, the good ones before it */
    size_t bytes;   /* of all texts together, decoded */
    size_t at;      /* the byte of the JSON that is wrong */
};

/* Checks the whole array, up to the limits. Thread: any. */
struct inputs inputs_measure(const char *json, size_t length, uint32_t most_texts, size_t most_bytes);

/* Reads the texts of an array that inputs_measure found good into one run of bytes. Shapes: copy [inputs.bytes],
 * written; rows [inputs.count], their `text` and `text_bytes` written. Thread: any. */
void inputs_decode(const char *json, size_t length, char *copy, struct row *rows);

#endif
