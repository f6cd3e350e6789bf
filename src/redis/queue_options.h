/* The options of a queue. */
#ifndef REDIS_QUEUE_OPTIONS_H
#define REDIS_QUEUE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "redis/address.h"
#include "schedule/worker.h"

struct event_base;

/* The queue, its model, and timeouts. */
struct queue_options {
    struct event_base *base;
    const struct address *address;
    const char *name; /* of the queue: [a-z0-9_.-]{1,64} */

    /* The model, for replies and for the pin: one queue has one model. */
    const char *model_name;
    const char *model_id;
    const char *model_facts;          /* JSON, for those who ask before they send; NULL: {} */
    const char *revision;             /* NULL or "": not in replies */
    const char *precision;            /* NULL: f32, which is not in replies */
    const char *engine;               /* its kind: NULL or "": not in replies */
    uint32_t int8_products, products; /* of the model's layers: in int8, and all; 0: the precision is not int8 */

    uint32_t ttl_s;                                  /* of replies to cancelled requests without one; 0: an hour */
    uint32_t lease_ms;                               /* of the alive key */
    bool allow_eviction;                             /* join even if maxmemory-policy is not noeviction */
    uint64_t max_reply_bytes;                        /* memory that one answer may cost; 0: 64 MiB */
    uint32_t connect_timeout_ms, command_timeout_ms; /* 0: 5,000 each */
    uint32_t backoff_ms, backoff_cap_ms; /* between reconnects; 0: 100, and half a lease but at most 5,000 */
    uint64_t seed;                       /* for the jitter */
    bool look;                           /* update struct queue_look with each pulse */

    void *context;
    void (*on_event)(void *context, const struct event *event);
    /* Trying again will not help: wrong password or missing right (STATUS_DENIED), Redis before 7.0 or a queue of a
     * newer protocol (STATUS_UNSUPPORTED), a queue of another model or a Redis that evicts (STATUS_BAD_INPUT). The
     * queue has stopped; actions that were out are answered as after a disconnect. */
    void (*on_fatal)(void *context, const struct err *err);
    /* Redis has said which tokens of the text were sent before (queue_begin_text): it can be written. */
    void (*on_text)(void *context, struct batch *batch);
};

#endif
