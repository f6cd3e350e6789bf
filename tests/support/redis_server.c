/* The server is started with fork and exec; PDEATHSIG ends it when the test dies, and its parent's id is checked for
 * the moment before that. Readiness is a PING over a plain blocking socket, so that nothing under test is used for it.
 */
#include "redis_server.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

enum { START_TRIES = 1000, ARGUMENTS_MAX = 48 };

static void run_server(const struct redis_server *server, pid_t parent)
{
    char *arguments[ARGUMENTS_MAX];
    int count = 0;
    const char *const fixed[] = {
        "redis-server", "--port",    "0",         "--unixsocket",       server->socket, "--dir",
        server->dir,    "--save",    "",          "--maxmemory-policy", "noeviction",   "--daemonize",
        "no",           "--logfile", "redis.log", "--appendfsync",      "always"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) { arguments[count++] = strdup(fixed[i]); }
    for (const char *const *option = server->options; option && *option && count < ARGUMENTS_MAX - 1; option++) {
        arguments[count++] = strdup(*option);
    }
    arguments[count] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) {
        execvp(arguments[0], arguments);
        fprintf(stderr, "redis-server: %s\n", strerror(errno));
    }
    _exit(127);
}

static bool answers(const struct redis_server *server)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", server->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char answer[64] = "";
    bool ok = fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && write(fd, "PING\r\n", 6) == 6 &&
              read(fd, answer, sizeof answer - 1) > 0 &&
              (strncmp(answer, "+PONG", 5) == 0 || strncmp(answer, "-NOAUTH", 7) == 0);
    if (fd >= 0) { close(fd); }
    return ok;
}

void redis_server_again(struct redis_server *server)
{
    assert_int_equal(server->pid, 0);
    unlink(server->socket);
    pid_t parent = getpid();
    server->pid = fork();
    if (server->pid == 0) { run_server(server, parent); }
    assert_true(server->pid > 0);
    for (int i = 0; i < START_TRIES && !answers(server); i++) {
        assert_int_equal(waitpid(server->pid, NULL, WNOHANG), 0);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    assert_true(answers(server));
}

void redis_server_start(struct redis_server *server, const char *const *options)
{
    *server = (struct redis_server){.options = options};
    snprintf(server->dir, sizeof server->dir, "/tmp/sluice-test-XXXXXX");
    assert_non_null(mkdtemp(server->dir));
    snprintf(server->socket, sizeof server->socket, "%s/redis.sock", server->dir);
    redis_server_again(server);
}

void redis_server_kill(struct redis_server *server)
{
    if (server->pid > 0) {
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
    }
    server->pid = 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

void redis_server_stop(struct redis_server *server)
{
    redis_server_kill(server);
    nftw(server->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
