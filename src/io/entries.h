/* Answers of Redis with stream entries, as struct entry arrays that point into the answer: nothing is copied. */
#ifndef IO_ENTRIES_H
#define IO_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>

#include "io/resp.h"
#include "work/request.h"

/* Entries read from one answer; zero-initialise, keeps its memory for the next answer. */
struct entries {
    struct entry *items;
    size_t count, capacity;
    struct entry_field *fields;
    size_t field_capacity;
    struct entry_id *vanished; /* ids whose message is gone */
    size_t vanished_count, vanished_capacity;
    size_t given;         /* entries that Redis gave, vanished ones included */
    struct entry_id last; /* the last of them */
};

/* Reads the answer to XREADGROUP of one stream (nil: no entries).
 * Errors: STATUS_BAD_INPUT (not of the shape of such an answer), STATUS_NO_MEMORY. */
MUST_CHECK enum status entries_from_read(struct entries *entries, const struct resp_value *answer,
                                         enum request_class class, enum entry_origin origin, struct err *err);

/* Reads the answer of lua/reclaim. Errors: as above. */
MUST_CHECK enum status entries_from_reclaim(struct entries *entries, const struct resp_value *answer,
                                            enum request_class class, bool *more, struct err *err);

void entries_free(struct entries *entries);

#endif
