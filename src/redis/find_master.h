/* Finds the server that an address means: the only one, or the master if it names several servers, or sentinels.
 *
 * It asks several servers in turn for their ROLE. It asks sentinels in turn for the master's address, and that server
 * for its ROLE: after a failover a sentinel may name the old master for a while. The next search begins with the
 * endpoint that knew the answer. */
#ifndef REDIS_FIND_MASTER_H
#define REDIS_FIND_MASTER_H

#include <stdint.h>

#include "base/err.h"
#include "redis/address.h"
#include "redis/resp.h"

struct event_base;
struct resolver;
struct find_master;

/* The endpoints to ask, and the callbacks. */
struct find_master_options {
    struct event_base *base;
    const struct address *address; /* must outlive the finder */
    uint32_t timeout_ms;           /* for all endpoints together; each has at least a second */
    void *context;
    /* Each search calls one of them, from the event loop. `endpoint` lives until the next find_master_start or
     * find_master_close; NULL: the only server, which was not asked. STATUS_DENIED: every endpoint was reached, and one
     * refused our login, so trying again will not help. */
    void (*on_found)(void *context, const struct endpoint *endpoint);
    void (*on_failed)(void *context, const struct err *err);
};

/* Makes a finder that does not search yet. Owns: the caller ends it with find_master_close. Errors: STATUS_NO_MEMORY.
 */
MUST_CHECK enum status find_master_open(const struct find_master_options *options, struct find_master **out,
                                        struct err *err);

/* Stops and frees. NULL is allowed. */
void find_master_close(struct find_master *finder);

/* Starts a search, or starts it again. Allowed at any time, also inside the callbacks, like find_master_stop. */
void find_master_start(struct find_master *finder);

/* Ends the search without a callback. NULL is allowed. */
void find_master_stop(struct find_master *finder);

/* After an error reply of the server that was found: if it is MOVED, because the queue is in a slot of another node of
 * a cluster, the next search finds that node at once. */
void find_master_follow(struct find_master *finder, const struct resp_value *reply);

/* The resolver, also for connections to the server that was found. */
struct resolver *find_master_resolver(const struct find_master *finder);

#endif
