/* A real redis-server for tests: on a unix socket in a directory of its own, gone when the test is gone. */
#ifndef TESTS_REDIS_SERVER_H
#define TESTS_REDIS_SERVER_H

#include <sys/types.h>

struct redis_server {
    char dir[64];
    char socket[96];
    const char *const *options; /* more arguments, NULL-terminated; may be NULL */
    pid_t pid;                  /* 0: not running */
};

/* Starts a server (noeviction, no snapshots, no port; `options` are added) and waits until it answers; fails the test
 * when it does not. Owns: the caller ends it with redis_server_stop, in the test's teardown. */
void redis_server_start(struct redis_server *server, const char *const *options);

/* kill -9, and a start with the same directory and options. */
void redis_server_kill(struct redis_server *server);
void redis_server_again(struct redis_server *server);

/* Kills it and removes its directory. */
void redis_server_stop(struct redis_server *server);

#endif
