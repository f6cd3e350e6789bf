/* Counts of the requests that have ended: since queue_open, and those that a pulse adds up in Redis. */
#ifndef REDIS_QUEUE_ENDS_H
#define REDIS_QUEUE_ENDS_H

#include "redis/queue_task.h"

struct queue_ends {
    uint64_t all[CLASS_COUNT][ENDS]; /* since queue_open */
    struct ended {
        uint64_t requests[CLASS_COUNT][ENDS];
        uint64_t ignored; /* of these, replies that name ignored fields */
    } ended,              /* since the last counting pulse … */
        counting;         /* … in that pulse, until it is answered … */
    uint64_t counted;     /* … and its number, by which a repeated pulse is known; 0: none yet */
};

/* Counts a request that ended with a code, CODE_NONE (done) or END_CANCELLED; the next pulse adds it up in Redis. */
void queue_count(struct queue *queue, enum request_class class, int end);

/* Counts a reply that names ignored fields. */
void queue_count_ignored(struct queue *queue);

/* The requests that have ended since queue_open. */
uint64_t queue_ended(const struct queue *queue);

/* True if a pulse has something to add up. */
bool queue_ends_uncounted(const struct queue *queue);

/* Appends to a pulse the word that lua/pulse adds up. */
void queue_add_ends(struct queue *queue, struct command *command);

/* Notes that the pulse was answered. */
void queue_ends_counted(struct queue *queue);

#endif
