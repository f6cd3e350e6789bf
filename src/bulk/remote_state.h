/* What the executor of a queue consists of. Private to bulk/remote*.c. */
#ifndef BULK_REMOTE_STATE_H
#define BULK_REMOTE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "bulk/remote_ask.h"

/* Requests that may be out: as few as keep the workers busy, so that what waits is not much and others of the same
 * class have their turn. */
enum { REMOTE_FIRST = 8, REMOTE_LEAST = 4, REMOTE_MOST = 64 };

/* The executor; what two threads touch is under the lock or atomic. */
struct remote {
    struct executor executor; /* first */
    struct remote_options options;
    pthread_t thread;
    atomic_bool closing, stopping; /* stopping: the job's thread has seen `stop`, which only it may read */
    atomic_uint out, limit;        /* batches */

    pthread_mutex_t lock; /* of the four below */
    struct bulk_batch *inbox[REMOTE_MOST], *outbox[REMOTE_MOST];
    unsigned in_count, out_count;

    /* The thread's. */
    struct client *client; /* NULL: not connected */
    struct ask *asks;
    uint64_t down_ms, looked_ms, heard_ms, stopped_ms; /* 0: not */
    char cursor[64];                                   /* of the results stream; empty: nothing was sent yet */
    uint64_t slowest_ms;                               /* that a request of this job has taken */
    char published[32];                                /* when the queue's figures were, by its own clock */
    uint64_t published_ms;                             /* by ours */
};

/* remote_pace.c: how many requests are out, and which of them Redis has forgotten. All of it is the thread's. */
/* Half as many from now on: more wait than need be. */
void remote_shrink(struct remote *remote);
/* A request has ended. */
void remote_heard(struct remote *remote, const struct ask *ask, uint64_t now_ms);
/* Once a second: all requests are to be looked at, and what seems forgotten is to be sent again. Errors: those of the
 * client. */
MUST_CHECK enum status remote_look_around(struct remote *remote, uint64_t now_ms, struct err *err);

/* remote_turn.c; all of it is the thread's. */
/* Makes requests of the batches that were put. */
void remote_take_inbox(struct remote *remote);
/* Ends everything that is out with one status. */
void remote_fail_all(struct remote *remote, enum status status, const char *message);
/* Sends what is to be sent, takes what has come, and waits a moment for more. Errors: those of the client. */
MUST_CHECK enum status remote_turn(struct remote *remote, struct err *err);

#endif
