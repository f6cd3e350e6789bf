/* The gateway: HTTP clients' calls become requests of queues, and their replies become answers (gateway/calls.h). This
 * is the whole of it: its port and routes, its queues, its keys.
 *
 * It keeps nothing that a restart would lose: a call that is cut off by one is sent again by its client.
 * Thread: the loop's, for all of this. */
#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#include "gateway/openapi.h"
#include "http/server.h"

struct address;
struct event_base;
struct gateway;
struct gateway_options;

/* Paths that a layer above serves on the gateway's port, such as files and batches, and its numbers in /metrics. `open`
 * makes the context of the routes and of the other functions; `close` ends it. Keys must have the right to
 * batches for these paths. A route that says HTTP_LATER ends with gateway_answer. Thread: the loop's. */
struct gateway_extension {
    const struct http_route *routes; /* [route_count] */
    size_t route_count;
    struct openapi_paths paths;
    uint64_t file_bytes; /* of the largest body that goes into a file */
    enum status (*open)(const struct gateway_options *options, struct gateway *gateway, void **out, struct err *err);
    void (*close)(void *context);
    void (*put_metrics)(const void *context, struct buffer *to);
};

struct gateway_options {
    struct event_base *base;
    const char *listen;            /* 127.0.0.1:8080; without keys a loopback address */
    const char *keys;              /* gateway/keys.h: "redis", or a file; "": anybody may ask */
    const struct address *address; /* must outlive the gateway, like the names */
    const char *const *queues;     /* [queue_count], at least one */
    size_t queue_count;
    const struct gateway_extension *extension; /* NULL: none. Must outlive the gateway, like its folder: */
    const char *data;                          /* "": the extension stays closed */
    uint64_t cache_bytes;                      /* of the cache of each queue: gateway/cache.h; 0: there is none */
    void *context;
    void (*on_denied)(void *context, const struct err *err); /* Redis refuses the login */
};

/* Listens, and begins to connect to Redis. Owns: the caller ends it with gateway_close.
 * Errors: those of http_open, producer_open and the extension; STATUS_DENIED: others than this machine could connect.
 */
MUST_CHECK enum status gateway_open(const struct gateway_options *options, struct gateway **out, struct err *err);

/* Takes no more calls; those that are in flight go on. */
void gateway_stop(struct gateway *gateway);

/* True if no call is in flight. */
bool gateway_is_idle(const struct gateway *gateway);

/* Answers all calls in flight with a 503, whose client may try again elsewhere, and cancels their requests. */
void gateway_give_up(struct gateway *gateway);

/* Answers a request for a path of the extension, with its id. Owns: takes over the reply's buffers and its file. */
void gateway_answer(struct gateway *gateway, uint64_t number, struct http_reply *reply);

/* Closes everything. NULL is allowed. */
void gateway_close(struct gateway *gateway);

#endif
