/* The I/O thread's event loop: one deadline, the signals, one eventfd for finished work, one slow period. Other
 * processes can see that it runs (`sluice live`), and a supervisor can ask for signs of life
 * (daemon/notify.h).
 *
 * Only this file, http/ and redis/ include libevent: its `struct event` and the worker's have the same name. */
#ifndef DAEMON_LOOP_H
#define DAEMON_LOOP_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct event_base;
struct loop;

/* The callbacks. loop_run makes all calls. */
struct loop_options {
    void *context;
    void (*on_deadline)(void *context);           /* the deadline of loop_set_deadline has come */
    void (*on_wake)(void *context);               /* loop_wake_fd was written to */
    void (*on_signal)(void *context, int signal); /* see loop_open */
    void (*on_second)(void *context);             /* every second */
    void (*on_period)(void *context);             /* every period_s seconds */
    uint32_t period_s;                            /* 0: never */
};

/* Makes a loop; from then on SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT and SIGUSR2 go to on_signal.
 * Owns: the caller ends it with loop_close. Errors: STATUS_NO_MEMORY, STATUS_IO. Thread: one, as for all of this. */
MUST_CHECK enum status loop_open(const struct loop_options *options, struct loop **out, struct err *err);

/* Frees it and restores the signals. NULL is allowed. */
void loop_close(struct loop *loop);

/* libevent's loop, for redis/ and http/, which run on it, too. */
struct event_base *loop_base(const struct loop *loop);

/* The eventfd that other threads write when they have finished something. Owns: the loop does. */
int loop_wake_fd(const struct loop *loop);

/* Sets when on_deadline is called, in monotonic time; replaces an earlier deadline. Units: ns; UINT64_MAX: never. */
void loop_set_deadline(struct loop *loop, uint64_t deadline_ns);

/* Runs until loop_stop. */
void loop_run(struct loop *loop);

/* Makes loop_run return after the current callback. */
void loop_stop(struct loop *loop);

/* Finds how long ago another process's loop last turned, which it does every second, without the help of that process.
 * Errors: STATUS_NOT_FOUND: there is no such process, it runs no loop (yet), or it is another user's. Thread: any. */
MUST_CHECK enum status loop_turned(pid_t process, uint64_t *ago_ms, struct err *err);

#endif
