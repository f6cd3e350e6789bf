/* The Files and Batches API of OpenAI, over a folder (gateway/batch_store.h).
 *
 * Calls are answered on a thread of their own, because they wait for the disk; another thread runs batches, one at a
 * time, as bulk jobs through a queue (gateway/batch_run.h). Everything that was answered survives a kill, and any
 * gateway that has the folder goes on with a batch whose owner has died: the owner holds a lock, which its end gives
 * back. Thread: the loop's, for all of this. */
#ifndef GATEWAY_BATCHES_H
#define GATEWAY_BATCHES_H

#include "base/err.h"
#include "http/server.h"

struct address;
struct batches;
struct event_base;

struct batches_options {
    struct event_base *base;
    const char *folder;            /* must outlive the batches, like the next two */
    const struct address *address; /* of Redis */
    const char *const *queues;     /* [queue_count], at least one */
    size_t queue_count;
    void *context;
    void (*answer)(void *context, uint64_t number,
                   struct http_reply *reply); /* takes over the reply's memory and file */
};

/* Makes the folder if there is none, and begins to run its batches. Owns: the caller ends it with batches_close.
 * Errors: those of folders and threads; STATUS_NO_MEMORY. */
MUST_CHECK enum status batches_open(const struct batches_options *options, struct batches **out, struct err *err);

/* Stops the batch that runs at a point where it can be resumed, and ends the threads; calls that were not answered are
 * not answered any more. NULL is allowed. */
void batches_close(struct batches *batches);

/* Takes a call to /v1/files… or /v1/batches…, of which it copies what it needs; `answer` follows. HTTP_NOW: it is
 * refused, and the reply has the reason. */
enum http_when batches_ask(struct batches *batches, const struct http_request *request, struct http_reply *reply);

#endif
