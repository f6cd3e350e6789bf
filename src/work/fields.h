/* The fields of a request as a table: name, and the function that checks the value and takes it over.
 * Private to work/: request.c collects and applies, fields.c knows each field. */
#ifndef WORK_FIELDS_H
#define WORK_FIELDS_H

#include "work/request.h"

enum { REQUEST_FIELDS_MAX = 64, META_MAX_BYTES = 4096, KNOWN_FIELDS_MAX = 40 };
enum { RETRY_FIELDS = 3 }; /* _id, _attempt and _first_at, which lua/promote puts before a retry's own fields */

/* An entry's fields, sorted out: at [i] the value of known field i, or NULL. */
struct fields {
    const struct entry_field *known[KNOWN_FIELDS_MAX];
    const char *doubled; /* the first known field that came twice */
    bool too_many;
    uint32_t unknown;
};

/* Sorts an entry's fields into known and unknown ones. Of a doubled one the first stands; of an entry with too many,
 * only an id is kept, so that the answer can be found. */
void fields_collect(struct fields *fields, const struct entry *entry);

/* Bytes that fields_apply copies behind the request: what the caller must allocate. */
size_t fields_copied_bytes(const struct fields *fields, const struct request_rules *rules);

/* Checks every field and takes it over; the first thing that is wrong becomes the request's code and message.
 * Shapes: copy [fields_copied_bytes], written; the request keeps slices of it. */
void fields_apply(const struct fields *fields, const struct request_rules *rules, struct request *request, char *copy);

/* Reads an unsigned decimal number: digits only, no sign, no overflow. */
MUST_CHECK bool decimal_parse(const char *text, size_t length, uint64_t *out);

#endif
