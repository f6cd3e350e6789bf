/* A flow: the rows of one tenant in one class of the window, oldest first; the heap in which the flow that has had
 * least is on top; and the table in which a flow is found. Private to work/. */
#ifndef WORK_FLOW_H
#define WORK_FLOW_H

#include "work/request.h"

enum { FLOW_LOOK = 1024 };

/* The rows of one tenant in one class, or the overdue ones of all. */
struct flow {
    struct row *first, *last;
    uint64_t had;           /* tokens, so far */
    uint64_t expires_at_ms; /* not before may one of its rows expire; 0: none does */
    uint32_t place;         /* in the heap */
    bool idle;              /* in the window's list of flows that may have no rows any more, by `next` */
    struct flow *next;
    struct flow *chain; /* in the table */
    enum request_class class;
    char tenant[TENANT_MAX + 1];
};

/* Adds a row as the youngest, which then waits here. Owns: the row stays its request's, here and below. */
void flow_push_last(struct flow *flow, struct row *row);

/* Adds a row as the oldest. */
void flow_push_first(struct flow *flow, struct row *row);

/* When a row expires, if it does: what has been started does not. Units: Redis unix ms; 0: never. */
uint64_t row_expires_at_ms(const struct row *row);

/* Brings a bound forward to when a row expires, if it does (0: it does not). Units: Redis unix ms; a bound of 0: none.
 */
void expiry_bound(uint64_t *bound_ms, uint64_t expires_ms);

/* Whose turn it is among the first FLOW_LOOK: the row that expires first, if it does before `urgent_ms`, else the
 * oldest.
 */
struct row *flow_turn(struct flow *flow, uint64_t urgent_ms);

/* Takes a row out of its flow; row->flow still says which that was. */
void flow_unlink(struct row *row);

/* All zero is an empty one. */
struct flow_heap {
    struct flow **flows; /* [count]; the first has had least */
    uint32_t count, capacity;
};

/* Makes room for so many; false when memory ran out. */
MUST_CHECK bool heap_reserve(struct flow_heap *heap, uint32_t count);

/* Adds a flow, for which there is room (heap_reserve). */
void heap_add(struct flow_heap *heap, struct flow *flow);

/* Takes out a flow that is in it. */
void heap_remove(struct flow_heap *heap, struct flow *flow);

/* Finds a flow its new place: its `had` has changed. */
void heap_update(struct flow_heap *heap, struct flow *flow);

enum { FLOW_BUCKETS = 1024 };

/* All zero is an empty one. */
struct flows {
    struct flow *buckets[FLOW_BUCKETS];
};

/* The flow of a tenant in a class; NULL when there is none. */
struct flow *flows_find(const struct flows *flows, enum request_class class, const char *tenant);

/* Likewise, and makes one where there is none. Owns: it is the table's. Errors: NULL when memory ran out. */
struct flow *flows_make(struct flows *flows, enum request_class class, const char *tenant);

/* Takes a flow without rows out of the table and frees it. */
void flows_end(struct flows *flows, struct flow *flow);

/* Frees all flows; their rows stay their requests'. */
void flows_close(struct flows *flows);

#endif
