/* Which row has the vector of a text: so that equal texts are computed once, also across an interruption.
 *
 * A row is known by 87 bits of its text's hash. Memory is bounded: what is known when the table is full stays known,
 * new texts are then computed each time they come. */
#ifndef BULK_DEDUP_H
#define BULK_DEDUP_H

#include <stdint.h>

#include "base/err.h"
#include "bulk/input/document.h"

#define DEDUP_NONE UINT64_MAX
#define DEDUP_ROWS_DEFAULT 14000000u /* some 270 MB */

struct dedup;

/* What is known of a text. */
struct dedup_entry {
    uint64_t row;       /* below 2^40, or DEDUP_NONE */
    enum row_code code; /* not ROW_OK: that row failed, and so does every one like it */
};

/* Makes a table that keeps at most `most_rows` texts. Owns: the caller ends it with dedup_close. Errors:
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status dedup_open(uint64_t most_rows, struct dedup **out, struct err *err);

/* Frees it. NULL is allowed. */
void dedup_close(struct dedup *dedup);

/* The text is asked for soon: what is known of it begins its way into the cache. */
void dedup_expect(const struct dedup *dedup, struct hash hash);

/* What is known of a text; row is DEDUP_NONE where nothing is. */
struct dedup_entry dedup_find(const struct dedup *dedup, struct hash hash);

/* Sets what is known of a text. When there is no room, or no memory, it is not known: nothing else changes. */
void dedup_put(struct dedup *dedup, struct hash hash, struct dedup_entry entry);

#endif
