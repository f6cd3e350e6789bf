/* One request of a bulk job: some pieces of a batch, what is sent for them and what becomes of the reply.
 * Private to bulk/remote*.c. */
#ifndef BULK_REMOTE_ASK_H
#define BULK_REMOTE_ASK_H

#include "bulk/remote.h"
#include "io/client.h"

/* Where a request is. */
enum ask_state {
    ASK_NEW,    /* to be sent when it is due, unless its reply is there */
    ASK_SENT,   /* nothing is known of it */
    ASK_LOOKED, /* its reply is to be read: it has ended, or it may have */
};

/* A request to the queue: some rows of a batch. */
struct ask {
    struct ask *next;
    struct bulk_batch *batch;
    uint32_t rows[REMOTE_BATCH_ROWS], count; /* of the batch's pieces */
    enum ask_state state;
    uint64_t due_ms; /* ASK_NEW: not before */
    uint64_t sent_ms;
    unsigned failures;
    unsigned repeats; /* how often it was sent again because it seemed forgotten */
    char id[64];
};

/* What a reply means for its request. */
enum ask_end {
    ASK_OPEN,  /* no reply yet */
    ASK_DONE,  /* vectors or codes are in place */
    ASK_AGAIN, /* it is ASK_NEW again, without rows that cannot be computed, or later */
    ASK_HALVE, /* too much together: each half alone */
    ASK_FULL,  /* as ASK_AGAIN; the queue has more than it may */
    ASK_STOP,  /* the batch has a status: the job cannot go on */
};

/* Gives an ask the id of its content. */
void ask_name(struct ask *ask, uint64_t job);

/* Sends the request: one answer will come, to be received by the caller, as after the next two. Errors: those of
 * client_send. */
MUST_CHECK enum status ask_send(const struct ask *ask, const struct remote_options *options, struct client *client,
                                struct err *err);

/* Sends the question for its reply. */
MUST_CHECK enum status ask_look(const struct ask *ask, const struct remote_options *options, struct client *client,
                                struct err *err);

/* Sends the wish that a reply be deleted. */
MUST_CHECK enum status ask_forget(const char *id, const struct remote_options *options, struct client *client,
                                  struct err *err);

/* Takes the answer to ask_look in. */
enum ask_end ask_take(struct ask *ask, const struct resp_value *reply, const struct remote_options *options,
                      uint64_t now_ms);

/* A number of a reply; 0 when it is none. */
uint64_t remote_number(const struct resp_value *value);

#endif
