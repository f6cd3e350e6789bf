/* One queue on one Redis server, as a worker sees it: executes the worker's Redis actions and reports their events.
 *
 * Two connections, reader (XREADGROUP only) and writer (all else), because a settle behind a blocking read would wait
 * for it. They live and die together: when one is lost or Redis says that it cannot serve now (LOADING, READONLY,
 * MISCONF …), both are closed, and both are opened again after a backoff that doubles, with jitter.
 *
 *   down ── connect, login ── INFO, SCRIPT LOAD ── lua/join, XGROUP CREATE ── up: EVENT_CONNECTED
 *     ^________________________ any loss: EVENT_DISCONNECTED ____________________|
 *
 * It keeps the executor's promises of work/worker.h for all actions but PREPARE, SUBMIT, FORMAT and EXIT. What serve/
 * must know beside them:
 *  - Events come from the event loop only, one at a time, never from inside queue_execute or queue_start.
 *  - An action that is executed while the queue is down is answered too, with `failed`.
 *  - One ACTION_SETTLE may be several script calls (<= 64 entries or 128 KiB each); its one EVENT_SETTLED comes after
 * the last. Where a call got an error, its requests have `again` set; `failed` means that the connection was lost.
 *  - ACTION_RENEW: lease_held = false means that the alive key expired or is somebody else's; nothing else happens
 * until ACTION_REJOIN, which takes a new name.
 *  - Entries that do not fit into max_reply_bytes come with `oversize` and without fields.
 *  - A key of another type where the stream of one class belongs costs that class only: reads and claims of it bring
 *    nothing until it is gone, which is looked for with a backoff. A READ of no other class has failed. */
#ifndef IO_QUEUE_H
#define IO_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "io/address.h"
#include "work/worker.h"

enum { QUEUE_NAME_MAX = 64, QUEUE_WORKER_MAX = 128 };

struct event_base;
struct queue;

/* Which queue, for whom, and how patiently. */
struct queue_options {
    struct event_base *base;
    const struct address *address;
    const char *name; /* of the queue: [a-z0-9_.-]{1,64} */

    /* Of the model: what replies say, and what the queue pins (one queue = one model). */
    const char *model_name;
    const char *model_id;
    const char *revision;  /* NULL or "": not named in replies */
    const char *precision; /* NULL: the default one, not named in replies */

    uint32_t ttl_s;                                  /* of replies to who is cancelled and says none; 0: an hour */
    uint32_t lease_ms;                               /* of the alive key */
    bool allow_eviction;                             /* join although maxmemory-policy is not noeviction */
    uint64_t max_reply_bytes;                        /* memory that one answer of Redis may cost; 0: 64 MiB */
    uint32_t connect_timeout_ms, command_timeout_ms; /* 0: 5,000 each */
    uint32_t backoff_ms, backoff_cap_ms;             /* of reconnects; 0: 100 and 5,000 */
    uint64_t seed;                                   /* of the jitter */

    void *context;
    void (*on_event)(void *context, const struct event *event);
    /* Trying again will not help: wrong password or missing right (STATUS_DENIED), Redis before 7.0 or a newer protocol
     * on the queue (STATUS_UNSUPPORTED), another model's queue or an evicting Redis (STATUS_BAD_INPUT). The queue has
     * stopped; what was out is answered as after a disconnect. */
    void (*on_fatal)(void *context, const struct err *err);
};

/* Makes a queue that is not connected yet. All strings and the address must outlive it.
 * Owns: the caller ends it with queue_close. Errors: STATUS_BAD_INPUT (name), STATUS_NO_MEMORY. */
MUST_CHECK enum status queue_open(const struct queue_options *options, struct queue **out, struct err *err);

/* Begins to connect; EVENT_CONNECTED or on_fatal comes from the event loop. */
void queue_start(struct queue *queue);

/* Disconnects and frees, without any more events. Requests that were out are left to worker_close, which frees them
 * all; their entries stay pending. Not from inside on_event or on_fatal. NULL is allowed. */
void queue_close(struct queue *queue);

/* Executes one action. Owns: takes the action's requests; they come back with the matching event. */
void queue_execute(struct queue *queue, struct action *action);

/* The name of this worker in the group: host, pid and a random part. Changes when a lease is lost. */
const char *queue_worker_name(const struct queue *queue);

/* Counters since queue_open. */
struct queue_stats {
    bool connected;
    uint64_t reconnects;     /* connections lost after they had been up */
    uint64_t groups_created; /* a stream's group was missing: first start, or destroyed */
    uint64_t scripts_reloaded;
    uint64_t vanished;           /* entries answered without their message */
    uint64_t side_keys_skipped;  /* wake keys and results streams of a wrong type */
    uint64_t newer_replies_kept; /* settled, but the reply of a newer entry stood */
    uint64_t dead_trimmed;       /* dead letters that fell out of the cap */
    uint64_t cancelled, nothing_to_cancel;
    uint64_t control_malformed;              /* entries of the control stream that say nothing of use */
    uint64_t tracked_skipped;                /* there was a reply already */
    uint64_t shed;                           /* entries above their class's cap, refused */
    uint64_t orphans;                        /* read entries that nobody had, found by a sweep */
    uint64_t mended_entries, mended_streams; /* with ids ahead of Redis' clock: parked; set back to the present */
    uint64_t promoted_broken;                /* parked names whose fields were gone or unreadable */
};

/* How it stands now. Thread: that of the event loop. */
struct queue_stats queue_stats(const struct queue *queue);

#endif
