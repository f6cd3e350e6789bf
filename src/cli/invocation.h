/* The connection of an operator's command to the configured Redis, about the configured queues. */
#ifndef CLI_INVOCATION_H
#define CLI_INVOCATION_H

#include "cli/command.h"
#include "operator/session.h"

/* Connects, without asking for the time. Owns: the caller ends it with session_close, also after an
 * error. Errors: those of config_address and client_open. */
MUST_CHECK enum status invocation_connect(struct session *session, const struct invocation *invocation,
                                          struct err *err);

/* Connects and asks for the time. Owns: the caller ends it with session_close, also after an error.
 * Errors: those of config_address and client_open. */
MUST_CHECK enum status invocation_open(struct session *session, const struct invocation *invocation, struct err *err);

/* A warning about a queue that no worker has ever joined, because its name may be mistyped: a sentence with the names
 * of other queues, if this login may list keys. NULL for any other queue, or if it cannot find out.
 * Owns: the caller frees it. */
char *invocation_unused(struct session *session);

/* Prints that warning to standard error. */
void invocation_warn_unused(struct session *session, const struct invocation *invocation);

/* Runs a command's body for each queue that it is about (those of the file's `queues`, or the one that a flag or a
 * variable names), on one connection, after invocation_warn_unused. Errors are printed, and the other queues follow;
 * the first error becomes the exit code. */
int invocation_run(struct invocation *invocation,
                   enum status (*body)(struct session *session, const struct invocation *invocation, struct err *err));

/* invocation_run without a warning, for a command that looks again and again. */
int invocation_look(struct invocation *invocation,
                    enum status (*body)(struct session *session, const struct invocation *invocation, struct err *err));

/* invocation_run for a command about names that several queues may have: refused (EX_USAGE) if there is more than one
 * queue. */
int invocation_run_one(struct invocation *invocation,
                       enum status (*body)(struct session *session, const struct invocation *invocation,
                                           struct err *err));

/* True if there is only one queue. If not, prints that --queue must name one; the caller returns EX_USAGE. */
bool invocation_is_one(const struct invocation *invocation);

/* Prints which queue the next lines are about, if there are several. */
void print_heading(const struct session *session);

#endif
