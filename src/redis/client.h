/* A blocking Redis client for commands that a person types (`submit`, `get`), with its own event loop. */
#ifndef REDIS_CLIENT_H
#define REDIS_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "redis/address.h"
#include "redis/resp.h"

struct client;

/* Connects and logs in within timeout_ms, which is also the timeout of each answer (added to what a blocking command
 * may block, see client_send). Owns: the caller ends it with client_close; `address` must outlive it.
 * Errors: STATUS_UNAVAILABLE, STATUS_DENIED, STATUS_TIMEOUT, STATUS_NO_MEMORY. */
MUST_CHECK enum status client_open(const struct address *address, uint32_t timeout_ms, struct client **out,
                                   struct err *err);

/* Closes the connection and frees the last answer. NULL is allowed. */
void client_close(struct client *client);

/* Sends a command and returns its answer. An error reply is an error, and then `*out` is that reply; on any other error
 * it is NULL. Owns: `*out` lives until the next call with this client. Errors: as client_open, or what resp_check says
 * of an error reply (STATUS_INTERNAL for unknown ones), with its text. */
MUST_CHECK enum status client_command(struct client *client, size_t count, const char *const *arguments,
                                      const size_t *lengths, const struct resp_value **out, struct err *err);

/* Sends a command without waiting for its answer, for pipelining: send many, then receive their answers in order.
 * `lengths` may be NULL for C strings.
 * Units: block_ms is what the command itself may block (BLPOP, XREAD), 0 for others. Errors: as client_open. */
MUST_CHECK enum status client_send(struct client *client, size_t count, const char *const *arguments,
                                   const size_t *lengths, uint32_t block_ms, struct err *err);

/* Waits for the answer to the oldest command that has none yet. Owns and Errors: as client_command. */
MUST_CHECK enum status client_receive(struct client *client, const struct resp_value **out, struct err *err);

#endif
