/* The last hour of a queue, for the dashboard's charts: a point every five seconds, in a ring of a fixed size.
 * Thread: the I/O thread. */
#ifndef DAEMON_HISTORY_H
#define DAEMON_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/histogram.h"

enum { HISTORY_STEP_S = 5, HISTORY_POINTS = 3600 / HISTORY_STEP_S };

/* The values of a point; NaN: not known. Name and meaning. */
/* clang-format off */
#define HISTORY_VALUES(X)                                                                                              \
    X(done_per_s)       /* requests that ended as done, with any worker … */                                           \
    X(errors_per_s)     /* … and neither as done nor as cancelled */                                                   \
    X(unread)           /* entries that nobody has read … */                                                           \
    X(running)          /* … and those that are with a worker, now */                                                  \
    X(p50_s)            /* from XADD to the reply, for requests of this daemon */                                      \
    X(p99_s)                                                                                                           \
    X(busy)             /* share of its compute threads' time */                                                       \
    X(batch_texts)      /* per batch of this daemon, on average */                                                     \
    X(batch_tokens)                                                                                                    \
    X(padding)          /* share of the tokens that this daemon computed */                                            \
    X(commands_per_s)   /* commands that this daemon sent to Redis */
/* clang-format on */

struct history_point {
    uint64_t at_ms; /* unix; never runs backwards */
#define MEMBER(name) float name;
    HISTORY_VALUES(MEMBER)
#undef MEMBER
};

/* The counts until now. */
struct history_sample {
    uint64_t at_ms;
    uint64_t redis_ms;                                  /* Redis unix ms of the four below; 0: Redis is away */
    uint64_t unread, running, done_today, errors_today; /* today: since Redis' midnight in UTC */
    uint64_t request_ns[HISTOGRAM_BOUNDS + 1];          /* requests by their time, in the buckets of histogram_times */
    uint64_t busy_ns, batches, rows, tokens, computed_tokens, commands;
    uint32_t threads;
};

/* Zero-initialise. */
struct history {
    struct history_sample last; /* at_ms 0: none yet */
    struct history_point points[HISTORY_POINTS];
    size_t count; /* since the start; the newest point is at (count - 1) % HISTORY_POINTS */
};

/* Adds the point between the sample before and this one; the first sample makes none. */
void history_add(struct history *history, const struct history_sample *now);

/* Appends the points after since_ms, the oldest first, as members of a JSON object after a comma: "every_ms", "names",
 * "points". */
void history_put(const struct history *history, uint64_t since_ms, struct buffer *to);

#endif
