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

#include "redis/queue_names.h"
#include "redis/queue_options.h"

struct queue;

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

/* A text with a stream of tokens begins: asks Redis which of them were sent before, until it answers, which on_text
 * reports from the event loop. From then on new tokens are sent, until queue_end_text. No more than GENERATOR_ROWS at a
 * time. Owns: the batch stays the caller's. */
void queue_begin_text(struct queue *queue, struct batch *batch);

/* The text has ended, well or not. Its last tokens are sent with its ACTION_SETTLE. Not begun: nothing happens. */
void queue_end_text(struct queue *queue, const struct batch *batch);

/* The consumer name of this worker: host, pid and a random part. It changes when a lease is lost. */
const char *queue_worker_name(const struct queue *queue);

struct queue_counters {
    uint64_t ended[CLASS_COUNT][ENDS]; /* requests: done, cancelled, or by the code of the error */
    uint64_t commands;                 /* sent, including script calls */
    uint64_t script_calls, script_ns;  /* answered; from sending a call to its answer */
    uint64_t connects;                 /* joins, the first one and those after a loss */
};

/* The counters since queue_open. */
struct queue_counters queue_counters(const struct queue *queue);

/* True once it has joined, or failed to; false if it has stopped. */
bool queue_tried(const struct queue *queue);

/* Why it is not connected, for a person; NULL: it is. */
const char *queue_why_down(const struct queue *queue);

#endif
