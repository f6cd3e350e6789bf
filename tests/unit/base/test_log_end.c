/* The last lines of a process: they are written however it ends, and it ends even if nobody reads. Each case is a child
 * that logs; this process never does, because a child has none of its threads.
 * ctest: threads */
#include "harness.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

enum { LINES = 300 };

/* Forks a child with the default signal handlers, without those of cmocka and of sanitizers. */
static pid_t fork_child(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT};
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    for (size_t i = 0; child == 0 && i < sizeof signals / sizeof signals[0]; i++) { signal(signals[i], SIG_DFL); }
    return child;
}

/* Runs a child whose log is the pipe; returns how it ended, and in `lines` how many lines it wrote. */
static int run_child(void (*log_and_end)(void), unsigned *lines)
{
    int ends[2], how;
    char last = '\n', bytes[4096];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork_child();
    if (child == 0) {
        close(ends[0]);
        log_setup(LOG_INFO, LOG_TEXT, ends[1]);
        log_and_end();
        _exit(99);
    }
    close(ends[1]);
    *lines = 0;
    for (ssize_t length; (length = read(ends[0], bytes, sizeof bytes)) > 0; last = bytes[length - 1]) {
        for (ssize_t i = 0; i < length; i++) { *lines += bytes[i] == '\n'; }
    }
    assert_int_equal(last, '\n');
    close(ends[0]);
    assert_int_equal(waitpid(child, &how, 0), child);
    return how;
}

static void log_lines(void)
{
    for (int i = 0; i < LINES; i++) { log_info("numbered", log_int("number", i)); }
}

static void log_and_exit(void)
{
    log_lines();
    exit(3);
}

static void log_and_abort(void)
{
    log_lines();
    abort();
}

static void log_and_be_killed(void)
{
    log_lines();
    raise(SIGBUS);
}

static void log_and_crash(void)
{
    char *nothing = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    log_lines();
    *(volatile char *)nothing = 1;
}

/* By this signal; 0: by exit(3). */
static void assert_ended(int how, int number)
{
    if (number == 0) {
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 3);
    } else {
        assert_true(WIFSIGNALED(how));
        assert_int_equal(WTERMSIG(how), number);
    }
}

TEST(however_it_ends_they_are_written)
{
    static const struct {
        void (*log_and_end)(void);
        int signal; /* 0: it exits */
    } ends[] = {{log_and_exit, 0}, {log_and_abort, SIGABRT}, {log_and_be_killed, SIGBUS}, {log_and_crash, SIGSEGV}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        unsigned lines;
        assert_ended(run_child(ends[i].log_and_end, &lines), ends[i].signal);
        assert_int_equal(lines, LINES);
    }
}

/* The case holds both ends, so the child waits for a reader that never comes: a second at most. */
static void assert_ends_unread(void (*end)(void), int expected)
{
    int ends[2], how;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork_child();
    if (child == 0) {
        log_setup(LOG_INFO, LOG_TEXT, ends[1]);
        while (log_dropped() == 0) { log_lines(); }
        end();
        _exit(99);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_ended(how, expected);
    close(ends[0]);
    close(ends[1]);
}

TEST(it_ends_without_a_reader)
{
    assert_ends_unread(log_and_exit, 0);
    assert_ends_unread(log_and_abort, SIGABRT);
}
