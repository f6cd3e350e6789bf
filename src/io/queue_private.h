/* What a queue knows: the state that its files share, and the tasks that are out. What they do is in queue_parts.h. */
#ifndef IO_QUEUE_PRIVATE_H
#define IO_QUEUE_PRIVATE_H

#include "io/connection.h"
#include "io/dial.h"
#include "io/entries.h"
#include "io/find_master.h"
#include "io/queue.h"
#include "io/scripts.h"

#define QUEUE_GROUP "sluice"
#define QUEUE_RELEASED "released"
#define QUEUE_AHEAD "ahead"

enum { QUEUE_PROTOCOL = 1, QUEUE_KEY_MAX = 320, READ_GRACE_MS = 2000, QUEUE_FOUND_MAX = 1024 };

/* Where the queue is in its life. */
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
    int signing_off; /* RELEASE with `last`: the class whose entries are given back; CLASS_COUNT: all were */
    bool more;       /* there are more of them */
    uint32_t asked;  /* READ_OWN: COUNT */
    struct pulse pulse;
    bool failed;
};

/* One class's stream, as far as it can be served. */
struct group {
    struct queue *queue;
    enum request_class class;
    bool unusable; /* a key of another type stands there */
};

/* An entry may be so large a part of max_reply_bytes: in memory it is larger than its texts. */
enum { CUT_PART = 4 };

/* The control stream, as far as it was looked at. */
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

/* Events that may wait in the outbox: more than a worker ever has actions out, one of each kind and a few settles. */
enum { OUTBOX_EVENTS = 128 };

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
    struct control control;
    bool housekeeper;                                      /* by the last pulse */
    bool reading[CLASS_COUNT];                             /* which streams the reader's command is about */
    size_t judge_offset[CLASS_COUNT];                      /* of the first consumer to be judged, when there are many */
    unsigned judged[CLASS_COUNT];                          /* times that nothing was to be taken over */
    char left[CLASS_COUNT][QUEUE_FOUND_MAX / CLASS_COUNT]; /* consumers that are not alive and hold entries, with a
                                                              space behind each: what this housekeeper has found … */
    char found[QUEUE_FOUND_MAX];                           /* … and what another one has, by the last pulse */

    uint64_t staged;        /* number of the last stage key */
    uint64_t stage_from_ns; /* not before: Redis did not take what was staged */

    uint64_t used_bytes, most_bytes; /* of Redis' memory, as the last INFO said, and connections to it */
    uint32_t clients;
    bool tight, trickle;      /* as the log said last */
    uint64_t pulse_skipped;   /* keys of a wrong type, likewise */
    char precisions[64];      /* of the queue's workers, likewise; "": they agree, or another one keeps house */
    uint64_t mending_entries; /* that lua/mend has parked since it last set a stream back */
    uint64_t refusals_told, refusals_untold; /* by the log, since the last pulse */
    uint64_t ended[CLASS_COUNT][ENDS];       /* requests, since the last pulse that counted some … */
    uint64_t counting[CLASS_COUNT][ENDS];    /* … those that it counts, until it is answered … */
    uint64_t counted;                        /* … and its number, by which a repeated one is known; 0: none yet */
    struct queue_stats stats;
};

#endif
