/* A queue under test with a desk in the place of the worker: it keeps the queue's events, so that a test can say
 * "execute this, wait for that". Entries are parsed into requests at once, as the worker does. */
#ifndef TESTS_QUEUE_DESK_H
#define TESTS_QUEUE_DESK_H

#include "harness.h"
#include "redis/queue.h"
#include "redis_fixture.h"

/* The keys of the desk's queue. */
#define Q "sluice:{q}:"
#define STREAM Q "requests"
#define HIGH Q "requests:high"

enum { DESK_EVENTS = 256, DESK_LEASE_MS = 500 };

struct desk {
    struct event_base *base;
    struct queue *queue;
    struct event events[DESK_EVENTS]; /* in order; the memory that they point to is gone */
    size_t count, seen;
    struct event last;        /* the event that was waited for */
    struct request_list held; /* requests the desk has now */
    struct err fatal;
    size_t padding; /* bytes by which desk_settle enlarges each vector */
};

/* Makes a queue named q on this server and its model m; `options` may be NULL, else its limits are taken over. */
void desk_open(struct desk *desk, const struct address *address, const struct queue_options *options);
void desk_close(struct desk *desk); /* frees what it holds, too */

/* Runs the event loop until the next event of this kind, which is then in `last`; events of other kinds that came
 * before it are passed over. Fails the test after 20 s, and when the queue stops. */
void desk_wait(struct desk *desk, enum event_kind kind);

/* Executes an action without more, and waits for its event. */
void desk_do(struct desk *desk, enum action_kind action, enum event_kind event);

/* Expects that a stream has no entry, and that none is pending. */
void desk_expect_empty(struct redis_fixture *redis, const char *stream);

/* Runs the event loop for a moment. */
void desk_pause(struct desk *desk);

/* Runs the event loop until Redis gives this answer to a command: for commands of the queue whose answer does not reach
 * the worker. */
void desk_wait_redis(struct desk *desk, struct redis_fixture *redis, const char *expected, const char *command);

/* Runs the event loop until one client of the server is blocked. */
void desk_wait_blocked(struct desk *desk, struct redis_fixture *redis);

/* Returns whether a connection was ever lost. */
bool desk_lost(const struct desk *desk);

/* Runs the event loop until the queue stops for good. */
void desk_wait_fatal(struct desk *desk);

/* Opens, starts and waits for EVENT_CONNECTED. */
void desk_connect(struct desk *desk, const struct address *address);

/* A case with a server, and a desk that is connected to it. */
#define DESK_TEST(name)                                                                                                \
    static void name##_at(struct redis_fixture *redis, struct desk *desk);                                             \
    TEST_WITH(name, redis_setup, redis_teardown)                                                                       \
    {                                                                                                                  \
        struct redis_fixture *redis = *state;                                                                          \
        struct desk desk;                                                                                              \
        desk_connect(&desk, &redis->address);                                                                          \
        name##_at(redis, &desk);                                                                                       \
        desk_close(&desk);                                                                                             \
    }                                                                                                                  \
    static void name##_at(__attribute__((unused)) struct redis_fixture *redis,                                         \
                          __attribute__((unused)) struct desk *desk)

/* A read of new entries of the normal class. */
#define DESK_READ(most, block)                                                                                         \
    {                                                                                                                  \
        .kind = ACTION_READ, .read = {.counts = {[CLASS_NORMAL] = (most)}, .block_ms = (block) }                       \
    }

/* Executes an action that brings entries and waits for them; returns how many came. They are requests in `held`. */
size_t desk_take(struct desk *desk, struct action *action);
size_t desk_read(struct desk *desk, uint32_t count, uint32_t block_ms);
size_t desk_read_own(struct desk *desk, uint32_t count);
size_t desk_reclaim(struct desk *desk, bool judge);

/* Gives every held request this outcome (with a two-float vector or an error) and settles them all; waits for the
 * answer. */
void desk_settle(struct desk *desk, enum outcome outcome);

/* Frees the first `count` of the held requests. */
void desk_drop(struct desk *desk, uint32_t count);

/* Executes an action that takes all held requests, or none. */
void desk_execute(struct desk *desk, enum action_kind kind, bool last);

#endif
