/* The table of held entries: every request between its first reading and the confirmed end, found by class and entry
 * id. What is read twice (our own pending list after a reconnect) is held once. Private to work/. */
#ifndef WORK_HELD_H
#define WORK_HELD_H

#include "work/request.h"

/* Of some of the requests: what credit counts. */
struct held_sum {
    uint32_t count;
    uint64_t tokens, bytes;
    uint64_t work_bytes; /* of those that were begun */
};

/* The table. It owns the requests in it: whoever works on one has it on loan. */
struct held {
    struct request **buckets; /* [mask + 1] */
    uint32_t mask, count;
    struct held_sum sums[CLASS_COUNT];  /* of all but … */
    struct held_sum ahead[CLASS_COUNT]; /* … those that came by ORIGIN_FAIR */
};

/* Makes an empty table. Owns: the caller ends it with held_close. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status held_open(struct held *held, struct err *err);

/* Frees the table and every request in it, wherever that is. */
void held_close(struct held *held);

/* The request of an entry, or NULL when it is not held. */
struct request *held_find(const struct held *held, enum request_class class, struct entry_id id);

/* What all requests weigh together; work_bytes, which only classes are asked for, stays 0. */
struct held_sum held_all(const struct held *held);

/* Holds a request whose entry is not held yet. Cannot fail: without memory the chains just grow longer. */
void held_add(struct held *held, struct request *request);

/* Lets go of a request that is held. Owns: it is the caller's from now on. */
void held_remove(struct held *held, struct request *request);

/* Counts the first of a list, all of one class, as begun: as many as may be prepared without their work taking more
 * than `credit_bytes`, at most `most`. At least one may when none has been. Returns how many. What a read brings may
 * weigh far more than was expected of it; this holds the memory down all the same. */
uint32_t held_begin(struct held *held, const struct request_list *list, uint32_t most, uint64_t credit_bytes);

/* Replaces the estimate of a request's tokens, which may change while it is held. */
void held_weigh(struct held *held, struct request *request, uint32_t tokens);

#endif
