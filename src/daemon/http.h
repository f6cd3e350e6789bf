/* The daemon's HTTP port, on the I/O thread's loop: GET only, one request for each connection.
 *
 * Nobody who connects can hold up the daemon: the number of connections, the bytes of a request and the time from
 * connect to close are bounded, and an answer is made at once from what is in memory. */
#ifndef DAEMON_HTTP_H
#define DAEMON_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

enum {
    HTTP_CONNECTIONS = 32,   /* open at a time; further ones are closed at once */
    HTTP_HEAD_BYTES = 4096,  /* of a request; it has no body */
    HTTP_DEADLINE_MS = 5000, /* from connect to close */
};

struct event_base;
struct http;

/* What a path leads to. `answer` appends the body and returns the status: 200, 400 or 503. `query` is what follows the
 * '?', undecoded. Thread: the loop's. */
struct http_route {
    const char *path;
    const char *type; /* of the content */
    int (*answer)(void *context, const char *query, struct buffer *body);
};

/* Listens on an address such as 127.0.0.1:9464 or [::1]:9464. `routes` [count] must outlive it.
 * Owns: the caller ends it with http_close. Errors: STATUS_BAD_INPUT (the address), STATUS_IO (it cannot be listened
 * on), STATUS_NO_MEMORY. */
MUST_CHECK enum status http_open(struct event_base *base, const char *address, const struct http_route *routes,
                                 size_t count, void *context, struct http **out, struct err *err);

/* Closes all connections. NULL is allowed. */
void http_close(struct http *http);

/* Requests that were answered, and connections that were refused or cut off, since http_open. */
void http_counters(const struct http *http, uint64_t *answered, uint64_t *refused);

#endif
