/* Requests for the prep threads: see prep_queue.c. Only prep_queue.c writes struct prep_queue. */
#ifndef SCHEDULE_WORKER_PREP_QUEUE_H
#define SCHEDULE_WORKER_PREP_QUEUE_H

#include "schedule/worker.h"

struct prep_queue {
    struct request_list waiting[CLASS_COUNT]; /* to be tokenised */
    struct request_list to_format;            /* computed: outputs to be encoded */
    uint32_t out, out_low;                    /* requests at the prep threads; those of class low */
};

/* Queues a request whose texts must be tokenised. */
void prep_queue_accept(struct worker *worker, struct request *request);

/* Queues a request whose reply must be written. */
void prep_queue_format(struct worker *worker, struct request *request);

/* Sends at most `most` requests of a list to the prep threads (ACTION_PREPARE or ACTION_FORMAT). False, with nothing
 * taken, when memory ran out. */
bool prep_queue_send(struct worker *worker, enum action_kind kind, struct request_list *from, uint32_t most);

/* EVENT_PREPARED: tokenised rows. */
void prep_queue_tokenised(struct worker *worker, const struct event *event);

/* EVENT_FORMATTED: encoded replies. */
void prep_queue_formatted(struct worker *worker, const struct event *event);

/* Sends all requests whose replies must be written. */
void prep_queue_send_formats(struct worker *worker);

/* Sends texts, as many as may be at the prep threads and in Redis' memory. */
void prep_queue_advance(struct worker *worker);

/* Takes out all requests of a class that wait to be tokenised. */
struct request_list prep_queue_take(struct worker *worker, enum request_class class);

#endif
