/* Lists and rings are linked through their members, so that only a new tenant needs memory. */
#include "work/flow.h"

#include <stdlib.h>
#include <string.h>

void flow_push_last(struct flow *flow, struct row *row)
{
    row->flow = flow;
    row->next = NULL;
    row->previous = flow->last;
    *(flow->last == NULL ? &flow->first : &flow->last->next) = row;
    flow->last = row;
}

void flow_push_first(struct flow *flow, struct row *row)
{
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

void ring_add(struct flow **ring, struct flow *flow)
{
    struct flow *first = *ring;
    if (first == NULL) {
        *ring = flow->next = flow->previous = flow;
        return;
    }
    flow->next = first;
    flow->previous = first->previous;
    flow->previous->next = first->previous = flow;
}

void ring_remove(struct flow **ring, struct flow *flow)
{
    if (*ring == flow)
        *ring = flow->next == flow ? NULL : flow->next;
    flow->next->previous = flow->previous;
    flow->previous->next = flow->next;
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
