/* One allocation holds a batch: struct, row pointers, starts, lengths, ids, vectors. */
#include "work/batch.h"

#include <stdlib.h>
#include <string.h>

static int longer_first(const void *left, const void *right)
{
    const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;
    if (a->tokens != b->tokens)
        return a->tokens > b->tokens ? -1 : 1;
    if (a->request == b->request)
        return a < b ? -1 : 1;
    return entry_id_compare(a->request->entry, b->request->entry);
}

struct batch *batch_build(struct row **rows, uint32_t count, enum batch_layout layout, uint32_t dim)
{
    uint32_t tokens = 0, longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        tokens += rows[i]->tokens;
        longest = rows[i]->tokens > longest ? rows[i]->tokens : longest;
    }
    size_t extent = layout == LAYOUT_PADDED ? (size_t)longest * count : tokens;
    size_t words = extent + 2 * (size_t)count + (size_t)count * dim;
    struct batch *batch = malloc(sizeof(*batch) + count * sizeof(struct row *) + words * sizeof(uint32_t));
    if (batch == NULL)
        return NULL;
    *batch = (struct batch){.rows = (struct row **)(batch + 1), .tokens = tokens};
    memcpy(batch->rows, rows, count * sizeof(struct row *));
    qsort(batch->rows, count, sizeof(struct row *), longer_first);

    float *output = (float *)(batch->rows + count);
    uint32_t *start = (uint32_t *)(output + (size_t)count * dim), *length = start + count;
    int32_t *ids = (int32_t *)(length + count);
    if (layout == LAYOUT_PADDED)
        memset(ids, 0, extent * sizeof(*ids));
    uint32_t packed = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct row *row = batch->rows[i];
        start[i] = layout == LAYOUT_PADDED ? i * longest : packed;
        length[i] = row->tokens;
        memcpy(ids + start[i], row->ids, row->tokens * sizeof(*ids));
        packed += row->tokens;
    }
    batch->engine = (struct engine_batch){
        .rows = count, .extent = (uint32_t)extent, .ids = ids, .start = start, .length = length, .output = output};
    return batch;
}

void batch_free(struct batch *batch)
{
    if (batch != NULL)
        batch_free(batch->other); /* it has no other half itself */
    free(batch);
}
