#include "daemon/loop.h"

#include <dirent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/notify.h"

static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT, SIGUSR2};

enum { SIGNALS = sizeof signals / sizeof signals[0] };

/* The name of `turned_fd` in /proc/<process>/fd. */
#define TURNED_NAME "sluice-loop"

struct loop {
    struct loop_options options;
    struct event_base *base;
    int wake_fd;
    uint64_t deadline_ns;
    int turned_fd; /* a file in memory with the time of the loop's last turn (monotonic ms); empty until it runs */
    struct event *deadline, *wake, *period, *turn, *watchdog;
    struct event *signals[SIGNALS];
};

static void deadline_came(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct loop *loop = context;
    loop->deadline_ns = UINT64_MAX;
    loop->options.on_deadline(loop->options.context);
}

static void wake_came(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct loop *loop = context;
    uint64_t count;
    ssize_t ignored = read(fd, &count, sizeof count);
    (void)ignored;
    loop->options.on_wake(loop->options.context);
}

static void signal_came(evutil_socket_t number, short what, void *context)
{
    (void)what;
    struct loop *loop = context;
    loop->options.on_signal(loop->options.context, (int)number);
}

static void period_came(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct loop *loop = context;
    loop->options.on_period(loop->options.context);
}

static void turn_came(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct loop *loop = context;
    uint64_t now_ms = clock_now_ms();
    ssize_t ignored = pwrite(loop->turned_fd, &now_ms, sizeof now_ms, 0);
    (void)ignored;
    loop->options.on_second(loop->options.context);
}

static void watchdog_came(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what, (void)context;
    (void)notify_send("WATCHDOG=1"); /* if one is lost, another follows before the supervisor acts */
}

/* Takes libevent's messages, which would go to standard error, and wait for its reader. */
static void event_logged(int severity, const char *message)
{
    log_write(severity >= EVENT_LOG_WARN ? LOG_WARN : LOG_DEBUG,
              &(struct log_line){"libevent", {log_str("message", message)}});
}

/* Deadlines of a few ms matter, so timers must not be rounded up to epoll's whole milliseconds. */
static struct event_base *make_base(void)
{
    struct event_config *config = event_config_new();
    if (!config) { return NULL; }
    event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

static bool add_events(struct loop *loop)
{
    loop->deadline = event_new(loop->base, -1, 0, deadline_came, loop);
    loop->wake = event_new(loop->base, loop->wake_fd, EV_READ | EV_PERSIST, wake_came, loop);
    loop->period = event_new(loop->base, -1, EV_PERSIST, period_came, loop);
    loop->turn = event_new(loop->base, -1, EV_PERSIST, turn_came, loop);
    loop->watchdog = event_new(loop->base, -1, EV_PERSIST, watchdog_came, loop);
    if (!loop->deadline || !loop->wake || !loop->period || !loop->turn || !loop->watchdog) { return false; }
    for (int i = 0; i < SIGNALS; i++) {
        loop->signals[i] = evsignal_new(loop->base, signals[i], signal_came, loop);
        if (!loop->signals[i] || event_add(loop->signals[i], NULL) != 0) { return false; }
    }
    struct timeval every = {.tv_sec = loop->options.period_s}, second = {.tv_sec = 1};
    uint64_t watchdog_us = notify_watchdog_us();
    struct timeval bark = {.tv_sec = (time_t)(watchdog_us / 1000000), .tv_usec = (suseconds_t)(watchdog_us % 1000000)};
    return event_add(loop->wake, NULL) == 0 && event_add(loop->turn, &second) == 0 &&
           (watchdog_us == 0 || event_add(loop->watchdog, &bark) == 0) &&
           (loop->options.period_s == 0 || event_add(loop->period, &every) == 0);
}

enum status loop_open(const struct loop_options *options, struct loop **out, struct err *err)
{
    struct loop *loop = calloc(1, sizeof *loop);
    if (!loop) { return err_set(err, STATUS_NO_MEMORY, "no memory for an event loop"); }
    loop->options = *options;
    loop->deadline_ns = UINT64_MAX;
    event_set_log_callback(event_logged);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->turned_fd = memfd_create(TURNED_NAME, MFD_CLOEXEC);
    enum status status = STATUS_OK;
    if (loop->wake_fd < 0) {
        status = err_set_errno(err, "cannot make an eventfd");
    } else if (loop->turned_fd < 0) {
        status = err_set_errno(err, "cannot make a file in memory");
    } else if (!(loop->base = make_base()) || !add_events(loop)) {
        status = err_set(err, STATUS_IO, "cannot make an event loop");
    }
    if (status != STATUS_OK) {
        loop_close(loop);
        return status;
    }
    *out = loop;
    return STATUS_OK;
}

void loop_close(struct loop *loop)
{
    if (!loop) { return; }
    struct event *const events[] = {loop->deadline, loop->wake, loop->period, loop->turn, loop->watchdog};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (events[i]) { event_free(events[i]); }
    }
    for (int i = 0; i < SIGNALS; i++) {
        if (loop->signals[i]) { event_free(loop->signals[i]); }
    }
    if (loop->base) { event_base_free(loop->base); }
    if (loop->wake_fd >= 0) { close(loop->wake_fd); }
    if (loop->turned_fd >= 0) { close(loop->turned_fd); }
    free(loop);
}

struct event_base *loop_base(const struct loop *loop)
{
    return loop->base;
}

int loop_wake_fd(const struct loop *loop)
{
    return loop->wake_fd;
}

void loop_set_deadline(struct loop *loop, uint64_t deadline_ns)
{
    if (deadline_ns == loop->deadline_ns) { return; }
    loop->deadline_ns = deadline_ns;
    if (deadline_ns == UINT64_MAX) {
        event_del(loop->deadline);
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t wait_us = deadline_ns <= now_ns ? 0 : (deadline_ns - now_ns + 999) / 1000;
    struct timeval wait = {.tv_sec = (time_t)(wait_us / 1000000), .tv_usec = (suseconds_t)(wait_us % 1000000)};
    event_add(loop->deadline, &wait);
}

void loop_run(struct loop *loop)
{
    turn_came(-1, 0, loop);
    event_base_dispatch(loop->base);
}

void loop_stop(struct loop *loop)
{
    event_base_loopbreak(loop->base);
}

enum status loop_turned(pid_t process, uint64_t *ago_ms, struct err *err)
{
    static const char name[] = "/memfd:" TURNED_NAME " ";
    char folder[64], target[sizeof name];
    uint64_t turned_ms = 0;
    snprintf(folder, sizeof folder, "/proc/%ld/fd", (long)process);
    DIR *files = opendir(folder);
    for (struct dirent *file; files && turned_ms == 0 && (file = readdir(files));) {
        ssize_t length = readlinkat(dirfd(files), file->d_name, target, sizeof target);
        if (length < (ssize_t)strlen(name) || memcmp(target, name, strlen(name)) != 0) { continue; }
        int fd = openat(dirfd(files), file->d_name, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, &turned_ms, sizeof turned_ms) != sizeof turned_ms) { turned_ms = 0; }
        if (fd >= 0) { close(fd); }
    }
    if (files) { closedir(files); }
    if (turned_ms == 0) {
        return err_set(err, STATUS_NOT_FOUND, "process %ld is no daemon that serves", (long)process);
    }
    uint64_t now_ms = clock_now_ms();
    *ago_ms = now_ms > turned_ms ? now_ms - turned_ms : 0;
    return STATUS_OK;
}
