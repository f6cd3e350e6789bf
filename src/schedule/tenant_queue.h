/* Tenant queues: the rows of one tenant in one class of the window, oldest first; the heap whose top is the queue that
 * has had the fewest tokens; the table that finds a queue. Private to schedule/. */
#ifndef SCHEDULE_TENANT_QUEUE_H
#define SCHEDULE_TENANT_QUEUE_H

#include "schedule/request.h"

enum { TENANT_LOOK = 1024 };

/* The rows of one tenant in one class, or all overdue rows. */
struct tenant_queue {
    struct row *first, *last;
    uint64_t had;           /* tokens, so far */
    uint64_t expires_at_ms; /* no row expires earlier; 0: none expires */
    uint32_t index;         /* in the heap */
    bool idle;              /* in the window's list of queues that may be empty, by `next` */
    struct tenant_queue *next;
    struct tenant_queue *chain; /* in the table */
    enum request_class class;
    char tenant[TENANT_MAX + 1];
};

/* Adds a row as the youngest. Owns: rows belong to their requests, here and below. */
void tenant_queue_push_last(struct tenant_queue *queue, struct row *row);

/* Adds a row as the oldest. */
void tenant_queue_push_first(struct tenant_queue *queue, struct row *row);

/* The time when a row expires; a started one does not. Units: Redis unix ms; 0: never. */
uint64_t expiry_of(const struct row *row);

/* Lowers a bound to the time when a row expires (0: never). Units: Redis unix ms; a bound of 0: none. */
void expiry_bound(uint64_t *bound_ms, uint64_t expires_ms);

/* The row whose turn it is among the first TENANT_LOOK: the one that expires first, if before `urgent_ms`, else the
 * oldest. */
struct row *tenant_queue_turn(struct tenant_queue *queue, uint64_t urgent_ms);

/* Takes a row out of its queue; row->queue still points to it. */
void tenant_queue_unlink(struct row *row);

/* All zero is an empty one. */
struct tenant_heap {
    struct tenant_queue **queues; /* [count]; the first has had the fewest tokens */
    uint32_t count, capacity;
};

/* Makes room for `count` queues; false when memory ran out. */
MUST_CHECK bool tenant_heap_reserve(struct tenant_heap *heap, uint32_t count);

/* Adds a queue; tenant_heap_reserve must have made room. */
void tenant_heap_add(struct tenant_heap *heap, struct tenant_queue *queue);

/* Takes out a queue that is in the heap. */
void tenant_heap_remove(struct tenant_heap *heap, struct tenant_queue *queue);

/* Moves a queue whose `had` has changed. */
void tenant_heap_update(struct tenant_heap *heap, struct tenant_queue *queue);

enum { TENANT_BUCKETS = 1024 };

/* All zero is an empty one. */
struct tenant_table {
    struct tenant_queue *buckets[TENANT_BUCKETS];
};

/* The queue of a tenant in a class; NULL when there is none. */
struct tenant_queue *tenant_table_find(const struct tenant_table *table, enum request_class class, const char *tenant);

/* Finds a tenant's queue in a class, and makes one if there is none. Owns: it belongs to the table. Errors: NULL when
 * memory ran out. */
struct tenant_queue *tenant_table_make(struct tenant_table *table, enum request_class class, const char *tenant);

/* Frees a queue without rows. */
void tenant_table_end(struct tenant_table *table, struct tenant_queue *queue);

/* Frees all queues; rows belong to their requests. */
void tenant_table_close(struct tenant_table *table);

#endif
