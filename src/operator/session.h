/* An open connection to Redis with which an operator asks and orders, about one queue at a time. */
#ifndef OPERATOR_SESSION_H
#define OPERATOR_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "redis/address.h"
#include "redis/client.h"
#include "redis/scripts.h"

enum { SESSION_KEY = 256, SESSION_TIMEOUT_MS = 5000 };

/* An open connection, and the server's time. */
struct session {
    struct address address;
    struct client *client;
    const char *queue;
    bool several;      /* the command is about several queues; this is one of them */
    uint64_t redis_ms; /* Redis' unix ms at the opening: the clock of all deadlines and ages */
};

/* Asks for the server's time. Errors: those of client_command. */
MUST_CHECK enum status session_ask_time(struct session *session, struct err *err);

/* Closes the connection; wipes the password. */
void session_close(struct session *session);

/* Writes sluice:{queue}:<suffix><more>; returns `key`. */
const char *session_key(const struct session *session, const char *suffix, const char *more, char key[SESSION_KEY]);

/* Sends a command and waits for the answer. An error names the command's first word. Owns: `*out` lives until the next
 * call with this session. Errors: those of client_command. */
MUST_CHECK enum status session_ask(struct session *session, size_t count, const char *const *words,
                                   const struct resp_value **out, struct err *err);

/* session_ask for a literal list of words: SESSION_ASK(session, &reply, err, "XLEN", key). */
#define SESSION_ASK(session, out, err, ...)                                                                            \
    session_ask(session, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *),                            \
                (const char *const[]){__VA_ARGS__}, out, err)

/* session_ask for a command that answers with an integer. Errors: also STATUS_INTERNAL if it does not. */
MUST_CHECK enum status session_ask_number(struct session *session, size_t count, const char *const *words,
                                          long long *out, struct err *err);
#define SESSION_ASK_NUMBER(session, out, err, ...)                                                                     \
    session_ask_number(session, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *),                     \
                       (const char *const[]){__VA_ARGS__}, out, err)

/* Loads a script and writes its digest. Errors: as session_ask_number. */
MUST_CHECK enum status session_load(struct session *session, enum script script, char digest[SCRIPT_DIGEST + 1],
                                    struct err *err);

/* The group `sluice` in an answer to XINFO GROUPS; NULL: nobody has read the stream yet. */
const struct resp_value *session_group(const struct resp_value *groups);

/* A value as a C string; "" for nil and arrays. */
const char *session_text(const struct resp_value *value);

#endif
