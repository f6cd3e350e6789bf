/* Chains with back pointers: a row leaves in O(1). */
#include "schedule/dedup_index.h"

#include <stdlib.h>
#include <string.h>

enum { DEDUP_BUCKETS = 256 };

void dedup_index_close(struct dedup_index *index)
{
    free(index->buckets);
    *index = (struct dedup_index){0};
}

static void insert(struct dedup_index *index, struct row *row)
{
    struct row **bucket = &index->buckets[row->hash & index->mask];
    row->chain = *bucket;
    row->chained_by = bucket;
    if (row->chain) {
        row->chain->chained_by = &row->chain;
    }
    *bucket = row;
}

/* Doubles the table; without memory the chains just grow. */
static void grow(struct dedup_index *index)
{
    uint32_t old = index->buckets ? index->mask + 1 : 0;
    uint32_t wanted = old == 0 ? DEDUP_BUCKETS : old * 2;
    struct row **before = index->buckets, **buckets = calloc(wanted, sizeof(struct row *));
    if (!buckets) {
        return;
    }
    index->buckets = buckets;
    index->mask = wanted - 1;
    for (uint32_t i = 0; i < old; i++) {
        for (struct row *row = before[i], *next; row != NULL; row = next) {
            next = row->chain;
            insert(index, row);
        }
    }
    free(before);
}

void dedup_index_add(struct dedup_index *index, struct row *row)
{
    row->chained_by = NULL;
    if (row->hash == 0) {
        return;
    }
    if (!index->buckets || index->count > index->mask) {
        grow(index);
    }
    if (!index->buckets) {
        return;
    }
    insert(index, row);
    index->count++;
}

void dedup_index_remove(struct dedup_index *index, struct row *row)
{
    if (!row->chained_by) {
        return;
    }
    *row->chained_by = row->chain;
    if (row->chain) {
        row->chain->chained_by = row->chained_by;
    }
    row->chained_by = NULL;
    index->count--;
}

struct row *dedup_index_chain(const struct dedup_index *index, const struct row *row)
{
    return !index->buckets || row->hash == 0 ? NULL : index->buckets[row->hash & index->mask];
}

bool rows_same_ids(const struct row *a, const struct row *b)
{
    return a->hash == b->hash && a->tokens == b->tokens && memcmp(a->ids, b->ids, a->tokens * sizeof(*a->ids)) == 0;
}
