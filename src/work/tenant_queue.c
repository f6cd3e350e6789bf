/* Lists are linked through their rows, so that only a new tenant needs memory. */
#include "work/tenant_queue.h"

#include <stdlib.h>
#include <string.h>

uint64_t row_expires_at_ms(const struct row *row)
{
    return row->request->started_ns == 0 ? row->request->expires_at_ms : 0;
}

void expiry_bound(uint64_t *bound_ms, uint64_t expires_ms)
{
    if (expires_ms != 0 && (*bound_ms == 0 || expires_ms < *bound_ms))
        *bound_ms = expires_ms;
}

/* A flow's bound stays as early as it was when the row that made it leaves; a look that finds nobody puts it right, or,
 * when it has not seen all rows, at where the next batch will be asked for: else every row of this one would cost a
 * look.
 */
struct row *flow_turn(struct flow *flow, uint64_t urgent_ms)
{
    if (flow->expires_at_ms == 0 || flow->expires_at_ms >= urgent_ms)
        return flow->first;
    struct row *earliest = NULL, *row = flow->first;
    uint64_t bound_ms = 0;
    for (uint32_t seen = 0; row != NULL && seen < FLOW_LOOK; row = row->next, seen++) {
        uint64_t before_ms = bound_ms;
        expiry_bound(&bound_ms, row_expires_at_ms(row));
        if (bound_ms != before_ms)
            earliest = row;
    }
    bool urgent = bound_ms != 0 && bound_ms < urgent_ms;
    if (row == NULL) /* these were all */
        flow->expires_at_ms = bound_ms;
    else if (!urgent)
        flow->expires_at_ms = urgent_ms;
    return urgent ? earliest : flow->first;
}

void flow_push_last(struct flow *flow, struct row *row)
{
    expiry_bound(&flow->expires_at_ms, row_expires_at_ms(row));
    row->flow = flow;
    row->next = NULL;
    row->previous = flow->last;
    *(flow->last == NULL ? &flow->first : &flow->last->next) = row;
    flow->last = row;
}

void flow_push_first(struct flow *flow, struct row *row)
{
    expiry_bound(&flow->expires_at_ms, row_expires_at_ms(row));
    row->flow = flow;
    row->previous = NULL;
    row->next = flow->first;
    *(flow->first == NULL ? &flow->last : &flow->first->previous) = row;
    flow->first = row;
}

void flow_unlink(struct row *row)
{
    struct flow *flow = row->flow;
    *(row->previous == NULL ? &flow->first : &row->previous->next) = row->next;
    *(row->next == NULL ? &flow->last : &row->next->previous) = row->previous;
    row->next = row->previous = NULL;
}

static void put(struct flow_heap *heap, uint32_t place, struct flow *flow)
{
    heap->flows[place] = flow;
    flow->place = place;
}

static void sift_up(struct flow_heap *heap, struct flow *flow)
{
    uint32_t place = flow->place;
    for (; place > 0 && heap->flows[(place - 1) / 2]->had > flow->had; place = (place - 1) / 2)
        put(heap, place, heap->flows[(place - 1) / 2]);
    put(heap, place, flow);
}

static void sift_down(struct flow_heap *heap, struct flow *flow)
{
    uint32_t place = flow->place;
    for (uint32_t child; (child = 2 * place + 1) < heap->count; place = child) {
        if (child + 1 < heap->count && heap->flows[child + 1]->had < heap->flows[child]->had)
            child++;
        if (heap->flows[child]->had >= flow->had)
            break;
        put(heap, place, heap->flows[child]);
    }
    put(heap, place, flow);
}

bool heap_reserve(struct flow_heap *heap, uint32_t count)
{
    if (count <= heap->capacity)
        return true;
    uint32_t capacity = count < 8 ? 8 : count * 2;
    struct flow **flows = realloc(heap->flows, capacity * sizeof(*flows));
    if (flows == NULL)
        return false;
    heap->flows = flows;
    heap->capacity = capacity;
    return true;
}

void heap_add(struct flow_heap *heap, struct flow *flow)
{
    put(heap, heap->count++, flow);
    sift_up(heap, flow);
}

void heap_remove(struct flow_heap *heap, struct flow *flow)
{
    struct flow *last = heap->flows[--heap->count];
    if (last == flow)
        return;
    put(heap, flow->place, last);
    heap_update(heap, last);
}

void heap_update(struct flow_heap *heap, struct flow *flow)
{
    sift_up(heap, flow);
    sift_down(heap, flow);
}

static uint32_t bucket_of(enum request_class class, const char *tenant)
{
    uint32_t hash = 2166136261u + class; /* FNV-1a: names are short */
    for (; *tenant != '\0'; tenant++)
        hash = (hash ^ (unsigned char)*tenant) * 16777619u;
    return (hash ^ hash >> 16) % FLOW_BUCKETS;
}

struct flow *flows_find(const struct flows *flows, enum request_class class, const char *tenant)
{
    struct flow *flow = flows->buckets[bucket_of(class, tenant)];
    while (flow != NULL && (flow->class != class || strcmp(flow->tenant, tenant) != 0))
        flow = flow->chain;
    return flow;
}

struct flow *flows_make(struct flows *flows, enum request_class class, const char *tenant)
{
    struct flow *flow = flows_find(flows, class, tenant);
    if (flow != NULL)
        return flow;
    flow = calloc(1, sizeof(*flow));
    if (flow == NULL)
        return NULL;
    struct flow **bucket = &flows->buckets[bucket_of(class, tenant)];
    flow->class = class;
    memcpy(flow->tenant, tenant, strlen(tenant) + 1);
    flow->chain = *bucket;
    *bucket = flow;
    return flow;
}

void flows_end(struct flows *flows, struct flow *flow)
{
    struct flow **at = &flows->buckets[bucket_of(flow->class, flow->tenant)];
    while (*at != flow)
        at = &(*at)->chain;
    *at = flow->chain;
    free(flow);
}

void flows_close(struct flows *flows)
{
    for (uint32_t i = 0; i < FLOW_BUCKETS; i++)
        for (struct flow *flow = flows->buckets[i], *next; flow != NULL; flow = next) {
            next = flow->chain;
            free(flow);
        }
    *flows = (struct flows){0};
}
