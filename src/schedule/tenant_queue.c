/* Lists are linked through the rows, so only a new tenant needs memory. */
#include "schedule/tenant_queue.h"

#include <stdlib.h>
#include <string.h>

uint64_t expiry_of(const struct row *row)
{
    return row->request->lifetime.started_ns == 0 ? row->request->lifetime.expires_at_ms : 0;
}

void expiry_bound(uint64_t *bound_ms, uint64_t expires_ms)
{
    if (expires_ms != 0 && (*bound_ms == 0 || expires_ms < *bound_ms)) { *bound_ms = expires_ms; }
}

/* A queue keeps its bound when the row that set it leaves. A search that finds no urgent row corrects the bound, or, if
 * it has not seen all rows, moves it to `urgent_ms`: otherwise every row of this batch would cost a search. */
struct row *tenant_queue_turn(struct tenant_queue *queue, uint64_t urgent_ms)
{
    if (queue->expires_at_ms == 0 || queue->expires_at_ms >= urgent_ms) { return queue->first; }
    struct row *earliest = NULL, *row = queue->first;
    uint64_t bound_ms = 0;
    for (uint32_t seen = 0; row != NULL && seen < TENANT_LOOK; row = row->next, seen++) {
        uint64_t before_ms = bound_ms;
        expiry_bound(&bound_ms, expiry_of(row));
        if (bound_ms != before_ms) { earliest = row; }
    }
    bool urgent = bound_ms != 0 && bound_ms < urgent_ms;
    if (!row) { /* all rows were seen */
        queue->expires_at_ms = bound_ms;
    } else if (!urgent) {
        queue->expires_at_ms = urgent_ms;
    }
    return urgent ? earliest : queue->first;
}

void tenant_queue_push_last(struct tenant_queue *queue, struct row *row)
{
    expiry_bound(&queue->expires_at_ms, expiry_of(row));
    row->queue = queue;
    row->next = NULL;
    row->previous = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = row;
    queue->last = row;
}

void tenant_queue_push_first(struct tenant_queue *queue, struct row *row)
{
    expiry_bound(&queue->expires_at_ms, expiry_of(row));
    row->queue = queue;
    row->previous = NULL;
    row->next = queue->first;
    *(queue->first ? &queue->first->previous : &queue->last) = row;
    queue->first = row;
}

void tenant_queue_unlink(struct row *row)
{
    struct tenant_queue *queue = row->queue;
    *(row->previous ? &row->previous->next : &queue->first) = row->next;
    *(row->next ? &row->next->previous : &queue->last) = row->previous;
    row->next = row->previous = NULL;
}

static void place_in_heap(struct tenant_heap *heap, uint32_t index, struct tenant_queue *queue)
{
    heap->queues[index] = queue;
    queue->index = index;
}

static void sift_queue_up(struct tenant_heap *heap, struct tenant_queue *queue)
{
    uint32_t index = queue->index;
    for (; index > 0 && heap->queues[(index - 1) / 2]->had > queue->had; index = (index - 1) / 2) {
        place_in_heap(heap, index, heap->queues[(index - 1) / 2]);
    }
    place_in_heap(heap, index, queue);
}

static void sift_queue_down(struct tenant_heap *heap, struct tenant_queue *queue)
{
    uint32_t index = queue->index;
    for (uint32_t child; (child = 2 * index + 1) < heap->count; index = child) {
        if (child + 1 < heap->count && heap->queues[child + 1]->had < heap->queues[child]->had) { child++; }
        if (heap->queues[child]->had >= queue->had) { break; }
        place_in_heap(heap, index, heap->queues[child]);
    }
    place_in_heap(heap, index, queue);
}

bool tenant_heap_reserve(struct tenant_heap *heap, uint32_t count)
{
    if (count <= heap->capacity) { return true; }
    uint32_t capacity = count < 8 ? 8 : count * 2;
    struct tenant_queue **queues = realloc(heap->queues, capacity * sizeof(*queues));
    if (!queues) { return false; }
    heap->queues = queues;
    heap->capacity = capacity;
    return true;
}

void tenant_heap_add(struct tenant_heap *heap, struct tenant_queue *queue)
{
    place_in_heap(heap, heap->count++, queue);
    sift_queue_up(heap, queue);
}

void tenant_heap_remove(struct tenant_heap *heap, struct tenant_queue *queue)
{
    struct tenant_queue *last = heap->queues[--heap->count];
    if (last == queue) { return; }
    place_in_heap(heap, queue->index, last);
    tenant_heap_update(heap, last);
}

void tenant_heap_update(struct tenant_heap *heap, struct tenant_queue *queue)
{
    sift_queue_up(heap, queue);
    sift_queue_down(heap, queue);
}

static uint32_t tenant_bucket(enum request_class class, const char *tenant)
{
    uint32_t hash = 2166136261u + class; /* FNV-1a: names are short */
    for (; *tenant != '\0'; tenant++) { hash = (hash ^ (unsigned char)*tenant) * 16777619u; }
    return (hash ^ hash >> 16) % TENANT_BUCKETS;
}

struct tenant_queue *tenant_table_find(const struct tenant_table *table, enum request_class class, const char *tenant)
{
    struct tenant_queue *queue = table->buckets[tenant_bucket(class, tenant)];
    while (queue && (queue->class != class || strcmp(queue->tenant, tenant) != 0)) { queue = queue->chain; }
    return queue;
}

struct tenant_queue *tenant_table_make(struct tenant_table *table, enum request_class class, const char *tenant)
{
    struct tenant_queue *queue = tenant_table_find(table, class, tenant);
    if (queue) { return queue; }
    queue = calloc(1, sizeof(*queue));
    if (!queue) { return NULL; }
    struct tenant_queue **bucket = &table->buckets[tenant_bucket(class, tenant)];
    queue->class = class;
    memcpy(queue->tenant, tenant, strlen(tenant) + 1);
    queue->chain = *bucket;
    *bucket = queue;
    return queue;
}

void tenant_table_end(struct tenant_table *table, struct tenant_queue *queue)
{
    struct tenant_queue **at = &table->buckets[tenant_bucket(queue->class, queue->tenant)];
    while (*at != queue) { at = &(*at)->chain; }
    *at = queue->chain;
    free(queue);
}

void tenant_table_close(struct tenant_table *table)
{
    for (uint32_t i = 0; i < TENANT_BUCKETS; i++) {
        for (struct tenant_queue *queue = table->buckets[i], *next; queue != NULL; queue = next) {
            next = queue->chain;
            free(queue);
        }
    }
    *table = (struct tenant_table){0};
}
