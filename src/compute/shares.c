#include "compute/shares.h"

#include <assert.h>
#include <stdlib.h>

enum status shares_open(struct shares *shares, size_t count, size_t capacity, struct err *err)
{
    *shares = (struct shares){.count = count, .capacity = capacity};
    shares->items = calloc(count, sizeof(struct share));
    bool ok = shares->items;
    for (size_t i = 0; ok && i < count; i++) {
        shares->items[i].waiting = calloc(capacity, sizeof(struct batch *));
        ok = shares->items[i].waiting;
    }
    return ok ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the shares of %zu queues", count);
}

void shares_close(struct shares *shares)
{
    for (size_t i = 0; shares->items != NULL && i < shares->count; i++) { free(shares->items[i].waiting); }
    free(shares->items);
    *shares = (struct shares){0};
}

void shares_put(struct shares *shares, size_t who, struct batch *batch)
{
    struct share *share = &shares->items[who];
    assert(share->count < shares->capacity && share->weight > 0);
    if (share->count == 0 && share->used < shares->level) { share->used = shares->level; }
    share->waiting[(share->first + share->count++) % shares->capacity] = batch;
}

struct batch *shares_take(struct shares *shares, size_t *who)
{
    struct share *next = NULL;
    for (size_t i = 0; i < shares->count; i++) {
        struct share *share = &shares->items[i];
        if (share->count > 0 && (!next || share->used < next->used)) {
            next = share;
            *who = i;
        }
    }
    if (!next) { return NULL; }
    struct batch *batch = next->waiting[next->first];
    next->first = (next->first + 1) % shares->capacity;
    next->count--;
    shares->level = next->used;
    next->used += batch->engine.extent * next->token_cost / next->weight;
    return batch;
}
