/* The table of held entries: every request between its first reading and the confirmed end, found by class and entry
 * id. What is read twice (our own pending list after a reconnect) is held once. Private to work/. */
#ifndef WORK_HELD_H
#define WORK_HELD_H

#include "work/request.h"

/* Of some of the requests: what credit counts. */
struct held_sum {
    uint32_t count;
    uint64_t tokens, bytes;
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

/* Replaces the estimate of a request's tokens, which may change while it is held. */
void held_weigh(struct held *held, struct request *request, uint32_t tokens);

#endif
