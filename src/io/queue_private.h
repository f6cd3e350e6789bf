/* What the files of the queue share: its state, the tasks that are out, and the outbox of events.
 *
 *   queue.c          state, connections, backoff         queue_refused.c  what an error reply leads to
 *   queue_task.c     keys, tasks, outbox
 *   queue_join.c     from connected to EVENT_CONNECTED   queue_groups.c   the groups of the three streams
 *   queue_read.c     READ, READ_OWN                      queue_claim.c    RECLAIM, SHED, FAIR, SWEEP
 *   queue_deliver.c  SETTLE, CHARGE, TRACK               queue_settle.c, queue_defer.c   the words of their scripts
 *   queue_stage.c    large replies, ahead of their SETTLE
 *   queue_cancel.c   cancels among the SETTLEs           queue_release.c  RELEASE
 *   queue_lease.c    RENEW, PROMOTE, UNBLOCK             queue_pulse.c    PULSE */
#ifndef IO_QUEUE_PRIVATE_H
#define IO_QUEUE_PRIVATE_H

#include "io/entries.h"
#include "io/link.h"
#include "io/queue.h"
#include "io/resolver.h"
#include "io/scripts.h"
#include "io/seek.h"

#define QUEUE_GROUP "sluice"
#define QUEUE_RELEASED "released"

enum { QUEUE_PROTOCOL = 1, QUEUE_KEY_MAX = 320, READ_GRACE_MS = 2000 };

enum queue_state {
    QUEUE_IDLE,
    QUEUE_CONNECTING, /* seeking the master, both connections on their way, or the writer joining */
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
    uint32_t asked; /* READ_OWN: COUNT */
    struct pulse pulse;
    bool failed;
};

/* One class's stream, as far as it can be served. */
struct group {
    struct queue *queue;
    enum request_class class;
    bool unusable; /* a key of another type stands there */
};

/* Our own pending entries of one class while they are read after a reconnect. */
struct own {
    uint32_t count;         /* COUNT, halved when an answer was too large; 0: as asked */
    struct entry_id trying; /* which one is being read, where count is 1 */
    struct entry_id large;  /* it was too large even alone */
};

/* Events that may wait in the outbox: more than a worker ever has actions out, one of each kind and a few settles. */
enum { OUTBOX_EVENTS = 128 };

struct queue {
    struct queue_options options;
    enum queue_state state;
    struct resolver *resolver;
    struct seek *seek;         /* NULL: the address names one server */
    const struct place *place; /* of the server that it found, or that another one named */
    struct place moved;        /* a cluster says that the queue lives there; no host: it has not */
    char moved_host[256];
    bool moved_due; /* the next connect goes there */
    struct link *reader, *writer;
    struct scripts scripts;
    char worker[QUEUE_WORKER_MAX];
    char token[33]; /* of the alive key: who we are beside our name */
    char run_id[48];
    long long reader_id; /* CLIENT ID, for UNBLOCK */
    bool reader_ready, writer_ready;
    bool rejoining; /* joining over connections that are up */

    struct event *retry;
    unsigned tries;
    uint64_t random;

    struct task *tasks;
    struct event waiting[OUTBOX_EVENTS]; /* a ring, the oldest at `first` */
    unsigned first, count;
    struct event *outbox;
    bool disconnect_due, fatal_due;
    struct err fatal;
    struct err refused; /* the last refusal that was logged, and when: a repeated one is not news */
    uint64_t refused_ns;

    char streams[CLASS_COUNT][QUEUE_KEY_MAX];
    struct group groups[CLASS_COUNT];
    unsigned groups_asked; /* answers to come */
    unsigned group_tries;
    struct event *group_retry;

    struct entries entries;
    struct own own[CLASS_COUNT];
    bool reading[CLASS_COUNT];        /* which streams the reader's command is about */
    size_t judge_offset[CLASS_COUNT]; /* of the first consumer to be judged, when there are many */
    unsigned judged[CLASS_COUNT];     /* times that nothing was to be taken over */

    uint64_t staged;        /* number of the last stage key */
    uint64_t stage_from_ns; /* not before: Redis did not take what was staged */

    bool full;              /* Redis is, by what a pulse has seen */
    uint64_t pulse_skipped; /* keys of a wrong type, likewise */
    struct queue_stats stats;
};

/* queue_task.c */
enum read_source queue_source(enum action_kind kind); /* of the actions that are answered with entries */
struct task *queue_task_open(struct queue *queue, struct action *action);
void queue_task_fail(struct task *task);                            /* answers it with `failed` */
void queue_task_done(struct task *task, const struct event *event); /* frees it, and the event goes out */
void queue_task_end(struct task *task);                             /* frees it without an event */
void queue_emit(struct queue *queue, const struct event *event);
void queue_deliver_now(struct queue *queue, const struct event *event); /* for events that point into an answer */
void queue_on_outbox(int fd, short what, void *queue);                  /* delivers what waits */

/* The names of keys, built into `key`. */
const char *queue_key(const struct queue *queue, const char *suffix, const char *more, char key[QUEUE_KEY_MAX]);
const char *queue_stream(const struct queue *queue, enum request_class class);
void queue_add_key(const struct queue *queue, struct command *command, const char *suffix, const char *more);
void queue_add_stream(const struct queue *queue, struct command *command, enum request_class class);
void queue_add_entry_id(struct command *command, struct entry_id id);
MUST_CHECK bool queue_call(struct queue *queue, struct command *command, link_reply_fn *reply, void *context);

/* queue.c */
void queue_down(struct queue *queue, const struct err *err);
void queue_stop(struct queue *queue, const struct err *err);

/* queue_refused.c */

/* Deals with the error reply of a command: no rights: stops the queue; cannot serve now: disconnects; the group is
 * missing: makes it again. True when `reply` was an error. */
bool queue_refused(struct queue *queue, const struct resp_value *reply, const char *what);

/* Where the reply is MOVED: lets the next connect go there. */
void queue_follow(struct queue *queue, const struct resp_value *reply);

/* queue_join.c */
void queue_join_writer(struct queue *queue); /* the writer is connected */
void queue_join_reader(struct queue *queue); /* the reader is connected */
void queue_rejoin(struct queue *queue);
void queue_take_name(struct queue *queue);

/* Finds `name:value` at the beginning of a line of INFO. */
bool queue_info_field(const char *info, const char *name, char *value, size_t size);

/* queue_groups.c */
void queue_create_groups(struct queue *queue);
bool queue_serves(const struct queue *queue, enum request_class class); /* false: another type stands at its key */
void queue_on_group_retry(int fd, short what, void *queue);

/* queue_read.c */
void queue_read(struct queue *queue, struct action *action);
void queue_read_own(struct queue *queue, struct action *action);
void queue_read_too_large(struct queue *queue);               /* the reader's answer was above the cap */
void queue_give_entries(struct task *task);                   /* answers it with what queue->entries holds */
void queue_give_nothing(struct task *task);                   /* answers it with no entries */
void queue_give_up(struct task *task, const struct err *err); /* an answer of a shape that no Redis gives */

/* queue_claim.c */
void queue_reclaim(struct queue *queue, struct action *action);
void queue_shed(struct queue *queue, struct action *action);
void queue_fair(struct queue *queue, struct action *action);
void queue_sweep(struct queue *queue, struct action *action);

/* queue_deliver.c */
void queue_settle(struct queue *queue, struct action *action);
void queue_charge(struct queue *queue, struct action *action);
void queue_track(struct queue *queue, struct action *action);
void queue_answered(struct task *task, struct request_list *requests); /* one of the task's calls is over */

/* queue_cancel.c: the call for one OUTCOME_CANCEL. */
void queue_cancel(struct task *task, struct request *request);

/* queue_settle.c, queue_defer.c: a whole script call for these requests, which are of one class. */
void queue_add_fields(const struct queue *queue, struct command *command, const struct request *request);
void queue_write_settle(const struct queue *queue, const struct request_list *requests, struct command *command);
void queue_write_defer(const struct queue *queue, const struct request_list *requests, struct command *command);
void queue_write_charge(const struct queue *queue, const struct request_list *requests, struct command *command);
void queue_write_track(const struct queue *queue, const struct request_list *requests, struct command *command);

/* queue_stage.c: sends the large ones of these replies, so that the settle that follows need not carry them; those have
 * `staged` set. What Redis refuses is found out by the script. False: they could not be sent, and the queue is down. */
bool queue_stage(struct queue *queue, const struct request_list *requests);
void queue_add_stage_key(const struct queue *queue, struct command *command, const struct request *request);
void queue_not_staged(struct queue *queue); /* the script has missed a stage key */

/* queue_release.c */
void queue_release(struct queue *queue, struct action *action);

/* queue_lease.c */
void queue_renew(struct queue *queue, struct action *action);
void queue_promote(struct queue *queue, struct action *action);
void queue_unblock(struct queue *queue);

/* queue_pulse.c */
void queue_pulse(struct queue *queue, struct action *action);

#endif
