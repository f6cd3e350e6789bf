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
    struct entry_id last;  /* of XREADGROUP the last entry; of lua/shed, fair and sweep how far they have looked */
    struct entry_id first; /* of lua/shed how far it has looked from the end */
    bool more; /* of a script: a limit ended the search; of XREADGROUP: the answer held more than was read */
};

/* Reads the answer to XREADGROUP (nil: no entries); `streams` are the names of the classes' streams. An entry of which
 * something was dropped (RESP_CUT) is `oversize` when it is larger than `most_bytes`, or the first of all; otherwise
 * the answer was too large, and that entry and all behind it are left out (`more`). Errors: STATUS_BAD_INPUT (not of
 * the shape of such an answer), STATUS_NO_MEMORY. */
MUST_CHECK enum status entries_from_read(struct entries *entries, const struct resp_value *answer,
                                         const char *const streams[CLASS_COUNT], enum entry_origin origin,
                                         uint64_t most_bytes, struct err *err);

/* Reads the answer of lua/reclaim, shed, fair or sweep. The origin is as the script says: RECLAIMED or RELEASED.
 * Errors: as above. */
MUST_CHECK enum status entries_from_claim(struct entries *entries, const struct resp_value *answer,
                                          enum request_class class, struct err *err);

/* Frees the arrays and leaves none. */
void entries_free(struct entries *entries);

#endif
