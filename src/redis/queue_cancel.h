/* Cancels: one script call for each, whether it came in the stream of a class or in the control stream.
 *
 * The script must find the request before it knows its id, which names the reply key, and a script may only use keys
 * that it was given. So the first call assumes that the id is the name, and the script may answer "again, with these
 * keys", having changed nothing. */
#ifndef REDIS_QUEUE_CANCEL_H
#define REDIS_QUEUE_CANCEL_H

#include "redis/queue_task.h"

/* Reading of the control stream. */
struct queue_control {
    struct event *timer;   /* of the next read */
    bool busy;             /* a command is out */
    bool unusable;         /* a key of another type is there */
    bool full;             /* the last read brought as many entries as it may */
    bool failed;           /* some cancels could not be sent */
    unsigned out;          /* cancels without an answer */
    unsigned seen;         /* how often in a row the stream existed */
    struct entry_id after; /* the next read begins after this one */
    uint64_t malformed;    /* entries that are not logged yet */
    uint64_t logged_ns;    /* when some were logged last */
};

/* Executes a request of OUTCOME_CANCEL; ends with queue_answered, also if it could not be sent. */
void queue_cancel(struct task *task, struct request *request);

/* Begins to read the control stream, when the queue is up. */
void queue_control_start(struct queue *queue);

/* The timer's callback: the next read. */
void queue_on_control(int fd, short what, void *queue);

#endif
