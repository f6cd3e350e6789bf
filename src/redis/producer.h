/* One queue, as a producer that waits for its replies sees it: an entry by XADD, a notice in a results stream, the
 * reply by HGETALL.
 *
 * Two connections: one for commands, one that waits for notices and for texts that are being written. A request is sent
 * again under its id when both come back after a loss, unless its reply is there: Redis may have lost the entry or
 * never got it, and a second entry with the same id does no harm. It is also sent again when nothing was heard for long
 * although workers are there: after FLUSHALL, or a restart behind a proxy that lost the last second, silence is the
 * only sign. Replies whose notice was lost are found by a slow walk over all open requests. MOVED of a cluster is
 * followed. Thread: the loop's, for all of this. */
#ifndef REDIS_PRODUCER_H
#define REDIS_PRODUCER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "redis/connection.h"
#include "schedule/request.h"

struct address;
struct event_base;
struct producer;
struct producer_request;

#define PRODUCER_NEVER UINT64_MAX

struct producer_options {
    struct event_base *base;
    const struct address *address; /* must outlive the producer, like the next two */
    const char *queue;
    const char *name;      /* of the results stream. Ids that begin with it and a dash are of this process alone */
    uint64_t away_ms;      /* so long a request waits for a connection */
    uint64_t forgotten_ms; /* so long, and what requests usually take, it waits in silence before it is sent again */
    uint64_t seed;
    void *context;
    void (*on_denied)(void *context,
                      const struct err *err); /* Redis refuses the login; it is tried again all the same */
};

/* What the queue says of itself, as of the last second. */
struct producer_facts {
    char model[256];                     /* the published name; "": no worker has ever joined */
    char model_facts[2048];              /* of the model, as `meta` has them; "": not known */
    char model_id[80], precision[16];    /* as pinned; "": not known, or any precision */
    bool connected, served;              /* served: a worker has published something within ten seconds */
    uint64_t seen_ms;                    /* when that was, by clock_now_ms; 0: not known, or long ago */
    uint64_t max_inputs, max_text_bytes; /* 0: not known */
    int64_t wait_ms[CLASS_COUNT];        /* -1: not known */
    uint64_t waiting[CLASS_COUNT];       /* entries that nobody has read */
    uint64_t open, answered, again;      /* requests of this producer: open, answered so far, sent again after a loss */
};

/* The end of a request. */
struct producer_reply {
    enum status status;  /* OK: a reply came. UNAVAILABLE: Redis is away or full. TIMEOUT: no reply in time; DENIED:
                            Redis  refuses this command; else an error of Redis that it does not explain */
    const char *message; /* of an error */
    const struct resp_value *fields; /* the reply's hash, as HGETALL gives it; lives until `ended` returns */
};

/* A request to be sent. Everything is copied. */
struct producer_order {
    enum request_class class;
    const char *id;   /* 1 to REQUEST_ID_MAX bytes */
    const char *name; /* of an entry that is only waited for; NULL: there is none yet */
    /* False: nobody else has this id, which begins with the producer's name and a dash. Its reply is unlinked once it
     * was read. True: an earlier request may have had it; if that has a result, it is the answer. The reply stays,
     * unless `unlinked` is true, too. */
    bool kept, unlinked;
    bool slow; /* it may take minutes, so silence for that long does not mean that it was forgotten */
    const struct entry_field
        *fields; /* [count] all but id, notify and expires_in; none: it is only waited for (kept) */
    size_t count;
    uint64_t timeout_ms; /* becomes expires_in; a little later it ends with TIMEOUT. PRODUCER_NEVER: it does not */
    void *context;
    void (*added)(void *context, const char *name); /* Redis has it; may be NULL */
    /* TASK_GENERATE: some tokens were written, the first of them at `index` of the text. Tokens may be missing, or come
     * twice after Redis has lost something; the reply has the whole text. NULL: nobody reads the text before that. */
    void (*written)(void *context, uint64_t index, uint64_t tokens, const struct resp_value *text);
    void (*ended)(void *context, const struct producer_reply *reply); /* once, never before producer_send returns */
};

/* Makes a producer that begins to connect. Owns: the caller ends it with producer_close. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status producer_open(const struct producer_options *options, struct producer **out, struct err *err);

/* Ends it; open requests end without a callback. NULL is allowed. */
void producer_close(struct producer *producer);

const struct producer_facts *producer_facts(const struct producer *producer);

/* Sends a request, or keeps it for a few seconds while there is no connection. `*out` is valid until `ended` is called
 * or producer_cancel. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status producer_send(struct producer *producer, const struct producer_order *order,
                                     struct producer_request **out, struct err *err);

/* Nobody waits for it any more: no callback follows. Unless it is kept, it is cancelled in the queue, too. */
void producer_cancel(struct producer_request *request);

/* Sends a command of the caller's. Owns: takes its bytes, also on error. Errors: those of connection_send_command;
 * STATUS_UNAVAILABLE (not connected). */
MUST_CHECK enum status producer_ask(struct producer *producer, struct command *command, connection_reply_fn *reply,
                                    void *context, struct err *err);

/* Cancels the request of a name, if it has this id and this tenant (NULL: any). Errors: STATUS_UNAVAILABLE (not
 * connected). */
MUST_CHECK enum status producer_cancel_name(struct producer *producer, const char *name, const char *id,
                                            const char *tenant, struct err *err);

#endif
