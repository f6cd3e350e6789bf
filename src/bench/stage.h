/* The surroundings of a benchmark through Redis: the Redis of --redis or a private one on a unix socket; a private
 * queue; daemons as children, with our settings.
 *
 * It leaves nothing behind: no keys, no folder, no process. */
#ifndef BENCH_STAGE_H
#define BENCH_STAGE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/err.h"
#include "config/config.h"
#include "redis/address.h"
#include "redis/client.h"

/* A program that a benchmark runs: in its own process group, with its output in a file; the kernel kills it when we
 * die. All zero: none. */

enum { CHILD_PATH = 256 };

struct child {
    pid_t pid; /* 0: not running */
    char name[32], log[CHILD_PATH];
    int exit_code;  /* after its end; 128 and more: by a signal */
    double cpu_s;   /* after its end: the processor time used */
    double peak_mb; /* after its end: the peak memory */
};

/* Starts argv[0] (searched in PATH); its standard output and error are appended to the file `log`. `environment` NULL:
 * ours. Errors: STATUS_NOT_FOUND naming the program, STATUS_IO. Thread: the main one, because the child dies with the
 * thread that started it. */
MUST_CHECK enum status child_start(struct child *child, const char *name, const char *const *argv,
                                   char *const *environment, const char *log, struct err *err);

/* True while it runs; after its end, fills in how it ended. */
bool child_running(struct child *child);

/* Sends a signal and waits for the end; kills it after `timeout_ms`. */
void child_stop(struct child *child, int signal, uint32_t timeout_ms);

/* Appends its log to `out`. Errors: those of file_read. */
MUST_CHECK enum status child_read_log(const struct child *child, struct buffer *out, struct err *err);

/* Reports that it has ended unexpectedly, with the end of its log. Errors: always STATUS_UNAVAILABLE. */
enum status child_gone(const struct child *child, struct err *err);

/* A line of /proc/PID/status in MB ("VmHWM": the peak memory, "VmRSS": the memory now); NAN if it cannot be read. */
double process_memory_mb(pid_t pid, const char *line);

/* Redis, queue and folder of a benchmark. All zero: nothing is open yet. */
struct stage {
    const struct config *config;
    const volatile sig_atomic_t *stop; /* not 0: the user has asked to stop */
    bool own;                          /* we have started Redis */
    struct child redis;
    struct address address;
    struct client *client;
    char folder[CHILD_PATH], socket[CHILD_PATH];
    char queue[64];
};

enum { STAGE_KEY = 128, STAGE_TIMEOUT_MS = 60000 };

/* Starts Redis or connects to it. With `appendonly`, a Redis that we start writes its append-only file, flushed each
 * second. `config` and `stop` must outlive the stage.
 * Owns: the caller ends it with stage_close, also after an error. Errors: STATUS_NOT_FOUND (no redis-server),
 * STATUS_BAD_INPUT (--queue is given: it would be deleted), those of client_open. */
MUST_CHECK enum status stage_open(struct stage *stage, const struct config *config, bool appendonly,
                                  const volatile sig_atomic_t *stop, struct err *err);

/* Deletes the queue's keys, ends a Redis that we have started, and removes the folder. */
void stage_close(struct stage *stage);

/* Writes sluice:{queue}:<suffix>; returns `key`. */
const char *stage_key(const struct stage *stage, const char *suffix, char key[STAGE_KEY]);

/* Sends a command and waits for the answer, as client_command. */
#define STAGE_ASK(stage, out, err, ...)                                                                                \
    client_command((stage)->client, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *),                 \
                   (const char *const[]){__VA_ARGS__}, NULL, out, err)

/* Deletes the queue's keys whose suffix matches the pattern ("*": all). Errors: those of client_command. */
MUST_CHECK enum status stage_clear(struct stage *stage, const char *like, struct err *err);

/* Errors: STATUS_TIMEOUT once the user has asked to stop. */
MUST_CHECK enum status stage_check(const struct stage *stage, struct err *err);

/* Starts a daemon with our settings, overridden by these flags ("--window-ms", "5", NULL).
 * Owns: the caller ends it with stage_end_daemon or child_stop. Errors: those of child_start. */
MUST_CHECK enum status stage_daemon(struct stage *stage, const char *const *flags, struct child *out, struct err *err);

/* A daemon's counters from its start to its end. */
struct daemon_counts {
    double done, errors, batches, rows, rows_shared, tokens, computed_tokens, busy_ms;
};

/* Ends a daemon and reads its counters. Errors: STATUS_UNAVAILABLE if its end was not clean. */
MUST_CHECK enum status stage_end_daemon(struct child *daemon, struct daemon_counts *out, struct err *err);

#endif
