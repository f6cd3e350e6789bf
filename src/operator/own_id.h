/* Finds unfinished requests by the id that their producers gave them, and cancels them.
 *
 * There is no index of these ids. Producers only send XADD, so workers would have to keep it, at a cost for each
 * request with an id, and it would lack the requests that nobody has read. The search reads the streams and `later`
 * instead, in short calls of lua/find, and costs nothing until somebody asks. */
#ifndef OPERATOR_OWN_ID_H
#define OPERATOR_OWN_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "operator/session.h"
#include "schedule/request.h"

enum {
    OWN_ID_MAX = 64,
    OWN_ID_SEARCH = 1000000, /* requests that a command looks at: some seconds */
};

/* Requests with one id; several, if producers have used it several times. */
struct own_id_found {
    char names[OWN_ID_MAX][REQUEST_NAME_MAX]; /* [count], the newest first */
    size_t count;
    bool more; /* the search ended before it had looked everywhere */
};

/* Looks at `most` requests at most, or up to 63 more: first the streams, each from the oldest entry on, then `later`. A
 * request that moves meanwhile is found, unless it moves twice. Errors: those of the commands. */
MUST_CHECK enum status own_id_find(struct session *session, const char *id, uint64_t most, struct own_id_found *out,
                                   struct err *err);

/* Asks the workers to cancel all unfinished requests that have this id. If there is none, and `id` is a request's name,
 * it cancels that request. `found` has their names; if it has none, nothing was cancelled. Errors: STATUS_BAD_INPUT:
 * `id` is neither an id nor a name; else those of the commands. */
MUST_CHECK enum status own_id_cancel(struct session *session, const char *id, uint64_t most, struct own_id_found *found,
                                     struct err *err);

#endif
