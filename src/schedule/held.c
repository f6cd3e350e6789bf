/* A chained hash table. The chain is in the request itself, so adding one cannot fail. */
#include "schedule/held.h"

#include <stdlib.h>

enum { HELD_BUCKETS = 1024 };

enum status held_open(struct held *held, struct err *err)
{
    *held = (struct held){.mask = HELD_BUCKETS - 1};
    held->buckets = calloc(HELD_BUCKETS, sizeof(struct request *));
    if (!held->buckets) { return err_set(err, STATUS_NO_MEMORY, "no memory for the table of held requests"); }
    return STATUS_OK;
}

void held_close(struct held *held)
{
    for (uint32_t i = 0; held->buckets != NULL && i <= held->mask; i++) {
        for (struct request *request = held->buckets[i], *next; request != NULL; request = next) {
            next = request->chain;
            request_free(request);
        }
    }
    free(held->buckets);
    *held = (struct held){0};
}

static uint32_t held_bucket(const struct held *held, enum request_class class, struct entry_id id)
{
    uint64_t mixed = (id.ms * 3 + class) * 0x9e3779b97f4a7c15u + id.seq;
    mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93u;
    return (uint32_t)(mixed >> 32) & held->mask;
}

struct request *held_find(const struct held *held, enum request_class class, struct entry_id id)
{
    struct request *request = held->buckets[held_bucket(held, class, id)];
    while (request && (request->identity.class != class || entry_id_compare(request->identity.entry, id) != 0)) {
        request = request->chain;
    }
    return request;
}

/* Doubles the table; without memory the chains get longer. */
static void grow_table(struct held *held)
{
    uint32_t old = held->mask;
    struct request **buckets = calloc((size_t)(old + 1) * 2, sizeof(struct request *));
    if (!buckets) { return; }
    struct request **before = held->buckets;
    held->buckets = buckets;
    held->mask = old * 2 + 1;
    for (uint32_t i = 0; i <= old; i++) {
        for (struct request *request = before[i], *next; request != NULL; request = next) {
            next = request->chain;
            uint32_t at = held_bucket(held, request->identity.class, request->identity.entry);
            request->chain = buckets[at];
            buckets[at] = request;
        }
    }
    free(before);
}

static struct held_sum *sum_of(struct held *held, const struct request *request)
{
    return request->identity.origin == ORIGIN_FAIR ? &held->ahead[request->identity.class]
                                                   : &held->sums[request->identity.class];
}

struct held_sum held_all(const struct held *held)
{
    struct held_sum all = {.count = held->count};
    for (int c = 0; c < CLASS_COUNT; c++) {
        all.tokens += held->sums[c].tokens + held->ahead[c].tokens;
        all.bytes += held->sums[c].bytes + held->ahead[c].bytes;
    }
    return all;
}

void held_add(struct held *held, struct request *request)
{
    if (held->count > held->mask) { grow_table(held); }
    uint32_t at = held_bucket(held, request->identity.class, request->identity.entry);
    request->chain = held->buckets[at];
    held->buckets[at] = request;
    held->count++;
    struct held_sum *sum = sum_of(held, request);
    sum->count++;
    sum->tokens += request->tokens;
    sum->bytes += request->bytes;
}

void held_remove(struct held *held, struct request *request)
{
    struct request **at = &held->buckets[held_bucket(held, request->identity.class, request->identity.entry)];
    while (*at != request) { at = &(*at)->chain; }
    *at = request->chain;
    held->count--;
    struct held_sum *sum = sum_of(held, request);
    sum->count--;
    sum->tokens -= request->tokens;
    sum->bytes -= request->bytes;
    if (request->lifetime.begun) { sum->work_bytes -= request->work_bytes; }
}

uint32_t held_begin(struct held *held, const struct request_list *list, uint32_t most, uint64_t credit_bytes)
{
    uint32_t count = 0;
    for (struct request *request = list->first; request != NULL && count < most; request = request->next, count++) {
        struct held_sum *sum = sum_of(held, request);
        if (request->lifetime.begun) { continue; }
        if (sum->work_bytes > 0 && sum->work_bytes + request->work_bytes > credit_bytes) { break; }
        request->lifetime.begun = true;
        sum->work_bytes += request->work_bytes;
    }
    return count;
}

void held_weigh(struct held *held, struct request *request, uint32_t tokens)
{
    struct held_sum *sum = sum_of(held, request);
    sum->tokens += tokens;
    sum->tokens -= request->tokens;
    request->tokens = tokens;
}
