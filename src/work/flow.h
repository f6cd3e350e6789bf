/* A flow: the rows of one tenant in one class of the window, oldest first; the ring in which the flows of a class take
 * turns; and the table in which a flow is found. Private to work/. */
#ifndef WORK_FLOW_H
#define WORK_FLOW_H

#include "work/request.h"

struct flow {
    struct row *first, *last;
    struct flow *next, *previous; /* in a ring, while it has rows; `next` also in the window's list of idle flows */
    struct flow *chain;           /* in the table */
    int64_t turn;                 /* tokens that it has had in this turn; below 0: it is owed some of an earlier one */
    enum request_class class;
    char tenant[TENANT_MAX + 1];
};

void flow_push_last(struct flow *flow, struct row *row);
void flow_push_first(struct flow *flow, struct row *row);

/* Takes a row out of its flow; row->flow still says which that was. */
void flow_unlink(struct row *row);

/* A ring is a pointer to the flow whose turn it is; NULL when it is empty. A new flow is the last to have its turn. */
void ring_add(struct flow **ring, struct flow *flow);
void ring_remove(struct flow **ring, struct flow *flow);

enum { FLOW_BUCKETS = 256 };

/* All zero is an empty one. */
struct flows {
    struct flow *buckets[FLOW_BUCKETS];
};

/* NULL when there is none; flows_make then makes one, NULL when memory ran out. */
struct flow *flows_find(const struct flows *flows, enum request_class class, const char *tenant);
struct flow *flows_make(struct flows *flows, enum request_class class, const char *tenant);

void flows_end(struct flows *flows, struct flow *flow); /* frees it */
void flows_close(struct flows *flows);                  /* frees them all */

#endif
