/* The admin API below /api/ (docs/admin-api.md): reads requests, checks their tokens, and lets a thread of its own ask
 * Redis, so that the I/O thread never waits.
 *
 *   http ── admin_answer ──► jobs ──► the thread: operator/operator ──► admin_take ──► http_answer */
#ifndef DAEMON_ADMIN_H
#define DAEMON_ADMIN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/err.h"
#include "daemon/consumer.h"
#include "daemon/history.h"
#include "http/server.h"
#include "redis/address.h"

struct admin;

/* All but `token` must outlive the admin. */
struct admin_options {
    const struct address *address;
    const struct consumer *consumers; /* [queue_count], for their queues' names and models */
    size_t queue_count;
    const struct history *histories; /* [queue_count], read while admin_answer runs */
    const char *token;               /* it allows changes; NULL: nobody may change anything */
    bool open;                       /* reading needs no token */
    int wake_fd;                     /* written when admin_take has something to do */
};

/* Starts the thread; it connects when it has something to do. Owns: the caller ends it with admin_close. Errors:
 * STATUS_NO_MEMORY, STATUS_IO (no thread). */
MUST_CHECK enum status admin_open(const struct admin_options *options, struct admin **out, struct err *err);

/* Refuses a request at once, or takes it over (HTTP_LATER); as `answer` of struct http_route. */
enum http_when admin_answer(struct admin *admin, const struct http_request *request, struct http_reply *reply);

/* Passes finished answers to the HTTP port. NULL is allowed. */
void admin_take(struct admin *admin, struct http *http);

/* Ends the thread once its job is done: at once, or after a few seconds if Redis does not answer. Requests that it has
 * not begun are dropped. NULL is allowed. */
void admin_close(struct admin *admin);

#endif
