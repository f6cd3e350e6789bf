/* A connection of an operator's command: to the configured Redis, about the configured queue. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "cli/command.h"
#include "io/address.h"
#include "io/client.h"
#include "io/scripts.h"

enum { SESSION_KEY = 256, SESSION_TIMEOUT_MS = 5000 };

/* An open connection, and the time at its other end. */
struct session {
    struct address address;
    struct client *client;
    const char *queue;
    uint64_t redis_ms; /* Redis unix ms when the session was opened: the clock of all deadlines and ages */
};

/* Connects and asks for the time. Owns: the caller ends it with session_close, also after an error.
 * Errors: those of password_address and client_open. */
MUST_CHECK enum status session_open(struct session *session, const struct invocation *invocation, struct err *err);

/* Closes the connection; wipes the password. */
void session_close(struct session *session);

/* Runs a command's body on a session and turns its status into an exit code; errors are printed. */
int session_run(struct invocation *invocation,
                enum status (*body)(struct session *session, const struct invocation *invocation, struct err *err));

/* Writes sluice:{queue}:<suffix><more>; returns `key`. */
const char *session_key(const struct session *session, const char *suffix, const char *more, char key[SESSION_KEY]);

/* Sends words and waits for the answer; an error reply is named with the command's first word. Owns: `*out` lives until
 * the next call with this session. Errors: those of client_command. */
MUST_CHECK enum status session_ask(struct session *session, size_t count, const char *const *words,
                                   const struct resp_value **out, struct err *err);

/* session_ask for a literal list of words: SESSION_ASK(session, &reply, err, "XLEN", key). */
#define SESSION_ASK(session, out, err, ...)                                                                            \
    session_ask(session, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *),                            \
                (const char *const[]){__VA_ARGS__}, out, err)

/* The same for a command whose answer is a whole number. Errors: also STATUS_INTERNAL when it is none. */
MUST_CHECK enum status session_ask_number(struct session *session, size_t count, const char *const *words,
                                          long long *out, struct err *err);
#define SESSION_ASK_NUMBER(session, out, err, ...)                                                                     \
    session_ask_number(session, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *),                     \
                       (const char *const[]){__VA_ARGS__}, out, err)

/* Loads a script and writes its digest. Errors: as session_ask_number. */
MUST_CHECK enum status session_load(struct session *session, enum script script, char digest[SCRIPT_DIGEST + 1],
                                    struct err *err);

/* A value of an answer as a C string: "" for a nil or an array. */
const char *session_text(const struct resp_value *value);

#endif
