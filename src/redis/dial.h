/* Connects a socket without blocking: to a unix path, or to each address of a host in turn until one answers.
 *
 * A separate thread looks up host names: getaddrinfo may block for long, and the event loop has leases to renew and
 * signals to handle meanwhile. (libevent's DNS client does not block, but it ignores nsswitch: no mDNS, no SSSD, no
 * systemd-resolved.) The thread starts with the first name and looks up one at a time. It skips lookups that were
 * closed; if it hangs, resolver_close leaves it behind. */
#ifndef REDIS_DIAL_H
#define REDIS_DIAL_H

#include <stdint.h>

#include "base/err.h"
#include "redis/address.h"

struct addrinfo;
struct dial;
struct event_base;
struct lookup;
struct resolver;

/* Makes a resolver. Owns: the caller ends it with resolver_close, after its lookups. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status resolver_open(struct event_base *base, struct resolver **out, struct err *err);

/* Ends the thread, or leaves it behind if it hangs. NULL is allowed. */
void resolver_close(struct resolver *resolver);

/* Called once, from the event loop. Owns: the callee frees `found` (freeaddrinfo), which is NULL on error. */
typedef void lookup_done_fn(void *context, struct addrinfo *found, const struct err *err);

/* Looks up the TCP addresses of a host. Owns: the caller ends it with lookup_close, inside `done` or before.
 * Errors: STATUS_UNAVAILABLE (too many lookups hang), STATUS_NO_MEMORY. */
MUST_CHECK enum status lookup_open(struct resolver *resolver, const char *host, uint16_t port, lookup_done_fn *done,
                                   void *context, struct lookup **out, struct err *err);

/* Ends a lookup; `done` is not called any more. NULL is allowed. */
void lookup_close(struct lookup *lookup);

/* The peer, and the callback. */
struct dial_options {
    struct event_base *base;
    const char *path;                /* a unix socket, or … */
    const struct endpoint *endpoint; /* … a host; both must outlive the dial */
    struct resolver *resolver;       /* for host names; NULL: there are none */
    void *context;
    /* Called once, from the event loop, with a connected non-blocking socket, which the callee owns, or -1 and the last
     * error. */
    void (*done)(void *context, int fd, const struct err *err);
};

/* Begins to connect. Owns: the caller ends it with dial_close, inside `done` or before. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status dial_open(const struct dial_options *options, struct dial **out, struct err *err);

/* Stops and frees. NULL is allowed. */
void dial_close(struct dial *dial);

/* Says what it waits for, for a message about a timeout. */
const char *dial_stage(const struct dial *dial);

#endif
