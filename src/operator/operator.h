/* An operator's questions and orders: the state of a queue, its workers, dead letters; pause, caps, orders to workers.
 * The command line and the admin API (daemon/admin) both use them. */
#ifndef OPERATOR_OPERATOR_H
#define OPERATOR_OPERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "redis/address.h"
#include "redis/client.h"
#include "redis/pause.h"
#include "redis/queue.h"
#include "redis/scripts.h"
#include "schedule/request.h"

/* ---- the connection ---- */

enum { SESSION_KEY = 256, SESSION_TIMEOUT_MS = 5000 };

/* An open connection, and the server's time. */
struct session {
    struct address address;
    struct client *client;
    const char *queue;
    bool several;      /* the command is about several queues; this is one of them */
    uint64_t redis_ms; /* Redis' unix ms at the opening: the clock of all deadlines and ages */
};

/* Asks for the server's time. Errors: those of client_command. */
MUST_CHECK enum status session_ask_time(struct session *session, struct err *err);

/* Closes the connection; wipes the password. */
void session_close(struct session *session);

/* Writes sluice:{queue}:<suffix><more>; returns `key`. */
const char *session_key(const struct session *session, const char *suffix, const char *more, char key[SESSION_KEY]);

/* Sends a command and waits for the answer. An error names the command's first word. Owns: `*out` lives until the next
 * call with this session. Errors: those of client_command. */
MUST_CHECK enum status session_ask(struct session *session, size_t count, const char *const *words,
                                   const struct resp_value **out, struct err *err);

/* session_ask for a literal list of words: SESSION_ASK(session, &reply, err, "XLEN", key). */
#define SESSION_ASK(session, out, err, ...)                                                                            \
    session_ask(session, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *),                            \
                (const char *const[]){__VA_ARGS__}, out, err)

/* session_ask for a command that answers with an integer. Errors: also STATUS_INTERNAL if it does not. */
MUST_CHECK enum status session_ask_number(struct session *session, size_t count, const char *const *words,
                                          long long *out, struct err *err);
#define SESSION_ASK_NUMBER(session, out, err, ...)                                                                     \
    session_ask_number(session, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *),                     \
                       (const char *const[]){__VA_ARGS__}, out, err)

/* Loads a script and writes its digest. Errors: as session_ask_number. */
MUST_CHECK enum status session_load(struct session *session, enum script script, char digest[SCRIPT_DIGEST + 1],
                                    struct err *err);

/* The group `sluice` in an answer to XINFO GROUPS; NULL: nobody has read the stream yet. */
const struct resp_value *session_group(const struct resp_value *groups);

/* A value as a C string; "" for nil and arrays. */
const char *session_text(const struct resp_value *value);

/* ---- workers ---- */

/* The heartbeats of a queue's workers: each worker writes one into `workers` about once a second. */

enum { HEARTBEAT_FRESH_MS = 10000 };

/* One worker's heartbeat; all strings are in the answer. */
struct heartbeat_line {
    const char *worker;
    const char *words;   /* `state running held 3 …`, as the worker wrote them */
    const char *command; /* an order that it has not taken yet; "" for none */
    uint64_t age_ms;     /* since the heartbeat */
    bool alive;          /* its lease runs */
};

/* The heartbeats of all workers of a queue. */
struct heartbeats {
    struct resp_value *answer; /* owns the strings of the lines */
    struct heartbeat_line *lines;
    size_t count;
};

/* Reads them. Owns: the caller ends it with heartbeats_free, also after an error. Errors: those of the commands. */
MUST_CHECK enum status heartbeats_read(struct session *session, struct heartbeats *out, struct err *err);

/* Frees answer and lines. */
void heartbeats_free(struct heartbeats *heartbeats);

/* True if a worker of this name is among them, and its lease runs. */
bool heartbeats_alive(const struct heartbeats *heartbeats, const char *worker);

/* Copies the value after a word of the line ("held") into `value`, "" if the word is missing; returns `value`. */
const char *heartbeat_value(const struct heartbeat_line *line, const char *word, char *value, size_t size);

/* Leaves an order for a worker, which takes it with its next heartbeat (worker_order_is). Errors: those of the
 * command. */
MUST_CHECK enum status worker_order(struct session *session, const char *worker, const char *order, struct err *err);

/* True if this is an order: quiet, resume, drain or stop. */
bool worker_order_is(const char *word);

/* ---- queues ---- */

enum { PRECISIONS_MAX = 8, HISTORY_DAYS = 91, DAY_MS = 86400000 };

struct class_counts {
    long long unread, pending, wait_ms; /* wait_ms: -1: unknown */
    long long cap;                      /* 0: none */
    long long oldest_ms;                /* age of the oldest pending entry, else of the oldest unread one; -1: none */
};

/* Requests that ended on one day; errors: neither done nor cancelled. */
struct day_counts {
    uint64_t done, errors;
};

struct queue_counts {
    struct class_counts classes[CLASS_COUNT];
    struct {
        char name[32];
        size_t workers;
    } precisions[PRECISIONS_MAX]; /* of the workers that are alive; "" after the last */
    char pinned[16];              /* the one that all workers must have; "": any */
    long long cap_later;          /* 0: none */
    long long later, due, dead;   /* due: of `later`, those whose time has come */
    struct pause pause;
    long long dead_bytes;         /* of Redis' memory */
    size_t workers, quiet, tight; /* the live ones; how many of them are quiet, and how many hold little, for … */
    char reason[32];              /* … this reason, which one of them gives */
    unsigned long devices, devices_lost; /* of the workers that are alive */
    uint64_t published_ms_ago;
    uint64_t ended[CLASS_COUNT][ENDS], died, ignored; /* replies that name ignored fields; all since … */
    uint64_t since_ms;                                /* … Redis unix ms; 0: nothing counted yet */
    struct day_counts days[HISTORY_DAYS];             /* of Redis' days in UTC: today, yesterday, … */
};

/* Reads the counts of a queue, and the heartbeats of its workers. Owns: the caller ends `heartbeats` with
 * heartbeats_free, also after an error. Errors: those of the commands. */
MUST_CHECK enum status queue_counts_read(struct session *session, struct queue_counts *out,
                                         struct heartbeats *heartbeats, struct err *err);

/* The queues of a Redis, found by SCAN, because there is no list of them. Each call asks for few keys, so as not to
 * hold up Redis; in a large Redis it takes several calls to find all queues. */

enum { QUEUES_FOUND_MAX = 100, QUEUES_REST_MS = 10000 };

struct queue_names {
    char items[QUEUES_FOUND_MAX][QUEUE_NAME_MAX + 1]; /* [count], in order */
    size_t count;
    bool more; /* there are more queues than fit */
};

/* Zero-initialise. */
struct queue_walk {
    struct queue_names found, finding; /* found by the last whole walk; by the one in progress */
    char cursor[24];                   /* "" before a walk */
    uint64_t rests_until_ms;           /* monotonic */
    bool whole;                        /* a walk has reached the end */
};

/* Continues the walk, unless the last one ended less than QUEUES_REST_MS ago. Errors: those of the command; after one
 * it rests as long. */
MUST_CHECK enum status queue_walk_on(struct session *session, struct queue_walk *walk, struct err *err);

/* The names known now; during the first walk, those that it has found. */
const struct queue_names *queue_walk_names(const struct queue_walk *walk);

/* Writes whether the queue of the session has a stream. Errors: those of the command. */
MUST_CHECK enum status queue_exists(struct session *session, bool *out, struct err *err);

/* Reads the pause of a queue. Errors: those of the commands. */
MUST_CHECK enum status pause_read(struct session *session, struct pause *out, struct err *err);

/* Pauses a queue, in our name, and reads its pause into `*out`. `for_ms`: from now on; 0: until somebody resumes it.
 * `why`: UTF-8; NULL keeps the reason of a pause that is already there. A queue that was paused keeps its `since_ms`.
 * `*changed`: false if it is paused without an end and neither `for_ms` nor `why` is given; that pause is left alone.
 * Errors: those of the commands. */
MUST_CHECK enum status pause_set(struct session *session, uint64_t for_ms, const char *why, struct pause *out,
                                 bool *changed, struct err *err);

/* Ends the pause of a queue. `*changed`: it was paused. Errors: those of the commands. */
MUST_CHECK enum status pause_end(struct session *session, bool *changed, struct err *err);

enum { CAPS = CLASS_COUNT + 1 }; /* one for each class, and one for `later` */
extern const char *const cap_names[CAPS];

/* Sets the caps that are not negative, and reads all. Shapes: caps [CAPS]; 0: none. Errors: those of the commands. */
MUST_CHECK enum status caps_set(struct session *session, long long caps[CAPS], struct err *err);

/* ---- dead letters ---- */

/* Selects letters; NULL and 0 mean any. */
struct letter_filter {
    const char *code;       /* as in the reply: poison, internal, … */
    const char *id;         /* of the request: its id, or its name */
    uint64_t older_than_ms; /* dead for at least … */
    uint64_t newer_than_ms; /* … or at most this long */
    const char *search;     /* bytes that a field's name or value contains */
};

/* A dead letter; valid while `visit` runs. */
struct letter {
    const char *id;                  /* the letter's id, whose time is when the request died */
    const struct resp_value *fields; /* names and values in turn, see resp_field */
    uint64_t age_ms;
};

enum { LETTER_PAGE = 100, LETTER_CURSOR = 64 };

typedef enum status letter_visit_fn(void *context, const struct letter *letter, struct err *err);

/* Looks at the next LETTER_PAGE letters after `cursor` (NULL: from the oldest or the newest on) and visits those that
 * the filter lets through. `visit` may remove letters. `next` is the cursor for the call after this one, "" at the end;
 * it may be the same array. A walk that begins with the oldest leaves out letters that arrive during it, so it ends
 * even if `visit` resubmits requests that die again. Errors: those of the commands and of `visit`, which ends the walk.
 */
MUST_CHECK enum status letters_page(struct session *session, const struct letter_filter *filter, bool newest_first,
                                    const char *cursor, char next[LETTER_CURSOR], void *context, letter_visit_fn *visit,
                                    struct err *err);

/* True if the text has the form of a cursor. */
bool letters_cursor_is(const char *text);

/* Visits all letters that the filter lets through, the oldest first. */
MUST_CHECK enum status letters_each(struct session *session, const struct letter_filter *filter, void *context,
                                    letter_visit_fn *visit, struct err *err);

/* Visits one letter by its id. Errors: STATUS_NOT_FOUND; else as letters_page. */
MUST_CHECK enum status letters_one(struct session *session, const char *id, void *context, letter_visit_fn *visit,
                                   struct err *err);

/* Removes a letter; `*removed`: it was there. Errors: those of the command. */
MUST_CHECK enum status letter_delete(struct session *session, const char *id, bool *removed, struct err *err);

/* The answers of lua/requeue about a letter. */
enum requeued {
    REQUEUED_GONE, /* it is not there any more */
    REQUEUED,
    REQUEUED_EMPTY, /* it holds no fields to submit again, and is kept */
    REQUEUED_CUT,   /* it holds only the beginning of its request, and is kept */
};

/* Submits a letter again. `digest` is that of lua/requeue, "" before the first call, which loads it. Shapes: entry
 * [ENTRY_ID_TEXT], the id of the new entry. Errors: those of the commands. */
MUST_CHECK enum status letter_requeue(struct session *session, const char *id, char digest[SCRIPT_DIGEST + 1],
                                      enum requeued *out, char *entry, struct err *err);

#endif
