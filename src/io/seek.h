/* Finds the master behind an address that names several servers or sentinels (address_is_plural).
 *
 * Servers are asked in turn for their ROLE. Sentinels are asked in turn for the master's address, and the server there
 * is asked for its ROLE, too: for a while after a failover a sentinel may name the old one. Whoever knew the answer is
 * asked first the next time. */
#ifndef IO_SEEK_H
#define IO_SEEK_H

#include <stdint.h>

#include "base/err.h"
#include "io/address.h"

struct event_base;
struct resolver;
struct seek;

/* Where to ask, and who is told. */
struct seek_options {
    struct event_base *base;
    const struct address *address; /* must outlive the seek */
    struct resolver *resolver;
    uint32_t timeout_ms; /* for all places together, though each has a second at least */
    void *context;
    /* One of them comes from the event loop. `place` lives until the next seek_start or seek_close. STATUS_DENIED only
     * where trying again will not help: nobody was out of reach, and somebody refused our login. */
    void (*on_found)(void *context, const struct place *place);
    void (*on_failed)(void *context, const struct err *err);
};

/* Makes a seek that asks nobody yet. Owns: the caller ends it with seek_close. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status seek_open(const struct seek_options *options, struct seek **out, struct err *err);

/* Stops and frees. NULL is allowed. */
void seek_close(struct seek *seek);

/* Begins to ask, anew if it is at it. Allowed at any time, also inside the callbacks, as seek_stop. */
void seek_start(struct seek *seek);

/* Ends the asking: no callback comes. */
void seek_stop(struct seek *seek);

#endif
