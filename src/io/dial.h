/* Connects a socket without blocking: to a unix path, or to each address of a host in turn until one answers.
 *
 * Host names are looked up on a thread of their own: getaddrinfo blocks for as long as the name service likes, and the
 * event loop has leases to renew and signals to hear meanwhile. (libevent's own DNS client does not block, but it
 * ignores nsswitch: no mDNS, no SSSD, no systemd-resolved.) The thread starts with the first name and looks up one at a
 * time. It skips lookups that nobody waits for any more; if it hangs, resolver_close leaves it behind. */
#ifndef IO_DIAL_H
#define IO_DIAL_H

#include <stdint.h>

#include "base/err.h"
#include "io/address.h"

struct addrinfo;
struct dial;
struct event_base;
struct lookup;
struct resolver;

/* Makes a resolver; its thread starts with the first name. Owns: the caller ends it with resolver_close, when no
 * lookup is open. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status resolver_open(struct event_base *base, struct resolver **out, struct err *err);

/* Ends the thread, or leaves it behind when it hangs. NULL is allowed. */
void resolver_close(struct resolver *resolver);

/* Is told once, from the event loop: `found` is the callee's (freeaddrinfo), NULL on error. */
typedef void lookup_done_fn(void *context, struct addrinfo *found, const struct err *err);

/* Asks for the TCP addresses of a host. Owns: the caller ends it with lookup_close, inside `done` or before it came.
 * Errors: STATUS_UNAVAILABLE (too many lookups hang already), STATUS_NO_MEMORY. */
MUST_CHECK enum status lookup_open(struct resolver *resolver, const char *host, uint16_t port, lookup_done_fn *done,
                                   void *context, struct lookup **out, struct err *err);

/* Nobody waits for it any more: `done` does not come. NULL is allowed. */
void lookup_close(struct lookup *lookup);

/* Where to, and who is told. */
struct dial_options {
    struct event_base *base;
    const char *path;                /* a unix socket, or */
    const struct endpoint *endpoint; /* a host; both must outlive the dial */
    struct resolver *resolver;       /* for hosts that are names; NULL: there are none */
    void *context;
    /* Comes once, from the event loop: a connected non-blocking socket, now the callee's, or -1 and the last error. */
    void (*done)(void *context, int fd, const struct err *err);
};

/* Begins to connect. Owns: the caller ends it with dial_close, inside `done` or before it came. Errors:
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status dial_open(const struct dial_options *options, struct dial **out, struct err *err);

/* Gives up, if it is not over, and frees. NULL is allowed. */
void dial_close(struct dial *dial);

/* What it is at, for the message of a connection that took too long. */
const char *dial_stage(const struct dial *dial);

#endif
