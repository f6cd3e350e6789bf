/* Chains with back pointers: a row leaves in O(1), wherever it is. */
#include "work/dedup_index.h"

#include <stdlib.h>
#include <string.h>

enum { EQUALS_BUCKETS = 256 };

void equals_close(struct equals *equals)
{
    free(equals->buckets);
    *equals = (struct equals){0};
}

static void insert(struct equals *equals, struct row *row)
{
    struct row **bucket = &equals->buckets[row->hash & equals->mask];
    row->chain = *bucket;
    row->chained_by = bucket;
    if (row->chain != NULL)
        row->chain->chained_by = &row->chain;
    *bucket = row;
}

/* Doubles the table; when memory is short, the chains just grow. */
static void grow(struct equals *equals)
{
    uint32_t old = equals->buckets == NULL ? 0 : equals->mask + 1;
    uint32_t wanted = old == 0 ? EQUALS_BUCKETS : old * 2;
    struct row **before = equals->buckets, **buckets = calloc(wanted, sizeof(struct row *));
    if (buckets == NULL)
        return;
    equals->buckets = buckets;
    equals->mask = wanted - 1;
    for (uint32_t i = 0; i < old; i++)
        for (struct row *row = before[i], *next; row != NULL; row = next) {
            next = row->chain;
            insert(equals, row);
        }
    free(before);
}

void equals_add(struct equals *equals, struct row *row)
{
    row->chained_by = NULL;
    if (row->hash == 0)
        return;
    if (equals->buckets == NULL || equals->count > equals->mask)
        grow(equals);
    if (equals->buckets == NULL)
        return;
    insert(equals, row);
    equals->count++;
}

void equals_remove(struct equals *equals, struct row *row)
{
    if (row->chained_by == NULL)
        return;
    *row->chained_by = row->chain;
    if (row->chain != NULL)
        row->chain->chained_by = row->chained_by;
    row->chained_by = NULL;
    equals->count--;
}

struct row *equals_chain(const struct equals *equals, const struct row *row)
{
    return equals->buckets == NULL || row->hash == 0 ? NULL : equals->buckets[row->hash & equals->mask];
}

bool equals_same(const struct row *a, const struct row *b)
{
    return a->hash == b->hash && a->tokens == b->tokens && memcmp(a->ids, b->ids, a->tokens * sizeof(*a->ids)) == 0;
}
