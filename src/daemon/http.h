/* The daemon's HTTP port, on the I/O thread's loop: GET, POST with a body of JSON, one request for each connection.
 *
 * Nobody who connects can hold up the daemon: the number of connections, the bytes of a request and the time for each
 * step are bounded. An answer is made at once from memory, or elsewhere and later (http_answer).
 *
 * It does not use libevent's evhttp, which in 2.1 bounds neither the connections nor the time of a request, only that
 * of each read. Both limits would be needed here as well, and evhttp would save only the parser, a hundred lines. */
#ifndef DAEMON_HTTP_H
#define DAEMON_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

enum {
    HTTP_CONNECTIONS = 32,   /* open at a time; further ones are closed at once */
    HTTP_HEAD_BYTES = 8192,  /* of a request's head … */
    HTTP_BODY_BYTES = 65536, /* … and its body */
    HTTP_DEADLINE_MS = 5000, /* for a request to arrive whole, and for a late answer to be read */
    HTTP_ANSWER_MS = 15000,  /* for a late answer to be made */
    HTTP_LATER = 0,          /* in place of a status: http_answer follows */
};

struct event_base;
struct http;

/* A request; its strings live until `answer` returns. */
struct http_request {
    uint64_t number; /* for http_answer */
    bool post;
    const char *peer;          /* the address it comes from */
    const char *path, *query;  /* query: the part after the '?', undecoded; "" for none */
    const char *authorization; /* that header; NULL: not sent */
    const char *body;          /* [body_length], of a POST */
    size_t body_length;
};

/* A path and its handler. A path that ends with a slash stands for all paths that begin with it; "/" only for itself.
 * `guarded` protects against other sites' pages in a browser: Host must be this port's own name (localhost, or the kind
 * of address that it listens on), so that no foreign page gets here under a name of its own, and an Origin must match
 * Host.
 * `answer` appends the body and returns the status, or HTTP_LATER. Thread: the loop's. */
struct http_route {
    const char *path;
    const char *type; /* of the content; a refusal before `answer` is JSON: {"error": ...} */
    int (*answer)(void *context, const struct http_request *request, struct buffer *body);
    bool guarded, posts; /* posts: it takes POST, too */
};

/* Listens on an address such as 127.0.0.1:9464 or [::1]:9464. `routes` [count] must outlive it.
 * Owns: the caller ends it with http_close. Errors: STATUS_BAD_INPUT (the address), STATUS_IO (it cannot be listened
 * on), STATUS_NO_MEMORY. */
MUST_CHECK enum status http_open(struct event_base *base, const char *address, const struct http_route *routes,
                                 size_t count, void *context, struct http **out, struct err *err);

/* Closes all connections. NULL is allowed. */
void http_close(struct http *http);

/* True for a loopback address, which only this machine can reach. */
bool http_is_loopback(const char *address);

/* Answers a request whose route said HTTP_LATER; nothing happens if its client is gone. */
void http_answer(struct http *http, uint64_t number, int status, const struct buffer *body);

/* Makes the body of an error, and returns the status. */
int http_error(struct buffer *body, int status, const char *error);

/* Requests that were answered, and connections that were refused or cut off, since http_open. */
void http_counters(const struct http *http, uint64_t *answered, uint64_t *refused);

#endif
