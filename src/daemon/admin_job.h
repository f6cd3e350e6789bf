/* A request of the admin API: its path, and the parameters of its query or body. */
#ifndef DAEMON_ADMIN_JOB_H
#define DAEMON_ADMIN_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "daemon/consumer.h"
#include "daemon/history.h"
#include "http/server.h"
#include "operator/letters.h"
#include "operator/session.h"
#include "redis/pause.h"
#include "redis/queue_names.h"

enum { ADMIN_BODY_BYTES = 65536 }; /* of a request's body */

/* Name, kind (a query has TEXT alone), most bytes of a TEXT. */
/* clang-format off */
#define PARAMETERS(X)                                                                                                  \
    X(queue, TEXT, QUEUE_NAME_MAX) X(letter, TEXT, ENTRY_ID_TEXT) X(cursor, TEXT, LETTER_CURSOR - 1)                   \
    X(search, TEXT, 256) X(id, TEXT, REQUEST_ID_MAX) X(all, TRUTH, 0) X(worker, TEXT, QUEUE_WORKER_MAX)                \
    X(order, TEXT, 16) X(for, TEXT, 16) X(why, TEXT, PAUSE_WHY - 1)                                                    \
    X(high, NUMBER, 0) X(normal, NUMBER, 0) X(low, NUMBER, 0) X(later, NUMBER, 0)                                      \
    X(class, TEXT, 8) X(state, TEXT, 8) X(inputs, TEXTS, 0) X(task, TEXT, 16) X(query, TEXT, ADMIN_BODY_BYTES)         \
    X(since, TEXT, 15)

#define MEMBER(name, kind, most) PARAM_##name,
enum param { PARAMETERS(MEMBER) PARAMS };

/* clang-format on */

/* A request that was taken over. */
struct admin_job {
    const struct history *history; /* of `queue` */
    const atomic_bool *closing;    /* the daemon ends */
    const struct route *route;     /* NULL: free */
    uint64_t number, since_ms;
    const char *name;             /* the queue's; NULL: all */
    const struct consumer *queue; /* NULL: all, or one that this daemon does not serve */
    char *values[PARAMS];         /* TEXT: decoded, without a NUL in it; else as JSON. NULL: not given */
    struct http_reply reply;
};

/* Does a job, and writes the answer. Sets the reply's status unless it is 200. */
typedef enum status handler_fn(struct admin_job *job, struct session *session, struct buffer *to, struct err *err);

struct route {
    const char *path;
    bool post;
    bool all;           /* without a queue: answers for each queue that the daemon serves, in a list … */
    bool others;        /* … and for each other queue of the Redis */
    unsigned may, must; /* bits of enum param */
    handler_fn *handle;
    /* In place of `handle`, without Redis, in the I/O thread. */
    enum http_when (*answer)(struct admin_job *job, struct http_reply *reply);
};

/* Reads name=value&name=value. Returns the problem, or NULL. */
const char *admin_job_read_query(struct admin_job *job, const char *query);

/* Reads a flat JSON object. Returns the problem, or NULL. */
const char *admin_job_read_body(struct admin_job *job, const char *body, size_t length);

/* The name of a parameter. */
const char *admin_job_param_name(enum param param);

/* Says that a parameter is missing that the route must have; NULL: none is. */
const char *admin_job_missing(const struct admin_job *job);

/* admin_routes.c: the route of a path, one of docs/admin-api.md; NULL: there is none. */
const struct route *admin_route(const char *path);

/* Frees the values and the reply; the job is free then. */
void admin_job_free(struct admin_job *job);

#endif
