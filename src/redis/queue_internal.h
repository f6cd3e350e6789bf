/* What the sources of the queue share: their state, and what they do for each other.
 *
 *   queue_connect.c       connections, joining, groups, tasks and their events, what an error reply leads to
 *   queue_read.c          entries: READ, READ_OWN, LIST_OWN, RECLAIM, SHED, FAIR, SWEEP
 *   queue_settle.c        requests: SETTLE, RECORD_RUN, RELEASE
 *   queue_cancel.c        cancels, among the SETTLEs and of the control stream
 *   queue_housekeeping.c  PULSE, RENEW, PROMOTE, MEND
 *   queue_look.c          what waits, for those who watch
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

/* A string may take that part of max_reply_bytes: in memory an entry is larger than its texts. */
enum { CUT_PART = 4 };

/* Capacity of the outbox: more than a worker ever has actions out, one of each kind and a few settles. */
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
    int signing_off; /* RELEASE with `last`: the class whose entries are released */
    bool more;       /* of that class */
    struct pulse pulse;
    uint64_t clients; /* PULSE: of Redis */
    bool failed;
};

/* queue_connect.c: events for the worker, delivered from the event loop. */
struct outbox {
    struct event *wake;
    struct event events[OUTBOX_EVENTS]; /* a ring, the oldest at `first` */
    unsigned first, count;
    bool disconnect_due, fatal_due;
    struct err fatal;
};

/* Whether the stream of a class is usable. */
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
    struct entry_id last;  /* XREADGROUP: of the last entry; lua/shed, fair and sweep: how far they looked */
    struct entry_id first; /* lua/shed: how far it looked from the end */
    bool more;             /* a script: a limit ended the search; XREADGROUP: the answer held more than was read */
};

/* queue_read.c: the search for consumers of dead workers. The pulse tells other workers what the housekeeper found. */
struct claims {
    size_t offset[CLASS_COUNT];                            /* of the first consumer to check, if there are many */
    unsigned judged[CLASS_COUNT];                          /* searches without a result */
    char left[CLASS_COUNT][QUEUE_FOUND_MAX / CLASS_COUNT]; /* dead consumers with entries, as words that are each
                                                              followed by a space: what this housekeeper found … */
    char found[QUEUE_FOUND_MAX];                           /* … and what another one found, by the last pulse */
    struct foreign {
        uint64_t hash, seen_ns; /* of its name; when it was seen last */
    } foreign[FOREIGN_KNOWN];   /* consumers that hold entries and are no workers */
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
    struct entry_id after; /* the next read begins behind this one */
    uint64_t malformed;    /* entries that are not logged yet */
    uint64_t logged_ns;    /* when some were logged last */
};

/* queue_housekeeping.c: what lua/mend will be told of the entries that are ahead of the clock. */
struct mend_look {
    struct command command; /* the call of lua/mend, without the entries that no answer has named yet */
    uint32_t most;          /* entries that were asked for, of each class */
    uint32_t entries;       /* named in the command */
    uint64_t bytes;         /* of those that are to move */
    bool large, left;       /* one of them is to be taken; some were seen and not named */
};

/* queue_housekeeping.c */
struct housekeeping {
    bool elected;             /* by the last pulse */
    char command[32];         /* that the last pulse brought, "": none; the next one says that it has come … */
    char coming[32];          /* … once the worker knows it: when both answers are there */
    bool tight, trickle;      /* as last logged */
    uint64_t evicts_ns;       /* when the policy was logged last; 0: it is noeviction */
    uint64_t skipped;         /* keys of a wrong type, as last logged */
    char precisions[64];      /* of the queue's workers, as last logged; "": equal, or we are not the housekeeper */
    uint64_t mending_entries; /* parked by lua/mend since it last set a stream back */
    struct mend_look look;    /* of the mend that is under way */
    uint32_t look_most;       /* entries of each class that the next one asks for; 0: one */
    struct entry_id look_behind[CLASS_COUNT]; /* it begins behind these; 0-0: with what is ahead of the clock */
    struct ended {
        uint64_t requests[CLASS_COUNT][ENDS];
        uint64_t ignored; /* of these, replies that name ignored fields */
    } ended,              /* since the last counting pulse … */
        counting;         /* … what is in that pulse, until it is answered … */
    uint64_t counted;     /* … and its number, which tells a repeated pulse; 0: none yet */
};

enum { GONE_MAX = 8 };

/* queue_housekeeping.c: workers of this host that are dead because their processes have ended. Nobody has to wait for
 * the end of their leases, or of ours, to take over what they held. */
struct neighbours {
    char pid_space[64]; /* equal for those to whom a process id means the same process; "": unknown */
    bool looks;         /* the next pulse asks for them even if this worker is not the housekeeper */
    struct gone {
        struct queue *queue;
        char name[QUEUE_WORKER_MAX];
    } gone[GONE_MAX];  /* the last ones; a ring */
    unsigned count;    /* of all so far */
    uint64_t until_ns; /* their entries are looked for */
};

enum { LOOK_COMMANDS = 13 + CLASS_COUNT };

/* queue_look.c */
struct looking {
    struct look_call {
        struct queue *queue;
        size_t which;
    } calls[LOOK_COMMANDS];
    struct queue_look next, last; /* `next` becomes `last` when all is answered */
    unsigned out;                 /* commands without an answer */
    bool failed;                  /* one of them got none */
    bool large[CLASS_COUNT];      /* the last oldest unread entry was */
    unsigned looks;
    uint64_t asked_ms; /* monotonic, the last one */
};

/* Thread: the I/O thread. */
struct queue {
    struct queue_options options;
    enum queue_state state;
    struct find_master *finder;
    const struct endpoint *endpoint; /* of the server that it found, or that a MOVED named; NULL: the only one */
    struct endpoint moved;           /* from MOVED; no host: none */
    char moved_host[256];
    bool moved_due; /* connect there next */
    struct connection *reader, *writer;
    struct event *retry;
    unsigned tries;           /* since a connection lasted */
    uint64_t up_ns, up_ended; /* when the last one came up, and how many requests had ended by then */
    enum loss loss;           /* how the last one that was up ended, if `witness` agrees */
    int witness;              /* a descriptor of the connection that did not end then; -1: none */
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
    unsigned groups_asked; /* without an answer */
    unsigned group_tries;
    struct event *group_retry;

    struct entries entries;    /* queue_read.c's, with the next two */
    bool reading[CLASS_COUNT]; /* the streams of the reader's command */
    struct claims claims;
    struct own_list own_list; /* of the last LIST_OWN, until its event */
    struct settling settling;
    struct control control;
    struct housekeeping housekeeping;
    struct neighbours neighbours;
    struct looking looking;
    uint64_t ended[CLASS_COUNT][ENDS]; /* since queue_open */
    uint64_t commands, connects;       /* likewise */
};

/* --- queue_connect.c ---------------------------------------------------------------------------------------------- */

/* The event that ends a task, without what only the answer knows; with all of its requests. */
struct event queue_task_event(struct task *task, bool failed);

/* Ends a task with an event, which is delivered from the event loop. */
void queue_task_end(struct task *task, struct event event);

/* Likewise with `failed`. */
void queue_task_fail(struct task *task);

/* Whether a command of the task was answered without an error; if not, the task has failed. */
bool queue_task_answered(struct task *task, const struct resp_value *reply, const char *what);

/* Whether an answer is an array of numbers only, at least so many. */
bool queue_has_numbers(const struct resp_value *reply, size_t least);

/* Writes the key sluice:{queue}:SUFFIX+MORE to `key`; returns `key`. */
const char *queue_key(const struct queue *queue, const char *suffix, const char *more, char key[QUEUE_KEY_MAX]);

/* Appends to a command a key as queue_key writes it. */
void queue_add_key(const struct queue *queue, struct command *command, const char *suffix, const char *more);

/* Likewise several without MORE: suffixes, then NULL. */
void queue_add_keys(const struct queue *queue, struct command *command, ...) __attribute__((sentinel));

/* Likewise a class's stream. */
void queue_add_stream(const struct queue *queue, struct command *command, enum request_class class);

/* Likewise all three streams, high first. */
void queue_add_streams(const struct queue *queue, struct command *command);

/* Likewise an entry's id, as <ms>-<sequence>. */
void queue_add_entry_id(struct command *command, struct entry_id id);

/* Sends a script call on the writer. If it cannot be sent (no connection, no memory), the queue is down and `reply` has
 * got NULL when this returns. Owns: takes the command's bytes. */
void queue_call(struct queue *queue, struct command *command, connection_reply_fn *reply, void *context);

/* Likewise a command of C strings. */
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

/* --- The others: what executes an action. Each ends its task with the event that answers it ---------------------- */

void queue_read(struct task *task);       /* new entries of all classes: XREADGROUP, on the reader */
void queue_read_own(struct task *task);   /* what is pending with us */
void queue_list_own(struct task *task);   /* the ids of what is pending with us: XPENDING */
void queue_reclaim(struct task *task);    /* entries of dead workers, given back, or set aside: lua/reclaim */
void queue_shed(struct task *task);       /* the newest unread above a cap: lua/shed */
void queue_fair(struct task *task);       /* entries of other tenants, from behind: lua/fair */
void queue_sweep(struct task *task);      /* entries that were read and are nobody's: lua/sweep */
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
 * was too large, and this entry and those behind it are left out (`more`). Errors: STATUS_BAD_INPUT (another shape),
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status entries_from_read(struct entries *entries, const struct resp_value *answer,
                                         const char *const streams[CLASS_COUNT], uint64_t most_bytes, struct err *err);

/* Likewise the answer of lua/reclaim, shed, fair or sweep; reclaim says whether the origin is RECLAIMED or RELEASED.
 * Errors: as above. */
MUST_CHECK enum status entries_from_claim(struct entries *entries, const struct resp_value *answer,
                                          enum request_class class, struct err *err);

/* Reads the id of an entry out of an answer to XRANGE, and how many bytes its fields have or had, where something was
 * dropped. False: another shape, or the entry itself was dropped. */
bool entry_weighed(const struct resp_value *from, struct entry_id *id, uint64_t *bytes);

/* Frees the arrays and leaves none. */
void entries_free(struct entries *entries);

/* --- queue_settle.c ----------------------------------------------------------------------------------------------- */

/* Redis refused, or would refuse, staged replies: for a while they travel in their settle. */
void queue_not_staged(struct queue *queue);

/* Logs how many refusals and retries were not logged one by one, and starts over. */
void queue_log_unlogged(struct queue *queue);

/* Ends one call of a task, with a verdict for each of these requests; the last call ends the task. */
void queue_answered(struct task *task, struct request_list *requests);

/* --- queue_cancel.c ----------------------------------------------------------------------------------------------- */

/* Executes a request of OUTCOME_CANCEL; ends with queue_answered, also if it could not be sent. */
void queue_cancel(struct task *task, struct request *request);

/* The queue is up: reads the control stream from now on. */
void queue_control_start(struct queue *queue);

/* The timer of the next read. */
void queue_on_control(int fd, short what, void *queue);

/* --- queue_housekeeping.c ----------------------------------------------------------------------------------------- */

/* Counts a request that ended with a code, CODE_NONE (done) or END_CANCELLED; the next pulse adds it up in Redis. */
void queue_count(struct queue *queue, enum request_class class, int end);

/* Sends the counts now: the worker leaves, and there is no next pulse. */
void queue_count_last(struct queue *queue);

/* Finds out what this process's ids mean, for the heartbeat. */
void queue_meet_neighbours(struct queue *queue);

/* The next one of those whose processes have ended, while their entries are looked for; NULL: no more. `at` begins at
 * 0. */
const char *queue_gone(const struct queue *queue, unsigned *at);

/* --- queue_look.c ------------------------------------------------------------------------------------------------- */

/* A pulse was answered: counts what waits. Units: Redis unix ms. */
void queue_look_now(struct queue *queue, uint64_t redis_ms);

/* The connection is lost: what is known is old. */
void queue_look_lost(struct queue *queue);

#endif
