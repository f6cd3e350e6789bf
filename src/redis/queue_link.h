/* The two connections of a queue: opened, lost, and opened again after a backoff.
 *
 * Every failure ends in queue_link_lost: it closes both connections, whose commands come back unanswered, so each task
 * becomes a failed event; one EVENT_DISCONNECTED and a timer for the next attempt follow. */
#ifndef REDIS_QUEUE_LINK_H
#define REDIS_QUEUE_LINK_H

#include "redis/dial.h"
#include "redis/find_master.h"
#include "redis/queue_task.h"

struct queue_link {
    void (*on_reader_up)(void *queue), (*on_writer_up)(void *queue); /* set by its owner */
    struct find_master *finder;
    const struct endpoint *endpoint; /* the server that was found; NULL: the only one */
    struct event *retry;
    unsigned tries;           /* attempts since a connection that lasted */
    uint64_t up_ns, up_ended; /* when the last connection came up, and how many requests had ended by then */
    enum loss loss;           /* how the last connection that was up ended, unless `witness` disproves it */
    int witness;              /* a descriptor of the other connection; -1: none */
    uint64_t random;
    uint64_t ups;        /* how often it came up */
    struct err why_down; /* why it went down last */
};

/* Makes the timer and the finder. Owns: queue_link_close frees them, also after an error. Errors: STATUS_NO_MEMORY;
 * those of find_master_open. */
MUST_CHECK enum status queue_link_open(struct queue *queue, struct err *err);
void queue_link_close(struct queue *queue);

/* Marks the queue as up; returns how the last connection was lost. */
enum loss queue_link_up(struct queue *queue);

/* Queue.on_lost: closes both connections and schedules the next attempt. */
void queue_link_lost(struct queue *queue, const struct err *err);

/* Closes both connections for good: on_fatal follows. */
void queue_stop(struct queue *queue, const struct err *err);

/* The wait before attempt number `tries`, without jitter. */
uint64_t queue_link_backoff_ms(const struct queue *queue, unsigned tries);

#endif
