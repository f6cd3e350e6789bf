/* One request, from the stream entry to its reply: the daemon's data model.
 *
 * A request owns everything that belongs to it (one allocation, one free) and has one holder at a time: the worker, a
 * prep thread or a batch. Batches are made of its rows; it ends when its last row ends. */
#ifndef SCHEDULE_REQUEST_H
#define SCHEDULE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "generate/generator.h"
#include "model/model.h"
#include "schedule/token_stream.h"

/* The id of a stream entry. */
struct entry_id {
    uint64_t ms;
    uint64_t seq;
};

enum { ENTRY_ID_TEXT = 42, REQUEST_ID_MAX = 128, REQUEST_NAME_MAX = 48, RESULTS_NAME_MAX = 64, TENANT_MAX = 64 };

/* How far an entry's id may be ahead of Redis' clock and still be believed, in ms; the same as in lua/lib/names.lua. */
enum { AHEAD_MS = 2000 };

/* Priority classes; each has its own stream. */
enum request_class { CLASS_HIGH, CLASS_NORMAL, CLASS_LOW, CLASS_COUNT };

/* By class: its name for people (NULL ends the list), the end of its stream's key, and the prefix of its requests'
 * names. */
extern const char *const class_names[CLASS_COUNT + 1];
extern const char *const class_streams[CLASS_COUNT];
extern const char *const class_prefixes[CLASS_COUNT];

/* The task that a request gives to the model. */
enum request_task { TASK_EMBED, TASK_RERANK, TASK_CLASSIFY, TASK_TOKENIZE, TASK_GENERATE, TASK_COUNT };

/* By task: its name in requests; NULL ends the list. */
extern const char *const task_names[TASK_COUNT + 1];

/* How an entry came to this worker. */
enum entry_origin {
    ORIGIN_NEW,       /* never delivered before */
    ORIGIN_OWN,       /* from our own pending list, after a reconnect */
    ORIGIN_STRAY,     /* from our own pending list, but not given to us: suspect, as its last holder is unknown */
    ORIGIN_RELEASED,  /* given back by a worker that shut down, or without an owner: suspect only with open runs */
    ORIGIN_RECLAIMED, /* held by a worker that died: suspect */
    ORIGIN_FAIR,      /* claimed ahead of its turn, for its tenant's sake */
    ORIGIN_SHED,      /* above the cap of its class: answered queue_full, unless it cancels another */
};

/* A field of an entry as it came: bytes of any kind. */
struct entry_field {
    const char *name;
    size_t name_length;
    const char *value;
    size_t value_length;
};

/* A stream entry as redis/ hands it over. All bytes belong to the caller and live until the step returns. */
struct entry {
    enum request_class class;
    struct entry_id id;
    enum entry_origin origin;
    uint64_t place;           /* the entry that follows it in the stream has the next higher one; 0: unknown */
    uint64_t redis_ms;        /* Redis' clock when it came, unix ms; 0: unknown */
    uint32_t quarantine_runs; /* from `trouble`, if known: runs alone that were recorded and never settled */
    bool group_run;           /* from `trouble`: a run in a group was recorded and never settled */
    bool urgent;              /* taken over several times without a recorded run: its run is recorded before others */
    bool unread;              /* taken over too often: answered poison; `fields` only say where the answer goes */
    bool oversize;            /* more bytes than the reader takes: answered too_large, unread */
    uint64_t oversize_bytes;  /* its size then, if known */
    bool undeliverable;       /* oversize because Redis closes each connection on which it is read */
    bool vanished;            /* pending, but its message was deleted: answered internal (OUTCOME_GONE) */
    const struct entry_field *fields;
    size_t field_count;
};

/* Reply codes of docs/protocol.md; CODE_NONE: no failure so far. */
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

/* How requests end, for counters: CODE_NONE (done), the code of the error, or this. */
enum { END_CANCELLED = CODE_COUNT, ENDS };

/* How a reply writes its vectors; the table in encodings.c has a row for each. */
enum encoding {
    ENCODING_JSON,
    ENCODING_F32,
    ENCODING_F16,
    ENCODING_BASE64,
    ENCODING_INT8, /* this one and those below are for vectors only */
    ENCODING_UBINARY,
    ENCODING_COUNT
};

/* The stage that a request has reached. */
enum request_state {
    REQUEST_NEW,        /* parsed */
    REQUEST_PREPARING,  /* at a prep thread, being tokenised */
    REQUEST_WAITING,    /* in the window */
    REQUEST_COMPUTING,  /* in a batch */
    REQUEST_FORMATTING, /* at a prep thread, its reply being written */
    REQUEST_READY,      /* has its outcome; will be settled or deferred */
    REQUEST_SETTLING,   /* the script call is out */
    REQUEST_LEAVING,    /* will be released, unfinished */
};

/* The end of a request; meaningful from REQUEST_READY on. */
enum outcome {
    OUTCOME_DONE,   /* lua/settle: the vector. Any holder may say so, even one that has lost its lease */
    OUTCOME_ERROR,  /* lua/settle: an error reply */
    OUTCOME_DEFER,  /* lua/defer: parked until due, then run number `next_attempt` (field `_attempt`) */
    OUTCOME_DEAD,   /* lua/settle: an error reply and a dead letter (attempts used up, or poison) */
    OUTCOME_GONE,   /* lua/settle: an error reply for an entry whose message is no longer in the stream */
    OUTCOME_CANCEL, /* lua/cancel: this entry cancels another request and ends without a reply of its own */
};

/* A script's answer for one request; redis/ sets it with the answer to settle, defer, cancel or charge. */
enum verdict {
    VERDICT_DONE,         /* settled, parked, recorded; the cancel found its request */
    VERDICT_NOTHING,      /* lua/cancel: there is nothing to cancel; the cancel has ended */
    VERDICT_LATE,         /* another worker finished or owns it: forget it */
    VERDICT_GONE,         /* lua/defer: its message is no longer in the stream: settle it as OUTCOME_GONE */
    VERDICT_NOT_ITS_NAME, /* `_id` was forged; nothing was changed: call request_disown, then try again */
    VERDICT_LATER_FULL,   /* lua/defer: too many requests wait for their time; nothing was changed: answer queue_full */
    VERDICT_AGAIN,        /* not possible now (TRYAGAIN, a full Redis): try again later */
    VERDICT_ALONE,        /* lua/charge: another worker's run of it is open, so no group takes it; unchanged */
};

/* One text of a request; batches are made of rows. */
struct row {
    struct request *request;
    const char *text; /* a slice of the request's own copy of the entry */
    uint32_t text_bytes;
    int32_t *ids; /* [tokens], in request->work, written by a prep thread */
    uint32_t tokens;
    uint32_t second; /* index of the first token of type 1, of a pair's second text; 0: none */
    bool truncated;
    uint8_t passed_over;    /* batches that were cut without it while it waited */
    float *output;          /* [dim], in request->work: as pooled, neither cut nor normalised; or logits */
    uint64_t hash;          /* of its token ids, by a prep thread: equal ids (and pairs) give equal outputs */
    struct row *duplicates; /* list (by `duplicates`) of rows with the same ids: only the first is computed */
    uint64_t waiting_ns;    /* the time since which it is in the window */
    struct row *next;       /* in the window */

    /* Owned by the window. */
    bool in_hand;               /* taken from its queue while a batch is being chosen */
    struct tenant_queue *queue; /* the queue in which it waits; NULL: none */
    struct row *previous;
    struct row *chain, **chained_by; /* links rows whose ids may be equal */
};

enum { STOP_MAX = 128, STOPS_MAX = 4 }; /* bytes of a stop text; texts of the field `stops` */

/* TASK_GENERATE: the wishes of its producer, and the text that was written. The request has one row, its prompt. */
struct writing {
    bool messages;         /* the row's text is JSON, the messages of a chat */
    bool seeded;           /* sampling.seed is from the producer, not from the name */
    uint32_t max_tokens;   /* 0: as many as there is room for */
    uint32_t top_logprobs; /* the reply has the probability of each token, and of so many of the likeliest; 0: none */
    struct sampling sampling;
    char stop_texts[1 + STOPS_MAX][STOP_MAX + 1];
    const char *stops[1 + STOPS_MAX]; /* [stop_count] */
    unsigned stop_count;
    struct token_stream *stream; /* NULL: the text goes nowhere before it is complete */

    /* Written by the thread that computes, while the row is in a batch. */
    struct buffer text, logprobs; /* logprobs: JSON, if they are wished for */
    enum finish_reason finish;
    uint32_t completion_tokens;
    uint64_t first_ns; /* the time of the first token, monotonic */
};

/* A request with all that belongs to it. Only its holder touches it, except for `chain`. */
struct request {
    struct request *next;  /* in the request_list of whoever holds it */
    struct request *chain; /* in the worker's table of held entries, which alone touches it */

    /* Its identity and its tenant. */
    struct {
        enum request_class class;
        struct entry_id entry; /* its id in its stream now */
        enum entry_origin origin;
        uint64_t place;                /* of its entry */
        char name[REQUEST_NAME_MAX];   /* original name: its identity, `entry` of the reply */
        char id[REQUEST_ID_MAX + 1];   /* names the reply key; the name if the producer gave none */
        bool borrowed_name;            /* `name` is from `_id`: scripts believe it only if `trouble` knows this entry */
        uint64_t first_ms;             /* Redis unix ms of the first submission: queued_ms counts from here */
        uint64_t seen_ms;              /* Redis unix ms when this process read it; 0: unknown */
        bool ahead;                    /* its id was ahead of Redis' clock, so first_ms is seen_ms */
        char tenant[TENANT_MAX + 1];   /* shares a class fairly; "" for none */
        char target[REQUEST_NAME_MAX]; /* OUTCOME_CANCEL: the name of the request to cancel */
        const char *meta;              /* [meta_bytes], echoed in the reply; NULL: none */
        uint32_t meta_bytes;
        const char *traceparent; /* [traceparent_bytes], echoed too; in the form that W3C Trace Context defines */
        uint32_t traceparent_bytes;
        const char *tracestate; /* [tracestate_bytes], echoed too; not without a traceparent */
        uint32_t tracestate_bytes;
        bool sampled;        /* according to its traceparent: daemon/traces writes a span of it */
        const char *ignored; /* [ignored_bytes] names of its unknown fields, as the reply lists them; NULL: none */
        uint32_t ignored_bytes;
        size_t entry_bytes; /* of its entry's fields in Redis, which a script reads */
    } identity;

    /* Work: texts in, vectors or logits out. */
    enum request_task task;
    const struct model_head *head; /* of the model, which outlives it; has no meaning for TASK_EMBED */
    const char *query; /* [query_bytes] the first text of every row's pair; NULL: the rows are single texts */
    uint32_t query_bytes;
    bool inputs;        /* it came as an array: the reply has `count` and an array of arrays, even for one text */
    struct row *rows;   /* [row_count] */
    uint32_t row_count; /* 0 for a cancel, and if the texts could not be read */
    uint32_t rows_left; /* rows without a vector; at 0 the request is complete */
    uint32_t rows_out;  /* rows in batches, computed or duplicates: the request cannot end while there are any */
    bool truncate;
    uint32_t max_tokens; /* per row */
    const char *prompt;  /* [prompt_bytes], put before each text; NULL: the model's default */
    uint32_t prompt_bytes;
    uint32_t dim;            /* floats of a row's output */
    void *work;              /* ids and outputs of all rows, allocated by a prep thread */
    struct writing *writing; /* NULL if the model does not generate */

    /* The form of its reply, and where it goes. */
    struct {
        uint32_t dims;  /* floats of a vector in the reply: the first of `dim` */
        bool normalize; /* vectors in the reply have length 1 */
        bool raw;       /* logits stay as they are */
        bool specials;  /* TASK_TOKENIZE: also the special tokens beside a text */
        uint32_t top_n; /* TASK_RERANK: the number of documents, best first; 0: all, in the order of the inputs */
        enum encoding encoding;
        uint32_t ttl_s;         /* of the reply, whatever the outcome; at least the minimum for errors */
        const char *into;       /* [into_bytes]: key of a hash to which the vector goes, too; NULL: none */
        const char *into_field; /* [into_field_bytes]: the field of that hash */
        uint32_t into_bytes, into_field_bytes;
        bool notify;                        /* push a wake token */
        char results[RESULTS_NAME_MAX + 1]; /* add an entry to this results stream; "" for none */
        char stream[RESULTS_NAME_MAX + 1];  /* add its text, and its end, to this stream of tokens; "" for none */
        struct buffer reply;                /* the encoded vectors, scores or labels, written by a prep thread */
        bool staged;                        /* redis/: the result bypasses its settle, in a hash of its own */
        bool plain;                         /* redis/: its settle has nothing to look up but whether it is pending */
    } output;

    /* Its progress. */
    struct {
        enum request_state state;
        enum outcome outcome;
        enum verdict verdict;              /* of the last script call */
        uint64_t due_at_ms, expires_at_ms; /* Redis unix ms between which it may start; 0: no limit */
        uint64_t due_ms;                   /* OUTCOME_DEFER: delay from now, or until `due_at_ms` if that is later */
        bool begun;                        /* counted by held_begin */
        bool given_up;        /* its waiting rows were taken back: it is released when the last row out is back */
        bool unread;          /* its body was never read: it can only be answered */
        bool delivered_again; /* delivered again while held: in a new group, or taken again after it was given back */
        bool repeated;        /* the connection broke during a settle: VERDICT_LATE may be our own doing */
        bool single;          /* its settle is a call of its own, while no other such call is out */
        bool unanswered;      /* the connection broke while its reply was on its way */
        uint32_t cuts;        /* how often Redis closed the connection for no other reason: redis_limits.c */
        uint32_t refusals;    /* how often the verdict was VERDICT_AGAIN */
        uint64_t again_ns;    /* when to try again after a refusal, monotonic */
        uint64_t received_ns, prepared_ns, started_ns, computed_ns; /* monotonic; 0 until reached */
        uint64_t batch; /* number, in this worker, of the last batch that it had rows in; 0: none */
    } lifetime;

    /* Its failure, its runs and the damage that they may have done. */
    struct {
        enum reply_code code;
        char message[256]; /* for an error reply: names the field */
        bool retryable;
        bool row_failed;         /* `code` is that of one of several texts: text `failed_index`, from 0 */
        uint32_t failed_index;   /* see row_failed */
        uint32_t retry_after_ms; /* CODE_QUEUE_FULL */
        uint32_t attempt;        /* number of this run, from 1; `_attempt` of a promoted retry */
        uint32_t max_attempts;
        uint32_t next_attempt; /* OUTCOME_DEFER: `attempt` after a delay, one more after a failure */
        bool suspect;          /* its run is recorded before it starts */
        bool quarantined; /* a suspect with a crash on record: prepared and run while this process does nothing else */
        bool urgent;      /* a suspect whose run must be recorded before others'; false once it is */
        bool grouped;     /* a member of the group that is being recorded, or runs */
        bool on_record;   /* the connection broke during a record of its run: it may be in `trouble` */
        uint32_t quarantine_runs; /* ACTION_RECORD_RUN of a run alone: redis/ writes the new count before
                                     EVENT_RUN_RECORDED */
    } retry;

    /* Its weight. */
    size_t bytes;       /* memory it holds or will hold, at most: counts against credit */
    size_t work_bytes;  /* the part of `bytes` that it takes once it is prepared: ids, vectors, reply */
    size_t reply_bytes; /* the bytes of it that Redis will keep, estimated when it begins: redis_memory.c */
    uint32_t tokens;    /* estimated from the text until it is tokenised */
};

/* A list of requests, linked by `next`; a request is in at most one. All zero is an empty one. */
struct request_list {
    struct request *first, *last;
    uint32_t count;
};

/* Adds a request at the end. */
void request_list_push(struct request_list *list, struct request *request);

/* Takes the first; NULL when there is none. */
struct request *request_list_pop(struct request_list *list);

/* Moves all of `more` to the end of the list and leaves `more` empty. */
void request_list_join(struct request_list *list, struct request_list *more);

/* The requests that a queue accepts, and its defaults. */
struct request_rules {
    const char *model_name;
    const char *model_id;
    enum encoding encoding;
    const struct model_head
        *head;               /* determines the tasks; NULL, or no labels: the model embeds. Outlives every request */
    uint32_t dim;            /* of the model */
    uint32_t max_tokens;     /* per row */
    uint32_t max_text_bytes; /* of all texts of a request together */
    uint32_t max_inputs;     /* texts of a request */
    uint32_t default_ttl_s, max_ttl_s, error_ttl_s;
    uint32_t default_max_attempts;
    bool truncate;
    const char *into_keys;              /* patterns with blanks between them: keys for the field `into`; NULL: none */
    bool normalize;                     /* the default of the model */
    const struct model_prompt *prompts; /* [prompt_count], the model's; they outlive every request */
    uint32_t prompt_count;
    bool no_prompt; /* the model cannot take any */
};

/* Returns whether a model with this head (NULL: none) computes the results of a task. TASK_TOKENIZE, which every queue
 * does, is computed without the model. */
bool head_does(const struct model_head *head, enum request_task task);

/* Reads a stream entry into a request. A malformed entry becomes a request too: its `code` and `message` name the
 * error, and only its error reply is left to send. Owns: the caller ends it with request_free. Errors: NULL when memory
 * ran out (the entry stays pending). */
struct request *request_parse(const struct request_rules *rules, const struct entry *entry, uint64_t now_ns);

/* The fields that each reply and dead letter repeats; `bytes` is NULL if the request lacks one. */
enum { REQUEST_ECHOES = 6 };
struct request_echoes {
    struct {
        const char *name, *bytes;
        size_t length;
    } fields[REQUEST_ECHOES];
};
struct request_echoes request_echoes(const struct request *request);

/* The known field that was probably meant by an unknown name, because the names are similar; NULL: none. */
const char *request_nearest_field(const char *name, size_t length);

/* Frees a request with its texts, vectors and reply. NULL is allowed. */
void request_free(struct request *request);

/* Fails a request with a message for its producer, which never echoes foreign bytes. The first failure is kept. */
void request_fail(struct request *request, enum reply_code code, const char *format, ...) PRINTF_LIKE(3, 4);

/* Fails a request because of one of its texts: a reply to `inputs` says which. */
void request_fail_row(struct request *request, uint32_t index, enum reply_code code, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* Sets the time of its first submission, from its name or a field. A time more than AHEAD_MS ahead of Redis' clock was
 * made up by a producer, or by Redis from such an id: the request's time then starts when it was seen. */
void request_submitted(struct request *request, uint64_t ms);

/* Takes back a name that was not its own (VERDICT_NOT_ITS_NAME): it is now named after its own entry, and so is its
 * reply unless the producer gave an id. All data that came with `_id` is forgotten. */
void request_disown(struct request *request);

/* The name of a code in replies: "bad_request". */
const char *reply_code_name(enum reply_code code);

/* The name of an end: "done", "cancelled", or the name of its code. */
const char *end_name(int end);

/* Returns whether a request that failed with this code may succeed in another run: true for the transient codes. */
bool reply_code_retryable(enum reply_code code);

/* Negative, 0 or positive: `a` is older, the same or younger. */
int entry_id_compare(struct entry_id a, struct entry_id b);

/* False for {0}, which stands for no entry. */
bool entry_id_is_set(struct entry_id id);

/* Writes an entry id as Redis does: ms-seq, NUL-terminated. */
void entry_id_format(struct entry_id id, char text[ENTRY_ID_TEXT]);

/* Reads ms-seq, two decimal numbers. False for anything else; `*out` may have been written then. */
MUST_CHECK bool entry_id_parse(const char *text, size_t length, struct entry_id *out);

/* Writes a request's name: the entry id, after `high:` or `low:` on those streams; NUL-terminated. */
void request_name_format(enum request_class class, struct entry_id id, char text[REQUEST_NAME_MAX]);

/* Reads a request's name. False for anything else. */
MUST_CHECK bool request_name_parse(const char *text, size_t length, enum request_class *class, struct entry_id *id);

/* Reads an unsigned decimal number: digits only, no sign, no overflow. */
MUST_CHECK bool decimal_parse(const char *text, size_t length, uint64_t *out);

/* Returns whether a producer may use this id: 1 to 128 printable ASCII characters that do not have the form of a
 * request's name (an entry id whose time has 13 digits or more). */
MUST_CHECK bool request_id_usable(const char *id, size_t length);

#endif
