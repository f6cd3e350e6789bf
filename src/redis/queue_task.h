/* The part of a queue that all of its files use: its state and its parts, keys and calls, tasks and their events.
 *
 * An action becomes a task, which ends with exactly one event: the answer, or `failed` when a command could not be
 * sent, was refused, or died with its connection.
 *
 *   queue             the actions, each with the function that executes it; opening and closing
 *   queue_join        from two connections to EVENT_CONNECTED; groups; error replies
 *   queue_link        the two connections: opened, lost, opened again
 *   queue_pulse       PULSE
 *   queue_lease       RENEW, RELEASE
 *   queue_chores      PROMOTE, MEND
 *   queue_settle      SETTLE, RECORD_RUN
 *   queue_tokens      texts on their way to streams of tokens
 *   queue_cancel      cancels, among the SETTLEs and of the control stream
 *   queue_read        READ, READ_OWN, LIST_OWN, RECLAIM, SHED, FAIR, SWEEP
 *   queue_look        counts for monitoring
 *   queue_neighbours  workers of this host that have died
 *   queue_ends        how many requests have ended
 *   queue_entries     entries out of answers
 *
 * A file includes only files below it here. A lost connection and an error reply go up as events: on_lost calls
 * queue_link, and on_refused calls queue_join. */
#ifndef REDIS_QUEUE_TASK_H
#define REDIS_QUEUE_TASK_H

#include "redis/connection.h"
#include "redis/queue_names.h"
#include "redis/queue_options.h"
#include "redis/scripts.h"

#define QUEUE_GROUP "sluice"
#define QUEUE_RELEASED "released"
#define QUEUE_AHEAD "ahead"

enum { QUEUE_PROTOCOL = 1, QUEUE_KEY_MAX = 320 };

/* A string may take 1/CUT_PART of max_reply_bytes: in memory an entry is larger than its texts. */
enum { CUT_PART = 4 };

/* Capacity of the outbox: more than the actions that a worker ever has out, which are one of each kind and a few
 * settles. */
enum { OUTBOX_EVENTS = 128 };

enum queue_state {
    QUEUE_IDLE,
    QUEUE_CONNECTING, /* looking for the master, both connections on their way, or the writer joining */
    QUEUE_UP,
    QUEUE_WAITING, /* for the next attempt */
    QUEUE_STOPPED, /* fatal */
};

/* An action that is out: from its execution to its event. */
struct task {
    struct queue *queue;
    struct action action;    /* without its requests once they are in calls */
    enum event_kind event;   /* that ends it */
    enum read_source source; /* of EVENT_ENTRIES */
    unsigned calls;          /* without an answer yet */
    struct request_list answered;
    int signing_off; /* RELEASE with `last`: the class whose entries are being released */
    bool more;       /* that class has more entries */
    struct pulse pulse;
    uint64_t clients; /* PULSE: the number of Redis' clients */
    bool failed;
};

/* Events for the worker, delivered from the event loop. */
struct outbox {
    struct event *wake;
    struct event events[OUTBOX_EVENTS]; /* a ring, the oldest at `first` */
    unsigned first, count;
    bool disconnect_due, fatal_due;
    struct err fatal;
};

/* Thread: the I/O thread. */
struct queue {
    struct queue_options options;
    enum queue_state state;
    struct connection *reader, *writer;
    bool reader_ready, writer_ready; /* how far it has joined; false without connections */
    struct scripts scripts;
    struct outbox outbox;
    struct own_list own_list; /* of the last LIST_OWN, until its event */
    uint64_t commands;        /* sent since queue_open */
    char streams[CLASS_COUNT][QUEUE_KEY_MAX];
    bool unusable[CLASS_COUNT]; /* a key of another type is in the place of the stream */
    char worker[QUEUE_WORKER_MAX];
    char token[33]; /* value of the alive key: identifies this process */
    char order[32]; /* for this worker, from a pulse, "": none; the next pulse confirms it */
    bool elected;   /* the last pulse said that this worker is the housekeeper */

    void (*on_lost)(struct queue *queue, const struct err *err);
    void (*on_refused)(struct queue *queue, const struct resp_value *reply, const struct err *err);

    /* Each belongs to the file of its name, which alone writes to it. */
    struct queue_link *link;
    struct queue_joining *joining;
    struct queue_reads *reads;
    struct queue_settling *settling;
    struct queue_tokens *tokens;
    struct queue_control *control;
    struct queue_pulsing *pulsing;
    struct queue_mending *mending;
    struct queue_neighbours *neighbours;
    struct queue_looking *looking;
    struct queue_ends *ends;
};

/* --- Keys and calls ----------------------------------------------------------------------------------------------- */

/* Writes the key sluice:{queue}:SUFFIX+MORE to `key`; returns `key`. */
const char *queue_key(const struct queue *queue, const char *suffix, const char *more, char key[QUEUE_KEY_MAX]);

/* Appends to a command a key as queue_key writes it. */
void queue_add_key(const struct queue *queue, struct command *command, const char *suffix, const char *more);

/* Appends several keys without MORE: suffixes, then NULL. */
void queue_add_keys(const struct queue *queue, struct command *command, ...) __attribute__((sentinel));

/* Appends a class's stream. */
void queue_add_stream(const struct queue *queue, struct command *command, enum request_class class);

/* Appends all three streams, high first. */
void queue_add_streams(const struct queue *queue, struct command *command);

/* Appends an entry's id, as <ms>-<sequence>. */
void queue_add_entry_id(struct command *command, struct entry_id id);

/* Sends a script call on the writer. If it cannot be sent (no connection, no memory), the queue is down and `reply` has
 * got NULL when this returns. Owns: takes the command's bytes. */
void queue_call(struct queue *queue, struct command *command, connection_reply_fn *reply, void *context);

/* The same for a command of C strings. */
void queue_command(struct queue *queue, size_t count, const char *const *words, connection_reply_fn *reply,
                   void *context);

/* The same on one of the connections. */
void queue_command_on(struct queue *queue, struct connection *connection, size_t count, const char *const *words,
                      connection_reply_fn *reply, void *context);

/* True if an answer is an array of `least` or more items, all of them numbers. */
bool queue_has_numbers(const struct resp_value *reply, size_t least);

/* An answer as a number; 0 for a negative one, and for anything else. */
uint64_t queue_number(const struct resp_value *reply);

/* Starts a timer of the event loop. */
void queue_wake_in(struct event *timer, uint64_t wait_ms);

/* --- Errors ------------------------------------------------------------------------------------------------------- */

/* Closes both connections and schedules the next attempt, with a backoff; STATUS_DENIED stops the queue. All tasks that
 * wait for an answer fail before it returns. */
void queue_down(struct queue *queue, const struct err *err);

/* Handles the error reply of a command: a missing right stops the queue; if Redis cannot serve now, it disconnects; a
 * missing group is made again. True if `reply` is an error. */
bool queue_refused(struct queue *queue, const struct resp_value *reply, const char *what);

/* False while a key of another type is in the place of the class's stream. */
bool queue_serves(const struct queue *queue, enum request_class class);

/* --- Tasks and events --------------------------------------------------------------------------------------------- */

/* Makes the outbox deliver its events from the event loop. */
void queue_on_outbox(int fd, short what, void *queue);

/* Puts an event into the outbox. */
void queue_emit(struct queue *queue, const struct event *event);

/* The event that ends a task, with all of its requests, but without the values that only the answer has. */
struct event queue_task_event(struct task *task, bool failed);

/* Ends a task with an event, which is delivered from the event loop. */
void queue_task_end(struct task *task, struct event event);

/* Ends a task with a `failed` event. */
void queue_task_fail(struct task *task);

/* True if a command of the task was answered without an error; otherwise the task has failed. */
bool queue_task_answered(struct task *task, const struct resp_value *reply, const char *what);

/* Ends one call of a task, with a verdict for each of these requests; the last call ends the task. */
void queue_answered(struct task *task, struct request_list *requests);

#endif
