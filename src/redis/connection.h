/* One connection to Redis, from connect to its end. A dead one never comes back; redis/queue opens another.
 *
 * libevent owns the socket, its buffers and TLS; redis/resp parses the bytes. Commands are pipelined, and each answer
 * goes to the callback of its command. Every command has a deadline, because a silent peer is as bad as a closed one;
 * while bytes move in either direction the peer is not silent, however slow the line. */
#ifndef REDIS_CONNECTION_H
#define REDIS_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "redis/address.h"
#include "redis/resp.h"

struct event_base;
struct connection;
struct resolver;

/* Receives the answer to a command; `reply` lives until it returns. NULL: the connection died first, on_down has said
 * why, and whether Redis ran the command is unknown. */
typedef void connection_reply_fn(void *context, const struct resp_value *reply);

/* The peer, the login, limits, and callbacks. */
struct connection_options {
    struct event_base *base;
    const struct address *address;   /* must outlive the connection, like the next two */
    const struct endpoint *endpoint; /* which server; NULL: the first of the address */
    struct resolver *resolver;       /* for host names; NULL: there are none */
    const char *name;                /* CLIENT SETNAME; NULL for none */
    bool sentinel;                   /* the peer is a sentinel: its own password, no database */
    bool master_only;                /* goes down unless the server's ROLE is master */
    uint32_t connect_timeout_ms;     /* for connecting, TLS and login together */
    size_t max_reply_bytes;          /* memory that one answer may cost */
    size_t cut_bytes; /* a longer string in an answer is dropped as it arrives (RESP_CUT), and so is what does
                                      not fit into max_reply_bytes; 0: such an answer ends the connection */
    void *context;
    void (*on_up)(void *context); /* connected and logged in */
    void (*on_down)(void *context,
                    const struct err *err); /* once, also if it never came up; then the commands get NULL */
};

/* Starts to connect; on_up or on_down follows, but never before this returns.
 * Owns: the caller ends the connection with connection_close. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status connection_open(const struct connection_options *options, struct connection **out,
                                       struct err *err);

/* True if the server closed it while it was up; known once on_down is called. NULL: false. */
bool connection_was_closed(const struct connection *connection);

/* Returns a second descriptor of its socket, which shows whether the server closes the connection, even after we have
 * closed ours. Owns: the caller closes it. -1: there is none. */
int connection_duplicate(const struct connection *connection);

/* Closes and frees. Outstanding commands get NULL before this returns; on_down is not called. Allowed inside any of its
 * callbacks. NULL is allowed. */
void connection_close(struct connection *connection);

/* Sends a command; `reply` may be NULL. Never calls `reply` before it returns.
 * Errors: STATUS_UNAVAILABLE (not up), STATUS_NO_MEMORY: nothing was sent, no callback comes. */
MUST_CHECK enum status connection_command(struct connection *connection, size_t count, const char *const *arguments,
                                          const size_t *lengths, uint32_t timeout_ms, connection_reply_fn *reply,
                                          void *context, struct err *err);

/* connection_command for a command that is not finished yet. Owns: takes its bytes, also on error. */
MUST_CHECK enum status connection_send_command(struct connection *connection, struct command *command,
                                               uint32_t timeout_ms, connection_reply_fn *reply, void *context,
                                               struct err *err);

/* connection_command for the bytes of a finished command, which are copied. */
MUST_CHECK enum status connection_send(struct connection *connection, const char *bytes, size_t length,
                                       uint32_t timeout_ms, connection_reply_fn *reply, void *context, struct err *err);

#endif
