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

struct held {
    struct request **buckets; /* [mask + 1] */
    uint32_t mask, count;
    struct held_sum sums[CLASS_COUNT];  /* of all but … */
    struct held_sum ahead[CLASS_COUNT]; /* … those that came by ORIGIN_FAIR */
};

MUST_CHECK enum status held_open(struct held *held, struct err *err);
void held_close(struct held *held); /* frees every request in it */

struct request *held_find(const struct held *held, enum request_class class, struct entry_id id);
struct held_sum held_all(const struct held *held);
void held_add(struct held *held, struct request *request);
void held_remove(struct held *held, struct request *request);

/* Counts the first of a list, all of one class, as begun: as many as may be prepared without their work taking more
 * than `credit_bytes`, at most `most`. At least one may when none has been. Returns how many. What a read brings may
 * weigh far more than was expected of it; this holds the memory down all the same. */
uint32_t held_begin(struct held *held, const struct request_list *list, uint32_t most, uint64_t credit_bytes);

/* Replaces the estimate of a request's tokens, which may change while it is held. */
void held_weigh(struct held *held, struct request *request, uint32_t tokens);

#endif
