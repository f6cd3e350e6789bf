#include "bench/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

/* In the child: never returns. What went wrong goes to the parent as an errno. */
static void become(const char *const *argv, char *const *environment, const char *log, pid_t parent, int report_fd)
{
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() == parent && out >= 0 && in >= 0 && dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(out, 2) == 2) {
        signal(SIGPIPE, SIG_DFL);
        if (environment != NULL)
            execvpe(argv[0], (char *const *)(uintptr_t)argv, environment);
        else
            execvp(argv[0], (char *const *)(uintptr_t)argv);
    }
    int code = errno;
    ssize_t told = write(report_fd, &code, sizeof code);
    _exit(told == sizeof code ? 127 : 126);
}

enum status child_start(struct child *child, const char *name, const char *const *argv, char *const *environment,
                        const char *log, struct err *err)
{
    int pipe_fds[2], code = 0;
    pid_t parent = getpid();
    *child = (struct child){0};
    snprintf(child->name, sizeof child->name, "%s", name);
    snprintf(child->log, sizeof child->log, "%s", log);
    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return err_set_errno(err, "cannot start %s", name);
    pid_t pid = fork();
    if (pid == 0)
        become(argv, environment, log, parent, pipe_fds[1]);
    close(pipe_fds[1]);
    ssize_t got = pid < 0 ? -1 : read(pipe_fds[0], &code, sizeof code); /* the end of the file comes with exec */
    close(pipe_fds[0]);
    if (pid > 0 && got == 0) {
        child->pid = pid;
        return STATUS_OK;
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
    errno = code != 0 ? code : errno;
    return err_set_errno(err, "cannot start %s", argv[0]);
}

static bool reap(struct child *child, int options)
{
    struct rusage usage;
    int status;
    if (child->pid == 0 || wait4(child->pid, &status, options, &usage) != child->pid)
        return child->pid == 0;
    child->pid = 0;
    child->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    child->cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    child->peak_mb = (double)usage.ru_maxrss * 1024 / 1e6;
    return true;
}

bool child_running(struct child *child)
{
    return !reap(child, WNOHANG);
}

void child_stop(struct child *child, int signal, uint32_t timeout_ms)
{
    static const struct timespec pause = {0, 2 * NS_PER_MS};
    if (!child_running(child))
        return;
    uint64_t ends_ms = clock_now_ms() + timeout_ms;
    kill(child->pid, signal);
    while (child_running(child) && clock_now_ms() < ends_ms)
        nanosleep(&pause, NULL);
    if (child->pid == 0)
        return;
    kill(child->pid, SIGKILL);
    reap(child, 0);
}

enum status child_read_log(const struct child *child, struct buffer *out, struct err *err)
{
    return file_read(child->log, 64 << 20, out, err);
}

enum status child_gone(const struct child *child, struct err *err)
{
    enum { TAIL = 300 };
    struct buffer log = {0};
    const char *tail = "";
    if (child_read_log(child, &log, err) == STATUS_OK && log.data != NULL)
        tail = log.length > TAIL ? log.data + log.length - TAIL : log.data;
    enum status status = err_set(err, STATUS_UNAVAILABLE, "%s has ended with %d; its log ends with: %s", child->name,
                                 child->exit_code, tail);
    buffer_free(&log);
    return status;
}
