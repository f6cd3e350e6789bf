/* The sources of the queue: what they know, and what they do for each other.
 *
 *   queue.c               connections, backoff, tasks and their events, what an error reply leads to
 *   queue_join.c          from connected to EVENT_CONNECTED; the groups of the three streams; REJOIN
 *   queue_read.c          entries: READ, READ_OWN, RECLAIM, SHED, FAIR, SWEEP
 *   queue_settle.c        requests: SETTLE, CHARGE, TRACK, RELEASE
 *   queue_cancel.c        cancels, among the SETTLEs and of the control stream
 *   queue_housekeeping.c  PULSE, RENEW, PROMOTE, MEND, UNBLOCK
 *
 * A function that executes an action makes a task of it, which ends with exactly one event: the answer, or `failed`
 * when the command could not be sent, was refused, or died with its connection. It returns nothing else. */
#ifndef IO_QUEUE_INTERNAL_H
#define IO_QUEUE_INTERNAL_H

#include "io/connection.h"
#include "io/dial.h"
#include "io/find_master.h"
#include "io/queue.h"
#include "io/scripts.h"

#define QUEUE_GROUP "sluice"
#define QUEUE_RELEASED "released"
#define QUEUE_AHEAD "ahead"

enum { QUEUE_PROTOCOL = 1, QUEUE_KEY_MAX = 320, QUEUE_FOUND_MAX = 1024 };

/* An entry may be so large a part of max_reply_bytes: in memory it is larger than its texts. */
enum { CUT_PART = 4 };

/* Events that may wait in the outbox: more than a worker ever has actions out, one of each kind and a few settles. */
enum { OUTBOX_EVENTS = 128 };

/* Where the queue is in its life. */
enum queue_state {
    QUEUE_IDLE,
    QUEUE_CONNECTING, /* looking for the master, both connections on their way, or the writer joining */
    QUEUE_UP,
    QUEUE_WAITING, /* for the next try */
    QUEUE_STOPPED, /* fatal */
};

/* An action that is out, until its one event. */
struct task {
    struct queue *queue;
    struct action action; /* without its requests once they are in `calls` */
    struct task *next;    /* in the list of tasks that are out */
    unsigned calls;       /* whose answer is to come */
    struct request_list answered;
    int signing_off; /* RELEASE with `last`: the class whose entries are given back; CLASS_COUNT: all were */
    bool more;       /* there are more of them */
    uint32_t asked;  /* READ_OWN: COUNT */
    struct pulse pulse;
    bool failed;
};

/* queue.c: what is told to the worker from the event loop. */
struct outbox {
    struct event *wake;
    struct event events[OUTBOX_EVENTS]; /* a ring, the oldest at `first` */
    unsigned first, count;
    bool disconnect_due, fatal_due;
    struct err fatal;
};

/* queue_join.c: one class's stream, as far as it can be served. */
struct group {
    struct queue *queue;
    enum request_class class;
    bool unusable; /* a key of another type stands there */
};

/* Entries read from one answer; zero-initialise, keeps its memory for the next answer. */
struct entries {
    struct entry *items;
    size_t count, capacity;
    struct entry_field *fields;
    size_t field_capacity;
    struct entry_id last;  /* of XREADGROUP the last entry; of lua/shed, fair and sweep how far they have looked */
    struct entry_id first; /* of lua/shed how far it has looked from the end */
    bool more; /* of a script: a limit ended the search; of XREADGROUP: the answer held more than was read */
};

/* queue_read.c: consumers that are judged; the pulse carries what is found between the workers. */
struct claims {
    size_t offset[CLASS_COUNT];                            /* of the first consumer to be judged, when there are many */
    unsigned judged[CLASS_COUNT];                          /* times that nothing was to be taken over */
    char left[CLASS_COUNT][QUEUE_FOUND_MAX / CLASS_COUNT]; /* consumers that are not alive and hold entries, with a
                                                              space behind each: what this housekeeper has found … */
    char found[QUEUE_FOUND_MAX];                           /* … and what another one has, by the last pulse */
};

/* queue_settle.c */
struct settling {
    uint64_t stage;                          /* number of the last stage key */
    uint64_t stage_from_ns;                  /* not before: Redis did not take what was staged */
    uint64_t refusals_told, refusals_untold; /* by the log, since the last pulse */
};

/* queue_cancel.c: the control stream, as far as it was looked at. */
struct control {
    struct event *timer;   /* of the next look */
    bool looking;          /* a look is out */
    bool unusable;         /* a key of another type stands there */
    bool full;             /* it brought as many entries as it may */
    bool failed;           /* some of them could not be dealt with */
    unsigned out;          /* cancels whose answer is to come */
    unsigned seen;         /* how often in a row the stream was there */
    struct entry_id after; /* the next look begins behind this one */
    uint64_t malformed;    /* entries that the log has not told of */
    uint64_t told_ns;      /* when it told of some */
};

/* queue_housekeeping.c */
struct housekeeping {
    bool elected;                    /* the housekeeper, by the last pulse */
    uint64_t used_bytes, most_bytes; /* of Redis' memory, as the last INFO said, and connections to it */
    uint32_t clients;
    bool tight, trickle;      /* as the log said last */
    uint64_t skipped;         /* keys of a wrong type, likewise */
    char precisions[64];      /* of the queue's workers, likewise; "": they agree, or another one keeps house */
    uint64_t mending_entries; /* that lua/mend has parked since it last set a stream back */
    uint64_t ended[CLASS_COUNT][ENDS];    /* requests, since the last pulse that counted some … */
    uint64_t counting[CLASS_COUNT][ENDS]; /* … those that it counts, until it is answered … */
    uint64_t counted;                     /* … and its number, by which a repeated one is known; 0: none yet */
};

/* Of the I/O thread alone. */
struct queue {
    struct queue_options options;
    enum queue_state state;
    struct resolver *resolver;
    struct find_master *finder;      /* NULL: the address names one server */
    const struct endpoint *endpoint; /* of the server that it found, or that another one named */
    struct endpoint moved;           /* a cluster says that the queue lives there; no host: it has not */
    char moved_host[256];
    bool moved_due; /* the next connect goes there */
    struct connection *reader, *writer;
    struct event *retry;
    unsigned tries;
    uint64_t random;
    struct task *tasks;
    struct outbox outbox;
    struct err refused; /* the last refusal that was logged, and when: a repeated one is not news */
    uint64_t refused_ns;

    struct scripts scripts; /* from here queue_join.c's */
    char worker[QUEUE_WORKER_MAX];
    char token[33]; /* of the alive key: who we are beside our name */
    char run_id[48];
    long long reader_id; /* CLIENT ID, for UNBLOCK */
    bool reader_ready, writer_ready;
    bool rejoining; /* joining over connections that are up */
    char streams[CLASS_COUNT][QUEUE_KEY_MAX];
    struct group groups[CLASS_COUNT];
    unsigned groups_asked; /* answers to come */
    unsigned group_tries;
    struct event *group_retry;

    struct entries entries;    /* queue_read.c's, with the next two */
    bool reading[CLASS_COUNT]; /* which streams the reader's command is about */
    struct claims claims;
    struct settling settling;
    struct control control;
    struct housekeeping housekeeping;
    struct queue_stats stats;
};

/* --- queue.c ------------------------------------------------------------------------------------------------------ */

/* Makes a task of an action. Owns: the task is the queue's until it ends. Errors: NULL when the queue is not up or
 * memory ran out; the action's failure is on its way then. */
struct task *queue_task_open(struct queue *queue, struct action *action);

/* Ends a task with `failed`; requests that were answered already go back with the others. */
void queue_task_fail(struct task *task);

/* Ends a task with an event, which may lie in it. */
void queue_task_done(struct task *task, const struct event *event);

/* Ends a task with an event that points into an answer of Redis: delivers it at once. From the event loop only. */
void queue_task_deliver(struct task *task, const struct event *event);

/* Puts an event into the outbox: it is delivered from the event loop. */
void queue_emit(struct queue *queue, const struct event *event);

/* Which source the entries that answer an action have. */
enum read_source queue_source(enum action_kind kind);

/* The key sluice:{queue}:SUFFIX MORE, written to `key`; returns `key`. */
const char *queue_key(const struct queue *queue, const char *suffix, const char *more, char key[QUEUE_KEY_MAX]);

/* Appends such a key, the key of a class's stream, or of all three, or an entry id, to a command. */
void queue_add_key(const struct queue *queue, struct command *command, const char *suffix, const char *more);
void queue_add_stream(const struct queue *queue, struct command *command, enum request_class class);
void queue_add_streams(const struct queue *queue, struct command *command);
void queue_add_entry_id(struct command *command, struct entry_id id);

/* Sends a script's call with the queue's timeout. Owns: takes the command's bytes. False: nothing was sent, no callback
 * comes. */
MUST_CHECK bool queue_call(struct queue *queue, struct command *command, connection_reply_fn *reply, void *context);

/* Likewise for the one call of a task, which fails where it cannot be sent. */
void queue_call_for(struct task *task, struct command *command, connection_reply_fn *reply);

/* Sends a command of C strings on the writer. False: nothing was sent, no callback comes. */
MUST_CHECK bool queue_command(struct queue *queue, size_t count, const char *const *words, connection_reply_fn *reply,
                              void *context);

/* Closes both connections and plans the next try, with a backoff; where `err` is STATUS_DENIED it stops. All tasks fail
 * before it returns. */
void queue_down(struct queue *queue, const struct err *err);

/* Closes both connections for good; on_fatal comes from the event loop. All tasks fail before it returns. */
void queue_stop(struct queue *queue, const struct err *err);

/* The pause before the next try: backoff_ms doubled for each try before, at most the cap; without jitter. */
uint64_t queue_backoff_ms(const struct queue *queue, unsigned tries);

/* Sets a timer of the event loop. */
void queue_wake_in(struct event *timer, uint64_t wait_ms);

/* Deals with the error reply of a command: no rights: stops the queue; cannot serve now: disconnects; the group is
 * missing: makes it again. True when `reply` was an error. */
bool queue_refused(struct queue *queue, const struct resp_value *reply, const char *what);

/* Where the reply is MOVED: lets the next connect go there. */
void queue_follow(struct queue *queue, const struct resp_value *reply);

/* --- queue_join.c ------------------------------------------------------------------------------------------------- */

/* The writer is connected: asks what the server is, loads the scripts, takes the name. */
void queue_join_writer(struct queue *queue);

/* The reader is connected: asks for its id. Whichever is later reports EVENT_CONNECTED. */
void queue_join_reader(struct queue *queue);

/* ACTION_REJOIN: takes a new name and joins with it, now or at the next connect. */
void queue_rejoin(struct queue *queue, struct action *action);

/* Makes up a new name and a new token. */
void queue_take_name(struct queue *queue);

/* The precision that this worker computes in: "f32". */
const char *queue_precision(const struct queue *queue);

/* Finds `name:value` at the beginning of a line of INFO. Shapes: value [size], written when it is there. */
bool queue_info_field(const char *info, const char *name, char *value, size_t size);

/* Makes the groups that are missing, and looks again at keys of a wrong type. */
void queue_create_groups(struct queue *queue);

/* Whether a class can be served: false while a key of another type stands where its stream belongs. */
bool queue_serves(const struct queue *queue, enum request_class class);

/* The timer of group_retry. */
void queue_on_group_retry(int fd, short what, void *queue);

/* --- queue_read.c ------------------------------------------------------------------------------------------------- */

/* Execute ACTION_READ, READ_OWN, RECLAIM, SHED, FAIR and SWEEP. */
void queue_read(struct queue *queue, struct action *action);
void queue_read_own(struct queue *queue, struct action *action);
void queue_reclaim(struct queue *queue, struct action *action);
void queue_shed(struct queue *queue, struct action *action);
void queue_fair(struct queue *queue, struct action *action);
void queue_sweep(struct queue *queue, struct action *action);

/* Reads the answer to XREADGROUP (nil: no entries), whose strings it points into; `streams` are the names of the
 * classes' streams. An entry of which something was dropped (RESP_CUT) is `oversize` when it is larger than
 * `most_bytes`, or the first of all; otherwise the answer was too large, and that entry and all behind it are left out
 * (`more`). Errors: STATUS_BAD_INPUT (not of the shape of such an answer), STATUS_NO_MEMORY. */
MUST_CHECK enum status entries_from_read(struct entries *entries, const struct resp_value *answer,
                                         const char *const streams[CLASS_COUNT], enum entry_origin origin,
                                         uint64_t most_bytes, struct err *err);

/* Likewise the answer of lua/reclaim, shed, fair or sweep. The origin is as the script says: RECLAIMED or RELEASED.
 * Errors: as above. */
MUST_CHECK enum status entries_from_claim(struct entries *entries, const struct resp_value *answer,
                                          enum request_class class, struct err *err);

/* Frees the arrays and leaves none. */
void entries_free(struct entries *entries);

/* --- queue_settle.c ----------------------------------------------------------------------------------------------- */

/* Execute ACTION_SETTLE, CHARGE, TRACK and RELEASE. */
void queue_settle(struct queue *queue, struct action *action);
void queue_record_run(struct queue *queue, struct action *action);
void queue_track(struct queue *queue, struct action *action);
void queue_release(struct queue *queue, struct action *action);

/* Redis does not take what is staged: for a while replies go with their settle again. */
void queue_not_staged(struct queue *queue);

/* Logs how many refusals were not logged one by one; from now on some are again. */
void queue_tell_refusals(struct queue *queue);

/* One of a task's calls is over, with a verdict for each of these requests; the last one answers the task. */
void queue_answered(struct task *task, struct request_list *requests);

/* --- queue_cancel.c ----------------------------------------------------------------------------------------------- */

/* Makes the calls for one request of OUTCOME_CANCEL; ends with queue_answered, also when it could not be sent. */
void queue_cancel(struct task *task, struct request *request);

/* The queue is up: looks at the control stream from now on. */
void queue_control_start(struct queue *queue);

/* The timer of the next look. */
void queue_on_control(int fd, short what, void *queue);

/* --- queue_housekeeping.c ----------------------------------------------------------------------------------------- */

/* Execute ACTION_RENEW, PROMOTE, MEND, PULSE, and ACTION_UNBLOCK, which no event answers: where it fails, the read
 * blocks until its time is over. */
void queue_renew(struct queue *queue, struct action *action);
void queue_promote(struct queue *queue, struct action *action);
void queue_mend(struct queue *queue, struct action *action);
void queue_pulse(struct queue *queue, struct action *action);
void queue_unblock(struct queue *queue, struct action *action);

/* A request has ended, with a code, CODE_NONE (done) or END_CANCELLED: counted in Redis with the next pulse. */
void queue_count(struct queue *queue, enum request_class class, int end);

/* Has what was not counted yet counted ahead of what is sent next: the worker leaves, and there is no next pulse. */
void queue_count_last(struct queue *queue);

#endif
