/* The window's rows by what their vector depends on, so that equal texts are computed once. Private to schedule/.
 *
 * A hash table whose chains are in the rows, so adding cannot fail: without memory for buckets, rows are just not
 * found. */
#ifndef SCHEDULE_DEDUP_INDEX_H
#define SCHEDULE_DEDUP_INDEX_H

#include "schedule/request.h"

/* All zero is an empty one. */
struct dedup_index {
    struct row **buckets; /* [mask + 1]; NULL: none yet */
    uint32_t mask, count;
};

/* Frees the buckets; rows belong to their requests. */
void dedup_index_close(struct dedup_index *index);

/* Adds a row, unless it has no hash (0). */
void dedup_index_add(struct dedup_index *index, struct row *row);

/* Takes a row out. Does nothing if dedup_index_add did not keep it. */
void dedup_index_remove(struct dedup_index *index, struct row *row);

/* The chain (by row->chain) that holds rows equal to this one, among others. The row need not be in it. */
struct row *dedup_index_chain(const struct dedup_index *index, const struct row *row);

/* Whether two rows have the same token ids, and so the same vector. */
bool rows_same_ids(const struct row *a, const struct row *b);

#endif
