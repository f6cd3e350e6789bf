/* One request, from the stream entry to its reply: the data model of the daemon.
 *
 * A request owns everything that belongs to it (one allocation, one free) and has one holder at a time: the worker, a
 * prep thread, or a batch. Its rows are what the planner schedules; it ends with its last row. */
#ifndef WORK_REQUEST_H
#define WORK_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "model/model.h"

/* A stream entry's id. */
struct entry_id {
    uint64_t ms;
    uint64_t seq;
};

enum { ENTRY_ID_TEXT = 42, REQUEST_ID_MAX = 128, REQUEST_NAME_MAX = 48, RESULTS_NAME_MAX = 64, TENANT_MAX = 64 };

/* How far an entry's id may be ahead of Redis' clock, in ms, and still be believed: as in lua/lib/names.lua. */
enum { AHEAD_MS = 2000 };

/* Priority classes, each a stream of its own. */
enum request_class { CLASS_HIGH, CLASS_NORMAL, CLASS_LOW, CLASS_COUNT };

/* What a class is called, by class: to people (NULL ends the list), as the end of its stream's key, and before the
 * entry ids of that stream in its requests' names. */
extern const char *const class_names[CLASS_COUNT + 1];
extern const char *const class_streams[CLASS_COUNT];
extern const char *const class_prefixes[CLASS_COUNT];

/* How an entry came to this worker. */
enum entry_origin {
    ORIGIN_NEW,       /* never delivered before */
    ORIGIN_OWN,       /* from our own pending list, after a reconnect */
    ORIGIN_RELEASED,  /* given back by a worker that shut down, or owned by nobody: suspect only with open runs */
    ORIGIN_RECLAIMED, /* held by a worker that died: suspect */
    ORIGIN_FAIR,      /* claimed ahead of its turn, for its tenant's sake */
    ORIGIN_SHED,      /* above the cap of its class: to be answered queue_full; unless it cancels another */
};

/* A field of an entry as it came: bytes of any kind. */
struct entry_field {
    const char *name;
    size_t name_length;
    const char *value;
    size_t value_length;
};

/* A stream entry as io/ hands it over; all bytes belong to the caller and live until the step returns. */
struct entry {
    enum request_class class;
    struct entry_id id;
    enum entry_origin origin;
    uint64_t redis_ms;        /* Redis' clock when it came, unix ms; 0: not known */
    uint32_t quarantine_runs; /* from `trouble`, where known: lonely runs that were charged and never settled */
    bool group_run;           /* likewise: a run of it in a group */
    bool urgent;   /* taken over several times, and no run of it was charged since: to be charged before others */
    bool unread;   /* taken over too often: answered poison; `fields` are those that say where */
    bool oversize; /* its fields were more than the reader takes: answered too_large, unread */
    uint64_t oversize_bytes; /* what they were then, where that is known */
    bool vanished; /* pending, but its message was deleted from the stream: answered internal (OUTCOME_GONE) */
    const struct entry_field *fields;
    size_t field_count;
};

/* Reply codes of docs/protocol.md; CODE_NONE is success so far. */
enum reply_code {
    CODE_NONE,
    CODE_BAD_REQUEST,
    CODE_BAD_UTF8,
    CODE_BAD_ID,
    CODE_TOO_LONG,
    CODE_TOO_LARGE,
    CODE_TOO_MANY_INPUTS,
    CODE_WRONG_MODEL,
    CODE_UNKNOWN_TASK, /* permanent */
    CODE_EXPIRED,
    CODE_QUEUE_FULL, /* policy */
    CODE_OUT_OF_MEMORY,
    CODE_DEVICE_LOST,
    CODE_TIMEOUT,
    CODE_NON_FINITE,
    CODE_INTERNAL, /* transient */
    CODE_POISON,
    CODE_COUNT,
};

/* How a request ends, where ends are counted: CODE_NONE (done), the code of its error, or this. */
enum { END_CANCELLED = CODE_COUNT, ENDS };

/* Of the vectors in a reply; raw floats are little-endian, base64 is of f32. */
enum encoding { ENCODING_JSON, ENCODING_F32, ENCODING_F16, ENCODING_BASE64, ENCODING_COUNT };

/* Where a request is on its way. */
enum request_state {
    REQUEST_NEW,        /* parsed */
    REQUEST_PREPARING,  /* at a prep thread, being tokenised */
    REQUEST_WAITING,    /* in the window */
    REQUEST_COMPUTING,  /* in a batch */
    REQUEST_FORMATTING, /* at a prep thread, reply being written */
    REQUEST_READY,      /* has its outcome; to be settled or deferred */
    REQUEST_SETTLING,   /* the script is on its way */
    REQUEST_LEAVING,    /* to be released, unfinished */
};

/* What becomes of a request in the end; meaningful from REQUEST_READY on. */
enum outcome {
    OUTCOME_DONE,   /* lua/settle: the vector. Any holder may say so, also one that has lost its lease */
    OUTCOME_ERROR,  /* lua/settle: an error reply */
    OUTCOME_DEFER,  /* lua/defer: parked until due, then run number `next_attempt` (field `_attempt`) */
    OUTCOME_DEAD,   /* lua/settle: an error reply and a dead letter (attempts used up, or poison) */
    OUTCOME_GONE,   /* lua/settle: an error reply for an entry whose message is no longer in the stream */
    OUTCOME_CANCEL, /* lua/cancel: this entry cancels another request and ends without a reply of its own */
};

/* What a script said of one request; set by io/ with the answer to settle, defer, cancel or charge. */
enum verdict {
    VERDICT_DONE,         /* settled, parked, charged; the cancel found its request */
    VERDICT_NOTHING,      /* lua/cancel: there is nothing to cancel; the cancel has ended */
    VERDICT_LATE,         /* somebody else finished it or owns it: forget it */
    VERDICT_GONE,         /* lua/defer: its message is no longer in the stream: to be settled as OUTCOME_GONE */
    VERDICT_NOT_ITS_NAME, /* `_id` was a forgery; nothing was changed: request_disown, then once more */
    VERDICT_LATER_FULL,   /* lua/defer: too many wait for their time; nothing was changed: queue_full */
    VERDICT_AGAIN,        /* could not be done now (TRYAGAIN, a full Redis); repeat later */
    VERDICT_ALONE,        /* lua/charge: another worker's run of it is open, so it is for no group; not changed */
};

/* One text of a request: what batches are made of. */
struct row {
    struct request *request;
    const char *text; /* a slice of the request's own copy of the entry */
    uint32_t text_bytes;
    int32_t *ids; /* [tokens], in request->work, filled by a prep thread */
    uint32_t tokens;
    bool truncated;
    uint8_t passed_over; /* batches cut without it though it waited */
    float *output;       /* [dim], in request->work: as pooled, neither cut nor normalised */
    uint64_t hash;       /* of its token ids, by a prep thread: equal ids, equal output */
    struct row
        *duplicates; /* list, by `duplicates`, of rows with the same ids: they get a copy, only the first is computed */
    uint64_t waiting_ns; /* since when it is in the window */
    struct row *next;    /* in the window */

    /* The window's own. */
    bool in_hand;               /* it is being looked at */
    struct tenant_queue *queue; /* where it waits; NULL: it does not */
    struct row *previous;
    struct row *chain, **chained_by;
};

/* A request with all that belongs to it; its holder is the only one who touches it, but for `chain`. */
struct request {
    struct request *next;  /* in a request_list, of whoever holds it now */
    struct request *chain; /* in the worker's table of held entries: nobody else touches it */

    enum request_class class;
    struct entry_id entry; /* where it stands in its stream now */
    enum entry_origin origin;
    char name[REQUEST_NAME_MAX]; /* original name: identity, `entry` of the reply */
    char id[REQUEST_ID_MAX + 1]; /* names the reply key; the name when the producer gave none */

    enum request_state state;
    enum outcome outcome;
    enum reply_code code;
    char message[256]; /* for an error reply: names the field */
    bool retryable;

    enum encoding encoding;
    uint32_t ttl_s; /* of the reply, whatever the outcome: an error's minimum is in it */
    uint32_t max_attempts;
    uint32_t attempt; /* number of this run, from 1; `_attempt` of a promoted retry */
    uint32_t
        quarantine_runs; /* ACTION_RECORD_RUN of a lonely run: io/ puts the new count here before EVENT_RUN_RECORDED */
    uint64_t first_ms;   /* Redis unix ms of the first submission: queued_ms counts from here */
    uint64_t seen_ms;    /* when it came to this process, by Redis' clock; 0: not known */
    bool ahead;          /* its time was ahead of that: first_ms is seen_ms */
    bool suspect;        /* charged before it starts */
    bool quarantined;    /* suspect with a crash on record: tokenised and run while nothing else is, in this process */
    bool urgent;         /* suspect that is charged before others, and is not yet */
    bool unread;         /* its body was never looked at: it can only be answered */
    bool grouped;        /* member of the group that is charged, or being charged */
    bool on_record;      /* a charge of it was out when the connection broke: it may be in `trouble` */
    bool repeated;       /* a settle of it was out when the connection broke: late may be our own doing */
    bool truncate;
    bool notify;                        /* push a wake token */
    char results[RESULTS_NAME_MAX + 1]; /* add an entry to this results stream; "" for none */
    bool track;                         /* write `status queued` before it is prepared */
    bool borrowed_name;                /* `name` is from `_id`: scripts believe it only if `trouble` knows this entry */
    uint64_t due_at_ms, expires_at_ms; /* Redis unix ms: not to start before, not to start after; 0: none */
    char tenant[TENANT_MAX + 1];       /* fair share inside a class; "" for none */
    char target[REQUEST_NAME_MAX];     /* OUTCOME_CANCEL: the name of the request to cancel */
    bool row_failed;                   /* `code` is that of one of several texts: of number `failed_index` */
    uint32_t failed_index;             /* from 0 */
    uint32_t retry_after_ms;           /* CODE_QUEUE_FULL */
    enum verdict verdict;              /* of the last script call for it */
    uint32_t refusals;                 /* how often that was VERDICT_AGAIN */
    uint64_t again_ns;                 /* after it: when to try once more, monotonic */
    bool delivered_again;              /* while it was held: in a new group, or taken again after it was given back */
    uint32_t unknown_fields;
    const char *meta; /* [meta_bytes], echoed in the reply; NULL when there is none */
    uint32_t meta_bytes;
    const char *traceparent; /* [traceparent_bytes], likewise */
    uint32_t traceparent_bytes;

    bool inputs;        /* came as an array of texts: the reply has `count` and an array of arrays, also for one text */
    struct row *rows;   /* [row_count] */
    uint32_t row_count; /* 0 for a cancel, and where the texts could not be read */
    uint32_t rows_left; /* without a vector; at 0 it is complete */
    uint32_t rows_out;  /* in batches, as one of the rows or a duplicate: while there are any, it cannot end */
    bool given_up;      /* its rows that waited were taken back: to be released when the last one out is back */
    uint32_t dim;       /* floats of a row's output: the model's */
    uint32_t dims;      /* floats of a vector in the reply: the first of them, 1..dim */
    bool normalize;     /* the vectors in the reply have length 1 */
    uint32_t max_tokens; /* per row */
    const char *prompt;  /* [prompt_bytes], put before each text; NULL: what the model says */
    uint32_t prompt_bytes;
    uint64_t due_ms;       /* OUTCOME_DEFER: delay from now; or `due_at_ms`, whichever is later. TRACK: until that */
    uint32_t next_attempt; /* OUTCOME_DEFER: `attempt` again after a delay, one more after a failure */
    void *work;            /* ids and outputs of all rows, by a prep thread */

    struct buffer reply; /* the encoded embedding, by a prep thread */
    uint64_t stage;      /* io/: the number of its stage key; 0: it has never had one */
    bool staged;         /* io/: that key holds the reply's fields already */

    /* Stamps, monotonic ns; 0 until reached. */
    uint64_t received_ns, prepared_ns, started_ns, computed_ns;

    size_t entry_bytes; /* of the fields of its entry, in Redis: what a script that reads it looks at */
    size_t bytes;       /* memory that this request holds or will hold, at most: what credit counts */
    size_t work_bytes;  /* of them, what it takes from its preparing on: ids, vectors, reply */
    bool begun;         /* by held_begin */
    size_t reply_bytes; /* what Redis will keep of it, estimated when it is begun: worker_admission.c */
    uint32_t tokens;    /* likewise: estimated from the text until it is tokenised */
};

/* A line of requests, linked by `next`: a request is in one at most. All zero is an empty one. */
struct request_list {
    struct request *first, *last;
    uint32_t count;
};

/* Adds a request at the end. */
void request_list_push(struct request_list *list, struct request *request);

/* Takes the first; NULL when there is none. */
struct request *request_list_pop(struct request_list *list);

/* Moves all of `more` to the end of the list, and leaves `more` empty. */
void request_list_join(struct request_list *list, struct request_list *more);

/* What a queue accepts, and its defaults. */
struct request_rules {
    const char *model_name;
    const char *model_id;
    enum encoding encoding;
    uint32_t dim;
    uint32_t max_tokens;     /* per row */
    uint32_t max_text_bytes; /* of all texts of a request together */
    uint32_t max_inputs;     /* texts of a request */
    uint32_t default_ttl_s, max_ttl_s, error_ttl_s;
    uint32_t default_max_attempts;
    bool truncate;
    bool normalize;                     /* as the model does */
    const struct model_prompt *prompts; /* [prompt_count], the model's; they outlive every request */
    uint32_t prompt_count;
    bool no_prompt; /* the model cannot take any */
};

/* Reads a stream entry into a request. A malformed entry is a request, too: its `code` and `message` say what is wrong
 * and it only needs its error reply.
 * Owns: the caller ends it with request_free. Errors: NULL when memory ran out (the entry stays pending). */
struct request *request_parse(const struct request_rules *rules, const struct entry *entry, uint64_t now_ns);

/* Frees a request with its texts, vectors and reply. NULL is allowed. */
void request_free(struct request *request);

/* Marks a request as failed, with a message for its producer. The first failure stays; it never echoes foreign bytes.
 */
void request_fail(struct request *request, enum reply_code code, const char *format, ...) PRINTF_LIKE(3, 4);

/* Likewise because of one of its texts: a reply to `inputs` says which. */
void request_fail_row(struct request *request, uint32_t index, enum reply_code code, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* The time of its first submission, as its name or a field has it. One that is more than AHEAD_MS ahead of Redis' clock
 * was made up by a producer, or made by Redis from such a one: then it counts from when it was seen. */
void request_submitted(struct request *request, uint64_t ms);

/* Takes back a name that was not its own (VERDICT_NOT_ITS_NAME): from now on it is called by its own entry, and so is
 * its reply unless the producer gave an id; all that `_id` had brought with it is forgotten. */
void request_disown(struct request *request);

/* What a code or an encoding is called in fields and replies: "bad_request", "json". */
const char *reply_code_name(enum reply_code code);
const char *encoding_name(enum encoding encoding);

/* What an end is called: "done", "cancelled", or its code. */
const char *end_name(int end);

/* Whether a request that failed so may succeed when it is run again: the transient codes. */
bool reply_code_retryable(enum reply_code code);

/* Negative, 0 or positive: whether an entry is older than another, the same, or younger. */
int entry_id_compare(struct entry_id a, struct entry_id b);

/* Writes an entry id as Redis does: ms-seq, NUL-terminated. */
void entry_id_format(struct entry_id id, char text[ENTRY_ID_TEXT]);

/* Reads ms-seq, two decimal numbers. False for anything else; `*out` may have been written then. */
MUST_CHECK bool entry_id_parse(const char *text, size_t length, struct entry_id *out);

/* Writes a request's name: the entry id, with `high:` or `low:` before it on those streams; NUL-terminated. */
void request_name_format(enum request_class class, struct entry_id id, char text[REQUEST_NAME_MAX]);

/* Reads a request's name. False for anything else. */
MUST_CHECK bool request_name_parse(const char *text, size_t length, enum request_class *class, struct entry_id *id);

/* Whether a producer may call its request so: 1 to 128 printable ASCII characters, and not what a name
 * looks like: an entry id whose time has 13 digits or more. */
MUST_CHECK bool request_id_usable(const char *id, size_t length);

#endif
