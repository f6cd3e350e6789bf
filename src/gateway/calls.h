/* The calls of a gateway, from body to answer.
 *
 *   body_parse ──call──► the queue of its model, its key, the cache ──► producer (a request for each max_inputs texts)
 *   http_answer ◄─body─ dialect_render ◄─answer─ joined ◄─replies─ producer
 *
 * A large answer is rendered on a thread of its own, so that nobody waits for it.
 * Thread: the loop's, for all of this. */
#ifndef GATEWAY_CALLS_H
#define GATEWAY_CALLS_H

#include "gateway/dialect.h"
#include "gateway/keys.h"
#include "gateway/pages.h"
#include "http/server.h"

struct calls;
struct event_base;

enum { CALL_RETRY_MS = 1000 }; /* when to try again, if nobody knows */

struct calls_options {
    struct event_base *base;
    const char *name;                 /* of the gateway: ids begin with it; must outlive the calls, like the next two */
    const struct model_queue *queues; /* [queue_count] */
    struct keys *keys;                /* NULL: anybody may ask */
    size_t queue_count;
    uint64_t cache_bytes;     /* of the cache of each queue; 0: there is none */
    struct http *const *http; /* set before the first call */
};

/* Owns: the caller ends it with calls_close. Errors: STATUS_NO_MEMORY, STATUS_IO (no thread). */
MUST_CHECK enum status calls_open(const struct calls_options *options, struct calls **out, struct err *err);

/* Ends all calls without an answer, and cancels their requests. The producers must still be there. NULL is allowed. */
void calls_close(struct calls *calls);

/* Answers all calls in flight with a 503, whose client may try again elsewhere, and cancels their requests. */
void calls_give_up(struct calls *calls);

/* The handlers of a dialect's path, and of a job's. */
enum http_when calls_ask(struct calls *calls, const struct http_request *request, struct http_reply *reply);
enum http_when calls_ask_job(struct calls *calls, const struct http_request *request, struct http_reply *reply);

/* The client of a call has gone away. */
void calls_forget(struct calls *calls, uint64_t number);

/* Appends what there is to send of an answer that is written while it is sent. Returns whether more follows. */
bool calls_put_more(struct calls *calls, uint64_t number, struct buffer *to);

/* The queue of a model: by its name, or by that of the queue; no name: the only queue. NULL: there is none. */
const struct model_queue *calls_find_queue(const struct calls *calls, struct slice model);

/* Checks the key of a request for a queue (NULL: for any of them), and fills `facts`. False: the fault says why. */
MUST_CHECK bool calls_check_key(const struct calls *calls, const struct dialect *dialect,
                                const struct http_request *request, const struct model_queue *queue,
                                struct key_facts *facts, struct fault *fault);

/* Fills the reply with a fault, and counts it. */
void calls_refuse(struct calls *calls, const struct dialect *dialect, const struct fault *fault,
                  struct http_reply *reply);

/* Appends the header with the id of a request, by its number. */
void calls_put_id(const struct calls *calls, uint64_t number, struct http_reply *reply);

const struct gateway_counts *calls_counts(const struct calls *calls);

#endif
