/* One queue on one Redis server, as a worker sees it: executes the worker's Redis actions and reports their events.
 *
 * It has two connections, a reader (XREADGROUP only) and a writer (everything else), because a settle sent after a
 * blocking read would wait for it. They live and die together: when one is lost, or Redis cannot serve now (LOADING,
 * READONLY, MISCONF …), both are closed, and opened again after a backoff that doubles, with jitter.
 *
 *   down ── connect, login ── INFO, SCRIPT LOAD ── lua/join, lua/group ── up: EVENT_CONNECTED
 *     ^________________________ any loss: EVENT_DISCONNECTED ____________________|
 *
 * It keeps the executor's promises of schedule/worker.h for its actions. Its owner must know:
 *  - Events come from the event loop only, one at a time, never from inside queue_execute or queue_start.
 *  - An action that is executed while the queue is down is answered too, with `failed`.
 *  - One ACTION_SETTLE may become several script calls; its one EVENT_SETTLED follows the last. Requests of a call that
 *    got an error have VERDICT_AGAIN; `failed` means that the connection was lost.
 *  - ACTION_RENEW: lease_held = false means that the alive key expired or belongs to somebody else; nothing more
 *    happens until ACTION_REJOIN, which takes a new name.
 *  - Entries that do not fit into max_reply_bytes come with `oversize` and without fields.
 *  - A key of another type in the place of a class's stream disables that class only: reads and claims of it bring
 *    nothing until the key is gone, which is checked with a backoff. A READ of that class alone fails. */
#ifndef REDIS_QUEUE_H
#define REDIS_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "redis/address.h"
#include "redis/pause.h"
#include "schedule/worker.h"

enum { QUEUE_NAME_MAX = 64, QUEUE_WORKER_MAX = 128, QUEUE_HOST_MAX = 64 };

struct event_base;
struct queue;

/* The queue, its model, and timeouts. */
struct queue_options {
    struct event_base *base;
    const struct address *address;
    const char *name; /* of the queue: [a-z0-9_.-]{1,64} */

    /* The model, for replies and for the pin: one queue has one model. */
    const char *model_name;
    const char *model_id;
    const char *revision;  /* NULL or "": not in replies */
    const char *precision; /* NULL: f32, which is not in replies */

    uint32_t ttl_s;                                  /* of replies to cancelled requests without one; 0: an hour */
    uint32_t lease_ms;                               /* of the alive key */
    bool allow_eviction;                             /* join even if maxmemory-policy is not noeviction */
    uint64_t max_reply_bytes;                        /* memory that one answer may cost; 0: 64 MiB */
    uint32_t connect_timeout_ms, command_timeout_ms; /* 0: 5,000 each */
    uint32_t backoff_ms, backoff_cap_ms; /* between reconnects; 0: 100, and half a lease but at most 5,000 */
    uint64_t seed;                       /* for the jitter */
    bool look;                           /* update struct queue_look with each pulse */

    void *context;
    void (*on_event)(void *context, const struct event *event);
    /* Trying again will not help: wrong password or missing right (STATUS_DENIED), Redis before 7.0 or a queue of a
     * newer protocol (STATUS_UNSUPPORTED), a queue of another model or a Redis that evicts (STATUS_BAD_INPUT). The
     * queue has stopped; actions that were out are answered as after a disconnect. */
    void (*on_fatal)(void *context, const struct err *err);
};

/* Makes a queue without a connection. All strings and the address must outlive it.
 * Owns: the caller ends it with queue_close. Errors: STATUS_BAD_INPUT (name), STATUS_NO_MEMORY. */
MUST_CHECK enum status queue_open(const struct queue_options *options, struct queue **out, struct err *err);

/* Begins to connect; EVENT_CONNECTED or on_fatal comes from the event loop. */
void queue_start(struct queue *queue);

/* Disconnects and frees, without further events. Requests that are out are left to worker_close; their entries stay
 * pending. Not from inside on_event or on_fatal. NULL is allowed. */
void queue_close(struct queue *queue);

/* Executes one action. Owns: takes its requests, which come back with the matching event. */
void queue_execute(struct queue *queue, struct action *action);

/* Writes this machine's name as its workers' names begin with it: letters, digits, dots, and - for all else. */
void queue_host(char host[QUEUE_HOST_MAX + 1]);

/* The consumer name of this worker: host, pid and a random part. It changes when a lease is lost. */
const char *queue_worker_name(const struct queue *queue);

/* True if it may be a queue's name: 1 to QUEUE_NAME_MAX of a-z 0-9 _ . - */
bool queue_name_is(const char *name, size_t length);

/* True if a consumer's name has the shape of a worker's: host, process id, eight hex digits. */
bool queue_worker_name_is(const char *name, size_t length);

struct queue_counters {
    uint64_t ended[CLASS_COUNT][ENDS]; /* requests: done, cancelled, or by the code of the error */
    uint64_t commands;                 /* sent, including script calls */
    uint64_t script_calls, script_ns;  /* answered; from sending a call to its answer */
    uint64_t connects;                 /* joins, the first one and those after a loss */
};

/* The counters since queue_open. */
struct queue_counters queue_counters(const struct queue *queue);

/* The counts that Redis gave with the last pulse. `redis_ms` 0: not known yet, or no longer. */
struct queue_look {
    uint64_t redis_ms;                                  /* Redis unix ms of that pulse */
    uint64_t unread[CLASS_COUNT], pending[CLASS_COUNT]; /* entries that nobody has read; entries that a worker has */
    struct entry_id oldest[CLASS_COUNT]; /* the oldest pending one, else the oldest unread one; 0-0: none */
    int64_t wait_ms[CLASS_COUNT];        /* estimated for a new entry; -1: unknown */
    uint64_t cap[CLASS_COUNT];           /* 0: none */
    uint64_t later, due, dead;           /* parked requests; those of them that are due; dead letters */
    uint64_t done_today, errors_today;   /* ended with any worker since Redis' midnight in UTC */
    struct pause pause;
};

/* The latest counts; lives as long as the queue. */
const struct queue_look *queue_looked(const struct queue *queue);

/* True once it has joined, or failed to; false if it has stopped. */
bool queue_tried(const struct queue *queue);

/* Why it is not connected, for a person; NULL: it is. */
const char *queue_trouble(const struct queue *queue);

/* The error with which a worker ends that computes in another precision than its queue is pinned to. Returns its
 * status. */
enum status queue_refuse_precision(const char *name, const char *pinned, const char *ours, struct err *err);

#endif
