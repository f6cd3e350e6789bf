/* A program that a benchmark starts and ends: a process group of its own, its output in a file, killed by the kernel
 * when we die. */
#ifndef BENCH_CHILD_H
#define BENCH_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/err.h"

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

#endif
