/* Finds the row of an equal text, so that equal texts are computed once, even across interruptions.
 *
 * A text is identified by 87 bits of its hash. Memory is bounded: once the table is full, new texts are not added and
 * are computed each time they occur. */
#ifndef BULK_DEDUP_H
#define BULK_DEDUP_H

#include <stdint.h>

#include "base/err.h"
#include "bulk/input/document.h"

#define DEDUP_NONE UINT64_MAX
#define DEDUP_ROWS_DEFAULT 14000000u /* about 270 MB */

struct dedup;

/* The entry of a text. */
struct dedup_entry {
    uint64_t row;       /* below 2^40, or DEDUP_NONE */
    enum row_code code; /* not ROW_OK: that row failed, and so do its copies */
};

/* Makes a table of at most `most_rows` texts. Owns: the caller ends it with dedup_close. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status dedup_open(uint64_t most_rows, struct dedup **out, struct err *err);

/* Frees it. NULL is allowed. */
void dedup_close(struct dedup *dedup);

/* Prefetches the entry of a text that is looked up soon. */
void dedup_expect(const struct dedup *dedup, struct hash hash);

/* Looks a text up; its row is DEDUP_NONE if it is unknown. */
struct dedup_entry dedup_find(const struct dedup *dedup, struct hash hash);

/* Adds or changes the entry of a text; does nothing for a new one when the table is full or memory ran out. */
void dedup_put(struct dedup *dedup, struct hash hash, struct dedup_entry entry);

#endif
