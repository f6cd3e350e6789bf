/* Connects a socket without blocking: to a unix path, or to each address of a host in turn until one answers. */
#ifndef IO_DIAL_H
#define IO_DIAL_H

#include "base/err.h"
#include "io/address.h"
#include "io/resolver.h"

struct event_base;
struct dial;

/* Where to, and who is told. */
struct dial_options {
    struct event_base *base;
    const char *path;          /* a unix socket, or */
    const struct place *place; /* a host; both must outlive the dial */
    struct resolver *resolver; /* for hosts that are names; NULL: there are none */
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
