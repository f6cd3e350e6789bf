/* Texts on their way to streams of tokens: lua/tokens.
 *
 * A text begins once Redis has said which of its tokens an earlier run has sent. Then its new tokens are sent every
 * SEND_MS, those of all texts of a class in one call; the last ones go ahead of its settle. A call says where its
 * tokens begin, and Redis answers how many it has. So it is enough to go on from there: after a lost answer, and also
 * if Redis has lost some. */
#ifndef REDIS_QUEUE_TOKENS_H
#define REDIS_QUEUE_TOKENS_H

#include "redis/queue_task.h"

struct queue_tokens {
    struct event *timer;
    struct text_sent {
        struct batch *batch;
        bool asking, begun;
    } texts[GENERATOR_ROWS]; /* [count] */
    unsigned count;
    unsigned out; /* calls without an answer */
};

/* queue_begin_text and queue_end_text. */
void queue_tokens_begin(struct queue *queue, struct batch *batch);
void queue_tokens_end(struct queue *queue, const struct batch *batch);

/* Sends all tokens that are left of these requests of one class, for those that have a stream of tokens. */
void queue_send_tokens(struct queue *queue, const struct request_list *requests);

/* Sends new tokens: the callback of the timer. */
void queue_on_tokens(int fd, short what, void *queue);

#endif
