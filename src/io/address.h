/* Where a Redis server is and who we are there: what --redis means.
 *
 *     /run/redis/redis.sock                      a bare path: unix socket
 *     unix:/run/redis/redis.sock                 the same, said aloud
 *     redis+unix://[user[:password]@]/path[?db=N]
 *     redis://[user[:password]@]host[:port][/db] percent-encoded where needed, IPv6 in brackets
 *
 * rediss:// (TLS) and sentinel addresses are understood and refused: a later version brings them. */
#ifndef IO_ADDRESS_H
#define IO_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { ADDRESS_TEXT = 256, ADDRESS_PORT = 6379 };

/* Zero-initialise; strings are its own. */
struct address {
    char *path; /* unix socket; NULL for TCP */
    char *host; /* TCP; NULL for a unix socket */
    uint16_t port;
    uint32_t db;
    char *user;     /* NULL: the default user */
    char *password; /* NULL: none; never printed */
};

/* Reads an address as the user wrote it.
 * Owns: the caller ends `out` with address_free. Errors: STATUS_BAD_INPUT, STATUS_UNSUPPORTED, STATUS_NO_MEMORY; `out`
 * is then empty, and no message repeats the text (it may hold a password). */
MUST_CHECK enum status address_parse(const char *text, struct address *out, struct err *err);

/* Sets or replaces user and password (from a file or the environment); NULL leaves what is there.
 * Errors: STATUS_NO_MEMORY; the address is unchanged. */
MUST_CHECK enum status address_set_login(struct address *address, const char *user, const char *password,
                                         struct err *err);

/* Writes the address for logs and messages: no password, cut at the size of `text`; returns `text`. */
const char *address_print(const struct address *address, char text[ADDRESS_TEXT]);

/* Frees the strings (the password is wiped first) and leaves an empty address. */
void address_free(struct address *address);

#endif
