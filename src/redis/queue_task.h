/* The state that the sources of the queue share, and the functions that they offer each other.
 *
 *   queue.c       connections, joining, groups, tasks and their events, error replies
 *   queue_read.c          entries: READ, READ_OWN, LIST_OWN, RECLAIM, SHED, FAIR, SWEEP
 *   queue_settle.c        requests: SETTLE, RECORD_RUN, RELEASE
 *   queue_cancel.c        cancels, among the SETTLEs and of the control stream
 *   queue_pulse.c  PULSE, RENEW, PROMOTE, MEND
 *   queue_look.c          counts for monitoring
 *
 * An action becomes a task, which ends with exactly one event: the answer, or `failed` when a command could not be
 * sent, was refused, or died with its connection. */
#ifndef REDIS_QUEUE_INTERNAL_H
#define REDIS_QUEUE_INTERNAL_H

#include "redis/connection.h"
#include "redis/dial.h"
#include "redis/find_master.h"
#include "redis/queue.h"
#include "redis/scripts.h"

#define QUEUE_GROUP "sluice"
#define QUEUE_RELEASED "released"
#define QUEUE_AHEAD "ahead"

enum { QUEUE_PROTOCOL = 1, QUEUE_KEY_MAX = 320, QUEUE_FOUND_MAX = 1024, FOREIGN_KNOWN = 64 };

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
    struct action action; /* without its requests once they are in calls */
    unsigned calls;       /* without an answer yet */
    struct request_list answered;
    int signing_off; /* RELEASE with `last`: the class whose entries are being released */
    bool more;       /* that class has more entries */
    struct pulse pulse;
    uint64_t clients; /* PULSE: the number of Redis' clients */
    bool failed;
};

/* queue.c: events for the worker, delivered from the event loop. */
struct outbox {
    struct event *wake;
    struct event events[OUTBOX_EVENTS]; /* a ring, the oldest at `first` */
    unsigned first, count;
    bool disconnect_due, fatal_due;
    struct err fatal;
};

/* The consumer group of a class, and whether its stream is usable. */
struct group {
    struct queue *queue;
    enum request_class class;
    bool unusable; /* a key of another type is there */
};

/* Entries of one answer, whose strings they point into. Zero-initialise; the arrays are kept for the next answer. */
struct entries {
    struct entry *items;
    size_t count, capacity;
    struct entry_field *fields;
    size_t field_capacity;
    struct entry_id last;  /* XREADGROUP: the last entry; lua/shed, fair and sweep: how far they looked */
    struct entry_id first; /* lua/shed: how far it looked from the end */
    bool more;             /* a script: a limit ended the search; XREADGROUP: the answer held more than was read */
};

/* queue_read.c: the search for consumers of dead workers. The pulse passes on to other workers the ones that the
 * housekeeper found. */
struct claims {
    size_t offset[CLASS_COUNT];                            /* the first consumer to check, if there are many */
    unsigned judged[CLASS_COUNT];                          /* searches without a result */
    char left[CLASS_COUNT][QUEUE_FOUND_MAX / CLASS_COUNT]; /* dead consumers with entries, as words that are each
                                                              followed by a space: what this housekeeper found … */
    char found[QUEUE_FOUND_MAX];                           /* … and what another one found, by the last pulse */
    struct foreign {
        uint64_t hash, seen_ns; /* the hash of its name; when it was seen last */
    } foreign[FOREIGN_KNOWN];   /* consumers that hold entries but are no workers */
};

/* queue_settle.c */
struct settling {
    uint64_t stage_from_ns; /* no staging before this time: Redis refused it */
    struct logged {
        uint64_t lines, unlogged; /* since the last pulse */
    } refusals, retries;
    uint64_t ignored_ns; /* when ignored fields were logged last; 0: never */
};

/* queue_cancel.c: reading of the control stream. */
struct control {
    struct event *timer;   /* of the next read */
    bool busy;             /* a command is out */
    bool unusable;         /* a key of another type is there */
    bool full;             /* the last read brought as many entries as it may */
    bool failed;           /* some cancels could not be sent */
    unsigned out;          /* cancels without an answer */
    unsigned seen;         /* how often in a row the stream existed */
    struct entry_id after; /* the next read begins after this one */
    uint64_t malformed;    /* entries that are not logged yet */
    uint64_t logged_ns;    /* when some were logged last */
};

/* queue_pulse.c: the entries ahead of the clock that a call of lua/mend names. */
struct mend_look {
    struct command command; /* the call of lua/mend, without the entries that no answer has named yet */
    uint32_t most;          /* entries of each class that were asked for */
    uint32_t entries;       /* named in the command */
    uint64_t bytes;         /* of the entries that it moves */
    bool large, left;       /* it takes a large one; some were seen but not named */
};

/* queue_pulse.c */
struct housekeeping {
    bool elected;             /* by the last pulse */
    char command[32];         /* an order that the last pulse brought, "": none; the next one confirms it … */
    char coming[32];          /* … after the worker got it from here, when both answers had come */
    bool tight, trickle;      /* as last logged */
    uint64_t evicts_ns;       /* when the policy was logged last; 0: it is noeviction */
    uint64_t skipped;         /* keys of a wrong type, as last logged */
    char precisions[64];      /* of the queue's workers, as last logged; "": equal, or we are not the housekeeper */
    uint64_t mending_entries; /* entries that lua/mend has parked since it last set a stream back */
    struct mend_look look;    /* of the mend in progress */
    uint32_t look_most;       /* entries of each class that the next look asks for; 0: one */
    struct entry_id look_behind[CLASS_COUNT]; /* the next look begins after these; 0-0: with the first ahead */
    struct ended {
        uint64_t requests[CLASS_COUNT][ENDS];
        uint64_t ignored; /* of these, replies that name ignored fields */
    } ended,              /* since the last counting pulse … */
        counting;         /* … in that pulse, until it is answered … */
    uint64_t counted;     /* … and its number, by which a repeated pulse is known; 0: none yet */
};

enum { GONE_MAX = 8 };

/* queue_pulse.c: workers of this host whose processes have ended. Their entries can be taken over without
 * waiting for their leases, or for ours, to expire. */
struct neighbours {
    char pid_space[64]; /* equal for workers to which a process id means the same process; "": unknown */
    bool looks;         /* the next pulse asks for neighbours even if this worker is not the housekeeper */
    struct gone {
        struct queue *queue;
        char name[QUEUE_WORKER_MAX];
    } gone[GONE_MAX];  /* the last ones; a ring */
    unsigned count;    /* all so far */
    uint64_t until_ns; /* until then their entries are looked for */
};

enum { LOOK_COMMANDS = 13 + CLASS_COUNT };

/* queue_look.c */
struct looking {
    struct look_call {
        struct queue *queue;
        size_t which;
    } calls[LOOK_COMMANDS];
    struct queue_look next, last; /* `next` becomes `last` when all commands are answered */
    unsigned out;                 /* commands without an answer */
    bool failed;                  /* one of them got no answer */
    bool large[CLASS_COUNT];      /* the oldest unread entry was large at the last look */
    unsigned looks;
    uint64_t asked_ms; /* monotonic; when it asked last */
};

/* Thread: the I/O thread. */
struct queue {
    struct queue_options options;
    enum queue_state state;
    struct find_master *finder;
    const struct endpoint *endpoint; /* the server that was found, or that a MOVED named; NULL: the only one */
    struct endpoint moved;           /* from MOVED; no host: none */
    char moved_host[256];
    bool moved_due; /* connect there next */
    struct connection *reader, *writer;
    struct event *retry;
    unsigned tries;           /* attempts since a connection that lasted */
    uint64_t up_ns, up_ended; /* when the last connection came up, and how many requests had ended by then */
    enum loss loss;           /* how the last connection that was up ended, unless `witness` disproves it */
    int witness;              /* a descriptor of the other connection; -1: none */
    uint64_t random;
    struct outbox outbox;
    struct err trouble; /* why it went down last */
    struct err refused; /* the last refusal in the log, and when: repeats are not logged */
    uint64_t refused_ns;

    struct scripts scripts;
    char worker[QUEUE_WORKER_MAX];
    char token[33]; /* value of the alive key: identifies this process */
    char run_id[48];
    long long reader_id; /* CLIENT ID, for UNBLOCK */
    bool reader_ready, writer_ready;
    char streams[CLASS_COUNT][QUEUE_KEY_MAX];
    struct group groups[CLASS_COUNT];
    unsigned groups_asked; /* calls without an answer */
    unsigned group_tries;
    struct event *group_retry;

    struct entries entries;    /* this and the next two are queue_read.c's */
    bool reading[CLASS_COUNT]; /* the streams of the reader's command */
    struct claims claims;
    struct own_list own_list; /* of the last LIST_OWN, until its event */
    struct settling settling;
    struct control control;
    struct housekeeping housekeeping;
    struct neighbours neighbours;
    struct looking looking;
    uint64_t ended[CLASS_COUNT][ENDS]; /* since queue_open */
    uint64_t commands, connects;       /* since queue_open */
};

/* --- queue.c ---------------------------------------------------------------------------------------------- */

/* The event that ends a task, with all of its requests, but without the values that only the answer has. */
struct event queue_task_event(struct task *task, bool failed);

/* Ends a task with an event, which is delivered from the event loop. */
void queue_task_end(struct task *task, struct event event);

/* Ends a task with a `failed` event. */
void queue_task_fail(struct task *task);

/* True if a command of the task was answered without an error; otherwise the task has failed. */
bool queue_task_answered(struct task *task, const struct resp_value *reply, const char *what);

/* True if an answer is an array of `least` or more items, all of them numbers. */
bool queue_has_numbers(const struct resp_value *reply, size_t least);

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

/* Closes both connections and schedules the next attempt, with a backoff; STATUS_DENIED stops the queue. All tasks that
 * wait for an answer fail before it returns. */
void queue_down(struct queue *queue, const struct err *err);

/* Starts a timer of the event loop. */
void queue_wake_in(struct event *timer, uint64_t wait_ms);

/* Handles the error reply of a command: a missing right stops the queue; if Redis cannot serve now, it disconnects; a
 * missing group is made again. True if `reply` is an error. */
bool queue_refused(struct queue *queue, const struct resp_value *reply, const char *what);

/* False while a key of another type is in the place of the class's stream. */
bool queue_serves(const struct queue *queue, enum request_class class);

/* --- The others execute one action each, and end its task with the event that answers it ------------------------- */

void queue_read(struct task *task);       /* new entries of all classes: XREADGROUP, on the reader */
void queue_read_own(struct task *task);   /* the entries that are pending with us */
void queue_list_own(struct task *task);   /* the ids of those: XPENDING */
void queue_reclaim(struct task *task);    /* entries of dead workers, entries given back or set aside: lua/reclaim */
void queue_shed(struct task *task);       /* the newest unread above a cap: lua/shed */
void queue_fair(struct task *task);       /* entries of other tenants, from further back: lua/fair */
void queue_sweep(struct task *task);      /* entries that were read but that nobody has: lua/sweep */
void queue_settle(struct task *task);     /* replies, errors, retries, cancels: lua/settle, defer, cancel */
void queue_record_run(struct task *task); /* runs of suspects, before they start: lua/charge */
void queue_release(struct task *task);    /* gives entries back; signs the worker off: lua/release */
void queue_renew(struct task *task);      /* the lease: lua/renew */
void queue_promote(struct task *task);    /* parked requests that are due: lua/promote */
void queue_mend(struct task *task);       /* ids ahead of the clock: lua/mend */
void queue_pulse(struct task *task);      /* heartbeat, counters, orders, election: lua/pulse */

/* --- queue_read.c ------------------------------------------------------------------------------------------------- */

/* Reads the answer to XREADGROUP (nil: no entries); `streams` are the streams of the classes. An entry of which
 * something was dropped (RESP_CUT) is `oversize` if it is larger than `most_bytes`, or the first; otherwise the answer
 * was too large, and this entry and those after it are left out (`more`). Errors: STATUS_BAD_INPUT (another shape),
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status entries_from_read(struct entries *entries, const struct resp_value *answer,
                                         const char *const streams[CLASS_COUNT], uint64_t most_bytes, struct err *err);

/* Reads the answer of lua/reclaim, shed, fair or sweep; reclaim says whether the origin is RECLAIMED or RELEASED.
 * Errors: as entries_from_read. */
MUST_CHECK enum status entries_from_claim(struct entries *entries, const struct resp_value *answer,
                                          enum request_class class, struct err *err);

/* Reads an entry of an answer to XRANGE: its id, and the bytes of its fields, including those that were dropped. False:
 * another shape, or the entry itself was dropped. */
bool entry_weighed(const struct resp_value *from, struct entry_id *id, uint64_t *bytes);

/* Frees the arrays and leaves none. */
void entries_free(struct entries *entries);

/* --- queue_settle.c ----------------------------------------------------------------------------------------------- */

/* Call it when Redis refused, or would refuse, staged replies: for a while replies travel in their settle. */
void queue_not_staged(struct queue *queue);

/* Logs how many refusals and retries were not logged one by one, and starts over. */
void queue_log_unlogged(struct queue *queue);

/* Ends one call of a task, with a verdict for each of these requests; the last call ends the task. */
void queue_answered(struct task *task, struct request_list *requests);

/* --- queue_cancel.c ----------------------------------------------------------------------------------------------- */

/* Executes a request of OUTCOME_CANCEL; ends with queue_answered, also if it could not be sent. */
void queue_cancel(struct task *task, struct request *request);

/* Begins to read the control stream, when the queue is up. */
void queue_control_start(struct queue *queue);

/* The timer's callback: the next read. */
void queue_on_control(int fd, short what, void *queue);

/* --- queue_pulse.c ----------------------------------------------------------------------------------------- */

/* Counts a request that ended with a code, CODE_NONE (done) or END_CANCELLED; the next pulse adds it up in Redis. */
void queue_count(struct queue *queue, enum request_class class, int end);

/* Sends the counts now, because the worker leaves and there is no next pulse. */
void queue_count_last(struct queue *queue);

/* Finds out what this process's ids mean, for the heartbeat. */
void queue_meet_neighbours(struct queue *queue);

/* The next neighbour whose process has ended, while its entries are looked for; NULL: no more. `at` begins at 0. */
const char *queue_gone(const struct queue *queue, unsigned *at);

/* --- queue_look.c ------------------------------------------------------------------------------------------------- */

/* Counts the queue's requests, after the answer to a pulse. Units: Redis unix ms. */
void queue_look_now(struct queue *queue, uint64_t redis_ms);

/* Marks the counts as unknown, when the connection is lost. */
void queue_look_lost(struct queue *queue);

#endif
