/* One connection to Redis, from connect to its end: it never comes back to life, io/queue opens another one.
 *
 * libevent owns the socket, its buffers and TLS, io/resp the bytes. Commands are pipelined; answers come in order, each
 * to the callback of its command. Every command has a deadline, because a silent peer is as gone as a closed one; while
 * bytes move in either direction it is not silent, however slow the line is. */
#ifndef IO_CONNECTION_H
#define IO_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "io/address.h"
#include "io/resp.h"

struct event_base;
struct connection;
struct resolver;

/* Receives the answer to a command; `reply` lives until it returns. NULL: the connection died first, `err` says how,
 * and whether Redis has run the command is unknown. */
typedef void connection_reply_fn(void *context, const struct resp_value *reply, const struct err *err);

/* Where to, as whom, and who is told. */
struct connection_options {
    struct event_base *base;
    const struct address *address;   /* must outlive the connection, as the next two */
    const struct endpoint *endpoint; /* the server that is meant; NULL: the address' first */
    struct resolver *resolver;       /* for host names; NULL: there are none */
    const char *name;                /* CLIENT SETNAME; NULL for none */
    bool sentinel;                   /* the peer is one: its own password, no database */
    bool master_only;                /* down at once unless the server's ROLE is master */
    uint32_t connect_timeout_ms;     /* connecting, TLS and the login together */
    size_t max_reply_bytes;          /* what one answer may cost in memory */
    size_t cut_bytes; /* what is longer in an answer is dropped as it comes (RESP_CUT), and so is what does
                         not fit into max_reply_bytes; 0: such an answer ends the connection */
    void *context;
    void (*on_up)(void *context); /* connected and logged in */
    void (*on_down)(void *context,
                    const struct err *err); /* once, also when it never came up; then the commands' NULLs */
};

/* Starts to connect; the outcome comes as on_up or on_down, never before this returns.
 * Owns: the caller ends the connection with connection_close. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status connection_open(const struct connection_options *options, struct connection **out,
                                       struct err *err);

/* Closes and frees; outstanding commands get their NULL before this returns, on_down is not called. Allowed inside any
 * of its callbacks. NULL is allowed. */
void connection_close(struct connection *connection);

/* Sends a command; `reply` may be NULL when nobody wants the answer. Never calls back before it returns.
 * Errors: STATUS_UNAVAILABLE (not up), STATUS_NO_MEMORY: nothing was sent, no callback comes. */
MUST_CHECK enum status connection_command(struct connection *connection, size_t count, const char *const *arguments,
                                          const size_t *lengths, uint32_t timeout_ms, connection_reply_fn *reply,
                                          void *context, struct err *err);

/* The same for a command that is written but not finished. Owns: takes its bytes, also when it fails. */
MUST_CHECK enum status connection_send_command(struct connection *connection, struct command *command,
                                               uint32_t timeout_ms, connection_reply_fn *reply, void *context,
                                               struct err *err);

/* The same for a command that command_finish has written already; its bytes are copied. */
MUST_CHECK enum status connection_send(struct connection *connection, const char *bytes, size_t length,
                                       uint32_t timeout_ms, connection_reply_fn *reply, void *context, struct err *err);

/* Whether it is connected and logged in, so that commands may be sent. */
bool connection_is_up(const struct connection *connection);

/* Commands sent and not answered. */
size_t connection_outstanding(const struct connection *connection);

#endif
