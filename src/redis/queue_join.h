/* From two connections to EVENT_CONNECTED, and the answers of a server that cannot serve.
 *
 * The steps: check the server, load the scripts, pin the model and take our name (lua/join), make missing groups
 * (lua/group), ask for the time.
 *
 * Groups begin at 0, because a stream holds exactly the unfinished work. A key of another type in the place of a stream
 * (a producer's SET) disables that class only: reads and claims leave it out, the log names the key, and it is checked
 * again with a backoff that doubles. */
#ifndef REDIS_QUEUE_JOIN_H
#define REDIS_QUEUE_JOIN_H

#include "redis/queue_task.h"

struct queue_joining {
    char run_id[48];     /* of the server */
    bool restarted;      /* it is another one than before */
    long long reader_id; /* CLIENT ID, for UNBLOCK */
    struct group {
        struct queue *queue;
        enum request_class class;
    } groups[CLASS_COUNT];
    unsigned groups_asked; /* calls without an answer */
    unsigned group_tries;
    struct event *group_retry;
    struct err refused; /* the last refusal in the log, and when: repeats are not logged */
    uint64_t refused_ns;
};

/* Makes the timer and the first name. Owns: queue_join_close frees the timer. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status queue_join_open(struct queue *queue, struct err *err);
void queue_join_close(struct queue *queue);

/* Events of the link. */
void queue_join_reader_up(void *queue);
void queue_join_writer_up(void *queue);

/* Queue.on_refused: a missing right stops the queue; if Redis cannot serve now, it disconnects; a missing group is made
 * again. */
void queue_join_refused(struct queue *queue, const struct resp_value *reply, const struct err *err);

void queue_unblock(struct queue *queue);

/* ACTION_REJOIN: takes a new name. */
void queue_rejoin(struct queue *queue);

#endif
