/* Looks up host names on a thread of its own: getaddrinfo blocks for as long as the name service likes, and the event
 * loop has leases to renew and signals to hear meanwhile. (libevent's own DNS client would not block, but it knows
 * nothing of nsswitch: no mDNS, no SSSD, no systemd-resolved.)
 *
 * One thread, one name at a time; it starts with the first name. A lookup that nobody waits for any more is skipped,
 * and a thread that hangs in one is left behind when the resolver is closed. */
#ifndef IO_RESOLVER_H
#define IO_RESOLVER_H

#include <stdint.h>

#include "base/err.h"

struct addrinfo;
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

#endif
