/* Finds the master behind an address that names several servers or sentinels (address_is_plural).
 *
 * Servers are asked in turn for their ROLE. Sentinels are asked in turn for the master's address, and the server there
 * is asked for its ROLE, too: for a while after a failover a sentinel may name the old one. Whoever knew the answer is
 * asked first the next time. */
#ifndef IO_FIND_MASTER_H
#define IO_FIND_MASTER_H

#include <stdint.h>

#include "base/err.h"
#include "io/address.h"

struct event_base;
struct resolver;
struct find_master;

/* Where to ask, and who is told. */
struct find_master_options {
    struct event_base *base;
    const struct address *address; /* must outlive the finder */
    struct resolver *resolver;
    uint32_t timeout_ms; /* for all endpoints together, though each has a second at least */
    void *context;
    /* One of them comes from the event loop. `endpoint` lives until the next find_master_start or find_master_close.
     * STATUS_DENIED only where trying again will not help: nobody was out of reach, and somebody refused our login. */
    void (*on_found)(void *context, const struct endpoint *endpoint);
    void (*on_failed)(void *context, const struct err *err);
};

/* Makes a finder that asks nobody yet. Owns: the caller ends it with find_master_close. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status find_master_open(const struct find_master_options *options, struct find_master **out,
                                        struct err *err);

/* Stops and frees. NULL is allowed. */
void find_master_close(struct find_master *finder);

/* Begins to ask, anew if it is at it. Allowed at any time, also inside the callbacks, as find_master_stop. */
void find_master_start(struct find_master *finder);

/* Ends the asking: no callback comes. */
void find_master_stop(struct find_master *finder);

#endif
