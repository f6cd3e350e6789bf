/* Reads entries from Redis: new ones of several classes in one XREADGROUP, our own of one class after a reconnect, and
 * those that a script claims for us.
 *
 * An entry that is too large for the reader is dropped as it arrives (RESP_CUT) and its request is answered by its id,
 * unread. If the whole answer is too large, we own the other entries, too, and READ_OWN reads them again. */
#ifndef REDIS_QUEUE_READ_H
#define REDIS_QUEUE_READ_H

#include "redis/queue_entries.h"
#include "redis/queue_task.h"

enum { QUEUE_FOUND_MAX = 1024, FOREIGN_KNOWN = 64 };

/* The last answer, and the search for consumers of dead workers. The pulse passes on to other workers the ones that the
 * housekeeper found. */
struct queue_reads {
    struct entries entries;
    uint64_t place, trusted;                               /* of the last entry; up to where no place counts any more */
    bool reading[CLASS_COUNT];                             /* the streams of the reader's command */
    size_t offset[CLASS_COUNT];                            /* the first consumer to check, if there are many */
    unsigned judged[CLASS_COUNT];                          /* searches without a result */
    char left[CLASS_COUNT][QUEUE_FOUND_MAX / CLASS_COUNT]; /* dead consumers with entries, as words that are each
                                                              followed by a space: what this housekeeper found … */
    char found[QUEUE_FOUND_MAX];                           /* … and what another one found, by the last pulse */
    struct foreign {
        uint64_t hash, seen_ns; /* the hash of its name; when it was seen last */
    } foreign[FOREIGN_KNOWN];   /* consumers that hold entries but are no workers */
};

void queue_read(struct task *task);     /* new entries of all classes: XREADGROUP, on the reader */
void queue_read_own(struct task *task); /* the entries that are pending with us */
void queue_list_own(struct task *task); /* the ids of those: XPENDING */
void queue_reclaim(struct task *task);  /* entries of dead workers, entries given back or set aside: lua/reclaim */
void queue_shed(struct task *task);     /* the newest unread above a cap: lua/shed */
void queue_fair(struct task *task);     /* entries of other tenants, from further back: lua/fair */
void queue_sweep(struct task *task);    /* entries that were read but that nobody has: lua/sweep */

/* Distrusts the places of all entries that were read until now: the stream may be another one. */
void queue_read_distrust(struct queue *queue);

/* Returns whether the place of a request's entry shows which entry follows it in the stream. */
bool queue_read_trusts(const struct queue *queue, const struct request *request);

/* Appends to a pulse the dead consumers with entries that this housekeeper has left to others, as one word. */
void queue_add_left(const struct queue *queue, struct command *command);

/* Takes over those that another housekeeper has left, from the answer to a pulse. */
void queue_take_found(struct queue *queue, const char *found);

#endif
