/* The fields of a request as a table: a name, and the function that checks its value and takes it over. Private to
 * schedule/. */
#ifndef SCHEDULE_FIELDS_H
#define SCHEDULE_FIELDS_H

#include "schedule/inputs.h"
#include "schedule/request.h"

enum {
    REQUEST_FIELDS_MAX = 64,
    META_MAX_BYTES = 4096,
    TRACEPARENT_MAX_BYTES = 256,
    KNOWN_FIELDS_MAX = 40,
    RETRY_FIELDS = 3, /* _id, _attempt and _first_at, which lua/promote puts before a retry's own fields */
};

/* An entry's fields, sorted: at [i] the value of known field i, or NULL. */
struct fields {
    const struct entry_field *known[KNOWN_FIELDS_MAX];
    const char *doubled; /* the first known field that came twice */
    bool too_many;
    uint32_t unknown;
    struct inputs inputs; /* of the field `inputs`, where it was given */
};

/* Sorts an entry's fields into known and unknown ones, and measures `inputs`. Of a doubled field the first counts; of
 * an entry with too many fields only the id is kept, so that the answer can be found. */
void fields_collect(struct fields *fields, const struct entry *entry, const struct request_rules *rules);

/* Whether the entry cancels a request. */
bool fields_cancel(const struct fields *fields);

/* The rows that the caller must allocate behind the request. */
uint32_t fields_rows(const struct fields *fields);

/* The bytes that the caller must allocate behind the request, for what fields_apply copies. */
size_t fields_copied_bytes(const struct fields *fields, const struct request_rules *rules);

/* Checks every field and takes it over; the first error becomes the request's code and message. Shapes: request->rows
 * [fields_rows], copy [fields_copied_bytes], both written; the request keeps slices of it. */
void fields_apply(const struct fields *fields, const struct request_rules *rules, struct request *request, char *copy);

/* Reads an unsigned decimal number: digits only, no sign, no overflow. */
MUST_CHECK bool decimal_parse(const char *text, size_t length, uint64_t *out);

#endif
