/* The gateway: HTTP clients' calls become requests of queues, and their replies become answers.
 *
 *   http/server ──body──► body_parse ──call──► producer (XADD; a request for each max_inputs texts)
 *               ◄─answer─ dialect_render ◄─joined─ producer (reply)
 *
 * It keeps nothing that a restart would lose: a call that is cut off by one is sent again by its client.
 * Thread: the loop's, for all of this. */
#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct address;
struct event_base;
struct gateway;

struct gateway_options {
    struct event_base *base;
    const char *listen;            /* 127.0.0.1:8080; without keys a loopback address */
    const char *keys;              /* gateway/keys.h: "redis", or a file; "": anybody may ask */
    const struct address *address; /* must outlive the gateway, like the names */
    const char *const *queues;     /* [queue_count], at least one */
    size_t queue_count;
    const char *data;     /* the folder of files and batches; "": there are none. Must outlive the gateway */
    uint64_t cache_bytes; /* of the cache of each queue: gateway/cache.h; 0: there is none */
    void *context;
    void (*on_denied)(void *context, const struct err *err); /* Redis refuses the login */
};

/* Listens, and begins to connect to Redis. Owns: the caller ends it with gateway_close.
 * Errors: those of http_open, producer_open and batches_open; STATUS_DENIED: others than this machine could connect. */
MUST_CHECK enum status gateway_open(const struct gateway_options *options, struct gateway **out, struct err *err);

/* Takes no more calls; those that are in flight go on. */
void gateway_stop(struct gateway *gateway);

/* True if no call is in flight. */
bool gateway_is_idle(const struct gateway *gateway);

/* Answers all calls in flight with a 503, whose client may try again elsewhere, and cancels their requests. */
void gateway_give_up(struct gateway *gateway);

/* Closes everything. NULL is allowed. */
void gateway_close(struct gateway *gateway);

#endif
