/* Where a benchmark through Redis plays: the Redis that --redis names, or one of its own on a unix socket; a queue that
 * nobody else has; daemons as children, which get our settings.
 *
 * What it leaves behind is nothing: its keys are deleted, its folder and its processes are gone. */
#ifndef BENCH_STAGE_H
#define BENCH_STAGE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/err.h"
#include "io/address.h"
#include "io/client.h"
#include "serve/config.h"

/* A program that a benchmark starts and ends: a process group of its own, its output in a file, killed by the kernel
 * when we die. */

enum { CHILD_PATH = 256 };

/* All zero: none. */
struct child {
    pid_t pid; /* 0: not running */
    char name[32], log[CHILD_PATH];
    int exit_code;  /* once it has ended; 128 and more: by a signal */
    double cpu_s;   /* likewise: the processor time that it used */
    double peak_mb; /* likewise: the most memory that it had */
};

/* Starts argv[0] (searched in PATH), with standard output and error in the file `log` (appended to).
 * `environment` NULL: ours. Errors: STATUS_NOT_FOUND naming the program, STATUS_IO. Thread: the main one, because the
 * child dies with the thread that has started it. */
MUST_CHECK enum status child_start(struct child *child, const char *name, const char *const *argv,
                                   char *const *environment, const char *log, struct err *err);

/* Whether it runs; takes over how it ended, when it has. */
bool child_running(struct child *child);

/* Sends a signal and waits for the end; after `timeout_ms` it is killed. */
void child_stop(struct child *child, int signal, uint32_t timeout_ms);

/* What its log says from its last `most` bytes on. Errors: those of file_read. */
MUST_CHECK enum status child_read_log(const struct child *child, struct buffer *out, struct err *err);

/* Says that it has ended when it should not, with the end of its log. Errors: always STATUS_UNAVAILABLE. */
enum status child_gone(const struct child *child, struct err *err);

/* What the kernel knows of a process: its memory. */

/* A line of /proc/PID/status in MB ("VmHWM": the most it ever had, "VmRSS": now); NAN when it cannot be read. */
double process_memory_mb(pid_t pid, const char *line);

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
