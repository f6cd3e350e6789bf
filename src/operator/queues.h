/* The queues of a Redis, found by SCAN, because there is no list of them. Each call asks for few keys, so as not to
 * hold up Redis; in a large Redis it takes several calls to find all queues. */
#ifndef OPERATOR_QUEUES_H
#define OPERATOR_QUEUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "operator/session.h"
#include "redis/queue_names.h"

enum { QUEUES_FOUND_MAX = 100, QUEUES_REST_MS = 10000 };

struct queue_names {
    char items[QUEUES_FOUND_MAX][QUEUE_NAME_MAX + 1]; /* [count], in order */
    size_t count;
    bool more; /* there are more queues than fit */
};

/* Zero-initialise. */
struct queue_walk {
    struct queue_names found, finding; /* found by the last whole walk; by the one in progress */
    char cursor[24];                   /* "" before a walk */
    uint64_t rests_until_ms;           /* monotonic */
    bool whole;                        /* a walk has reached the end */
};

/* Continues the walk, unless the last one ended less than QUEUES_REST_MS ago. Errors: those of the command; after one
 * it rests as long. */
MUST_CHECK enum status queues_walk(struct session *session, struct queue_walk *walk, struct err *err);

/* The names known now; during the first walk, those that it has found. */
const struct queue_names *queues_names(const struct queue_walk *walk);

/* Finds the queue's name in the key of a stream of requests, and returns its length; 0: it is another key. `*name` is
 * part of the key. */
size_t queues_find_name(const struct resp_value *key, const char **name);

/* Writes whether the queue of the session has a stream. Errors: those of the command. */
MUST_CHECK enum status queues_exists(struct session *session, bool *out, struct err *err);

#endif
