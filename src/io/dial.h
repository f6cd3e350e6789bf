/* Connects to an address without blocking: each address of a host name in turn, until one answers. */
#ifndef IO_DIAL_H
#define IO_DIAL_H

#include "base/err.h"
#include "io/address.h"

struct event_base;
struct dial;

/* Starts to connect; `done` comes once, from the event loop: a connected non-blocking socket, now the callee's, or -1
 * and the last error. A host name is looked up with getaddrinfo, which blocks; a number or a socket path does not.
 * Owns: the caller ends it with dial_close, inside `done` or before it came. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status dial_open(struct event_base *base, const struct address *address,
                                 void (*done)(void *context, int fd, const struct err *err), void *context,
                                 struct dial **out, struct err *err);
void dial_close(struct dial *dial);

#endif
