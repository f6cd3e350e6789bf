/* The rows of the window by what their vector depends on, so that equal texts are computed once. Private to work/.
 *
 * A hash table whose chains are in the rows, so that adding cannot fail: without memory for buckets, rows are just not
 * found. */
#ifndef WORK_EQUALS_H
#define WORK_EQUALS_H

#include "work/request.h"

/* All zero is an empty one. */
struct equals {
    struct row **buckets; /* [mask + 1]; NULL: none yet */
    uint32_t mask, count;
};

/* Frees the buckets; the rows stay their requests'. */
void equals_close(struct equals *equals);

/* Adds a row. One without a hash (0) is not kept. */
void equals_add(struct equals *equals, struct row *row);

/* Takes a row out; one that is not in it is left alone, once equals_add has seen it. */
void equals_remove(struct equals *equals, struct row *row);

/* The chain (by row->chain) in which rows equal to this one are, among others; it need not be in it itself. */
struct row *equals_chain(const struct equals *equals, const struct row *row);

/* Whether two rows have the same token ids, and so the same vector. */
bool equals_same(const struct row *a, const struct row *b);

#endif
