/* Entries out of the answers of XREADGROUP and of the scripts that claim. The shape of answers is not trusted: every
 * type is checked before use. */
#ifndef REDIS_QUEUE_ENTRIES_H
#define REDIS_QUEUE_ENTRIES_H

#include "redis/resp.h"
#include "schedule/request.h"

/* Entries of one answer, whose strings they point into. Zero-initialise; the arrays are kept for the next answer. */
struct entries {
    struct entry *items;
    size_t count, capacity;
    struct entry_field *fields;
    size_t field_capacity;
    struct entry_id last;  /* XREADGROUP: the last entry; lua/shed, fair and sweep: how far they looked */
    struct entry_id first; /* lua/shed: how far it looked from the end */
    bool more;             /* a script: a limit ended the search; XREADGROUP: the answer held more than was read */
};

/* Makes room for entries and their fields: entries point into the fields, which must not move (and are never NULL).
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status entries_prepare(struct entries *entries, size_t count, size_t fields, struct err *err);

/* Returns STATUS_BAD_INPUT: an answer has another shape. */
enum status entries_malformed(struct err *err);

/* Reads the answer to XREADGROUP (nil: no entries); `streams` are the streams of the classes. An entry of which
 * something was dropped (RESP_CUT) is `oversize` if it is larger than `most_bytes`, or the first; otherwise the answer
 * was too large, and this entry and those after it are left out (`more`). Errors: STATUS_BAD_INPUT (another shape),
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status entries_from_read(struct entries *entries, const struct resp_value *answer,
                                         const char *const streams[CLASS_COUNT], uint64_t most_bytes, struct err *err);

/* Reads the answer of lua/reclaim, shed, fair or sweep; reclaim says whether the origin is RECLAIMED or RELEASED.
 * Errors: as entries_from_read. */
MUST_CHECK enum status entries_from_claim(struct entries *entries, const struct resp_value *answer,
                                          enum request_class class, struct err *err);

/* Reads an entry of an answer to XRANGE: its id, and the bytes of its fields, including those that were dropped. False:
 * another shape, or the entry itself was dropped. */
bool entry_weighed(const struct resp_value *from, struct entry_id *id, uint64_t *bytes);

/* Frees the arrays and leaves none. */
void entries_free(struct entries *entries);

#endif
