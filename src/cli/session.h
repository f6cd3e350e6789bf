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
    bool several;      /* the command is about several queues, and this is one of them */
    uint64_t redis_ms; /* Redis unix ms when the session was opened: the clock of all deadlines and ages */
};

/* Connects and asks for the time. Owns: the caller ends it with session_close, also after an error.
 * Errors: those of config_address and client_open. */
MUST_CHECK enum status session_open(struct session *session, const struct invocation *invocation, struct err *err);

/* Closes the connection; wipes the password. */
void session_close(struct session *session);

/* The queues that a command is about: those of the file's `queues`, or the one that a flag or a variable names. */
size_t session_queues(const struct config *config);

/* The name of one of them, from 0. Owns: it is the configuration's. */
const char *session_queue(const struct config *config, size_t number);

/* Runs a command's body once for each of these queues, on one connection, and turns the first status that is not
 * STATUS_OK into an exit code; errors are printed, and the other queues have their turn. */
int session_run(struct invocation *invocation,
                enum status (*body)(struct session *session, const struct invocation *invocation, struct err *err));

/* The same for a command about things that are another queue's under the same name: refused (EX_USAGE) while there are
 * several. */
int session_run_one(struct invocation *invocation,
                    enum status (*body)(struct session *session, const struct invocation *invocation, struct err *err));

/* Whether there is one queue only. Prints otherwise that --queue must name one: EX_USAGE is due then. */
bool session_is_one(const struct invocation *invocation);

/* Prints which queue the next lines are about, where there are several. */
void session_heading(const struct session *session);

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

/* The workers of a queue, as they said of themselves in `workers` within the last second or so. */

enum { HEARTBEAT_FRESH_MS = 10000 };

/* What one worker said; all strings are in the answer. */
struct heartbeat_line {
    const char *worker;
    const char *words;   /* `state running held 3 …`, as the worker wrote them */
    const char *command; /* one that it has not taken yet; "" for none */
    uint64_t age_ms;     /* since it spoke */
    bool alive;          /* its lease runs */
};

/* All workers of a queue. */
struct heartbeats {
    struct resp_value *answer; /* what the lines point into */
    struct heartbeat_line *lines;
    size_t count;
};

/* Reads them. Owns: the caller ends it with heartbeats_free, also after an error. Errors: those of the commands. */
MUST_CHECK enum status heartbeats_read(struct session *session, struct heartbeats *out, struct err *err);

/* Frees answer and lines, and leaves none. */
void heartbeats_free(struct heartbeats *heartbeats);

/* Copies the value behind a word of the line ("held") into `value`, "" when it is not there; returns `value`. */
const char *heartbeat_value(const struct heartbeat_line *line, const char *word, char *value, size_t size);

#endif
