/* A batch is one allocation: struct, row pointers, vectors, starts, lengths, second texts, ids. */
#include "schedule/batch.h"

#include <stdlib.h>
#include <string.h>

static int longer_row_first(const void *left, const void *right)
{
    const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;
    if (a->tokens != b->tokens) { return a->tokens > b->tokens ? -1 : 1; }
    if (a->request == b->request) { return a < b ? -1 : 1; }
    return entry_id_compare(a->request->identity.entry, b->request->identity.entry);
}

struct batch *batch_build(struct row **rows, uint32_t count, enum batch_layout layout, uint32_t dim)
{
    uint32_t tokens = 0, longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        tokens += rows[i]->tokens;
        longest = rows[i]->tokens > longest ? rows[i]->tokens : longest;
    }
    size_t extent = layout != LAYOUT_PACKED ? (size_t)longest * count : tokens;
    size_t words = extent + 3 * (size_t)count + (size_t)count * dim;
    struct batch *batch = malloc(sizeof(*batch) + count * sizeof(struct row *) + words * sizeof(uint32_t));
    if (!batch) { return NULL; }
    *batch = (struct batch){.rows = (struct row **)(batch + 1), .tokens = tokens};
    memcpy(batch->rows, rows, count * sizeof(struct row *));
    qsort(batch->rows, count, sizeof(struct row *), longer_row_first);

    float *output = (float *)(batch->rows + count);
    uint32_t *start = (uint32_t *)(output + (size_t)count * dim), *length = start + count;
    uint32_t *second = length + count;
    int32_t *ids = (int32_t *)(second + count);
    bool pairs = false;
    if (layout != LAYOUT_PACKED) { memset(ids, 0, extent * sizeof(*ids)); }
    uint32_t packed = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct row *row = batch->rows[i];
        start[i] = layout != LAYOUT_PACKED ? i * longest : packed;
        length[i] = row->tokens;
        second[i] = row->second;
        pairs = pairs || row->second > 0;
        memcpy(ids + start[i], row->ids, row->tokens * sizeof(*ids));
        packed += row->tokens;
    }
    batch->engine = (struct engine_batch){.rows = count,
                                          .extent = (uint32_t)extent,
                                          .ids = ids,
                                          .start = start,
                                          .length = length,
                                          .output = output,
                                          .second = pairs ? second : NULL};
    return batch;
}

void batch_free(struct batch *batch)
{
    if (batch) { batch_free(batch->other); /* it has no other half itself */ }
    free(batch);
}

void batch_list_push(struct batch_list *list, struct batch *batch)
{
    batch->next = NULL;
    if (!list->last) {
        list->first = batch;
    } else {
        list->last->next = batch;
    }
    list->last = batch;
    list->count++;
}

void batch_list_push_first(struct batch_list *list, struct batch *batch)
{
    batch->next = list->first;
    list->first = batch;
    if (!list->last) { list->last = batch; }
    list->count++;
}

struct batch *batch_list_pop(struct batch_list *list)
{
    struct batch *batch = list->first;
    if (!batch) { return NULL; }
    list->first = batch->next;
    if (!list->first) { list->last = NULL; }
    list->count--;
    batch->next = NULL;
    return batch;
}

void batch_list_remove(struct batch_list *list, struct batch *batch)
{
    struct batch_list rest = {0};
    for (struct batch *other = batch_list_pop(list); other != NULL; other = batch_list_pop(list)) {
        if (other != batch) { batch_list_push(&rest, other); }
    }
    *list = rest;
}

void batch_list_free(struct batch_list *list)
{
    for (struct batch *batch; (batch = batch_list_pop(list)) != NULL;) { batch_free(batch); }
}
