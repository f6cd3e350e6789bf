/* The table of held requests: every request from its first read to its confirmed end, by class and entry id. An entry
 * that is read twice (our own pending list after a reconnect) is held once. Private to schedule/. */
#ifndef SCHEDULE_HELD_H
#define SCHEDULE_HELD_H

#include "schedule/request.h"

/* The weight of some of the requests, which counts against credit. */
struct held_sum {
    uint32_t count;
    uint64_t tokens, bytes;
    uint64_t work_bytes; /* of those that have begun */
};

/* The table. It owns its requests; other code borrows them. */
struct held {
    struct request **buckets; /* [mask + 1] */
    uint32_t mask, count;
    struct held_sum sums[CLASS_COUNT];  /* of all but those … */
    struct held_sum ahead[CLASS_COUNT]; /* … of ORIGIN_FAIR */
};

/* Makes an empty table. Owns: the caller ends it with held_close. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status held_open(struct held *held, struct err *err);

/* Frees the table and every request in it, wherever the request is. */
void held_close(struct held *held);

/* The request of an entry; NULL if it is not held. */
struct request *held_find(const struct held *held, enum request_class class, struct entry_id id);

/* The weight of all requests together; work_bytes stays 0. */
struct held_sum held_all(const struct held *held);

/* Holds a request whose entry is not held yet. This cannot fail: without memory the chains get longer. */
void held_add(struct held *held, struct request *request);

/* Takes a held request out. Owns: the caller owns it from now on. */
void held_remove(struct held *held, struct request *request);

/* Counts the first requests of a list, all of one class, as begun: at most `most`, and only while their work takes no
 * more than `credit_bytes`; one may always begin if none has. Returns how many. This bounds memory even if a read
 * brings far more than was expected. */
uint32_t held_begin(struct held *held, const struct request_list *list, uint32_t most, uint64_t credit_bytes);

/* Replaces the estimate of a held request's tokens. */
void held_weigh(struct held *held, struct request *request, uint32_t tokens);

#endif
