/* Where a benchmark through Redis plays: the Redis that --redis names, or one of its own on a unix socket; a queue that
 * nobody else has; daemons as children, which get our settings.
 *
 * What it leaves behind is nothing: its keys are deleted, its folder and its processes are gone. */
#ifndef BENCH_STAGE_H
#define BENCH_STAGE_H

#include <signal.h>

#include "bench/child.h"
#include "io/address.h"
#include "io/client.h"
#include "serve/config.h"

/* What a benchmark plays on. All zero: nothing is there yet. */
struct stage {
    const struct config *config;
    const volatile sig_atomic_t *stop; /* not 0: the user wants it to end */
    bool own;                          /* Redis is ours */
    struct child redis;
    struct address address;
    struct client *client;
    char folder[CHILD_PATH], socket[CHILD_PATH];
    char queue[64];
};

enum { STAGE_KEY = 128, STAGE_TIMEOUT_MS = 60000 };

/* Starts or reaches Redis. With `appendonly` a Redis of our own writes its append-only file, flushed each second; for
 * another one that is its own affair. `config` and `stop` must outlive the stage.
 * Owns: the caller ends it with stage_close, also after an error. Errors: STATUS_NOT_FOUND (no redis-server),
 * STATUS_BAD_INPUT (--queue is given: it would be deleted), those of client_open. */
MUST_CHECK enum status stage_open(struct stage *stage, const struct config *config, bool appendonly,
                                  const volatile sig_atomic_t *stop, struct err *err);

/* Deletes the queue's keys, ends a Redis of our own, and removes the folder. */
void stage_close(struct stage *stage);

/* Writes sluice:{queue}:<suffix>; returns `key`. */
const char *stage_key(const struct stage *stage, const char *suffix, char key[STAGE_KEY]);

/* Sends words and waits for the answer, as client_command. */
#define STAGE_ASK(stage, out, err, ...)                                                                                \
    client_command((stage)->client, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *),                 \
                   (const char *const[]){__VA_ARGS__}, NULL, out, err)

/* Deletes the keys of the queue whose suffix is like this ("*": all). Errors: those of client_command. */
MUST_CHECK enum status stage_clear(struct stage *stage, const char *like, struct err *err);

/* Whether it may go on. Errors: STATUS_TIMEOUT once the user wants it to end. */
MUST_CHECK enum status stage_check(const struct stage *stage, struct err *err);

/* Starts a daemon with our settings and these flags over them ("--window-ms", "5", NULL).
 * Owns: the caller ends it with daemon_stop or child_stop. Errors: those of child_start. */
MUST_CHECK enum status stage_daemon(struct stage *stage, const char *const *flags, struct child *out, struct err *err);

/* What a daemon counted from its start to its end. */
struct daemon_counts {
    double done, errors, batches, rows, rows_shared, tokens, computed_tokens, busy_ms;
};

/* Ends a daemon and reads its counters. Errors: STATUS_UNAVAILABLE when it did not end well. */
MUST_CHECK enum status stage_end_daemon(struct child *daemon, struct daemon_counts *out, struct err *err);

#endif
