/* A real server and a client, and answers as text, so that a test reads like a session of redis-cli.
 *
 *     redis_expect(redis, "[1-0 [text hello]]", "XRANGE sluice:{q}:requests - +");
 *
 * A command is words between single spaces; '' is the empty word. An answer is text: 5 or hello, ~ for nil, !CODE
 * message for an error, [a b] for an array. */
#ifndef TESTS_REDIS_FIXTURE_H
#define TESTS_REDIS_FIXTURE_H

#include "redis/client.h"
#include "redis_server.h"

struct redis_fixture {
    struct redis_server server;
    struct address address;
    struct client *client;
    char text[1 << 16]; /* of the last answer */
};

/* For TEST_WITH: *state is a struct redis_fixture. */
int redis_setup(void **state);
int redis_teardown(void **state);

/* Opens the client anew, after the server was killed and started again. */
void redis_reconnect(struct redis_fixture *redis);

/* Sends the words and returns the answer as text, which lives until the next call. */
const char *redis_do(struct redis_fixture *redis, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Does the same, and fails unless the answer is `expected`, or begins with it if that ends in "...". */
void redis_expect(struct redis_fixture *redis, const char *expected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fails unless `info` of a reply, whose key is given, has these members (names between single spaces): `expected` is
 * the array of their texts. */
void redis_expect_info(struct redis_fixture *redis, const char *expected, const char *key, const char *names);

#endif
