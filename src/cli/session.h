/* The connection of an operator's command to the configured Redis, about the configured queues. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "cli/command.h"
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

/* Connects, without asking for the time: a producer may not. Owns: the caller ends it with session_close, also after an
 * error. Errors: those of config_address and client_open. */
MUST_CHECK enum status session_connect(struct session *session, const struct invocation *invocation, struct err *err);

/* Connects and asks for the time. Owns: the caller ends it with session_close, also after an error.
 * Errors: those of config_address and client_open. */
MUST_CHECK enum status session_open(struct session *session, const struct invocation *invocation, struct err *err);

/* Closes the connection; wipes the password. */
void session_close(struct session *session);

/* Runs a command's body for each queue that it is about (those of the file's `queues`, or the one that a flag or a
 * variable names), on one connection. Errors are printed, and the other queues have their
 * turn; the first error becomes the exit code. */
int session_run(struct invocation *invocation,
                enum status (*body)(struct session *session, const struct invocation *invocation, struct err *err));

/* The same for a command about names that several queues may have: refused (EX_USAGE) if there is more than one
 * queue. */
int session_run_one(struct invocation *invocation,
                    enum status (*body)(struct session *session, const struct invocation *invocation, struct err *err));

/* Whether there is only one queue. If not, prints that --queue must name one; the caller returns EX_USAGE. */
bool session_is_one(const struct invocation *invocation);

/* Prints which queue the next lines are about, if there are several. */
void session_heading(const struct session *session);

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

/* The same for a command that answers with an integer. Errors: also STATUS_INTERNAL if it does not. */
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

/* The heartbeats of a queue's workers: what each wrote about itself into `workers`, about once a second. */

enum { HEARTBEAT_FRESH_MS = 10000 };

/* One worker's heartbeat; all strings are in the answer. */
struct heartbeat_line {
    const char *worker;
    const char *words;   /* `state running held 3 …`, as the worker wrote them */
    const char *command; /* an order that it has not taken yet; "" for none */
    uint64_t age_ms;     /* since the heartbeat */
    bool alive;          /* its lease runs */
};

/* The heartbeats of all workers of a queue. */
struct heartbeats {
    struct resp_value *answer; /* owns the strings of the lines */
    struct heartbeat_line *lines;
    size_t count;
};

/* Reads them. Owns: the caller ends it with heartbeats_free, also after an error. Errors: those of the commands. */
MUST_CHECK enum status heartbeats_read(struct session *session, struct heartbeats *out, struct err *err);

/* Frees answer and lines. */
void heartbeats_free(struct heartbeats *heartbeats);

/* Copies the value after a word of the line ("held") into `value`, "" if the word is missing; returns `value`. */
const char *heartbeat_value(const struct heartbeat_line *line, const char *word, char *value, size_t size);

#endif
