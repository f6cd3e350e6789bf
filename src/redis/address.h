/* The address of Redis and the login for it, as --redis gives them.
 *
 *     /run/redis/redis.sock                      a bare path: unix socket
 *     unix:/run/redis/redis.sock                 the same
 *     redis+unix://[user[:password]@]/path[?db=N]
 *     redis://[user[:password]@]host[:port][/db] percent-encoded where needed, IPv6 in brackets
 *     redis://…@host[:port],host[:port]/db       several servers: the one that is master
 *     redis+sentinel://…@host[:port],…/name[/db] the master that these sentinels call `name`
 *     rediss://…, rediss+sentinel://…            the same over TLS
 */
#ifndef REDIS_ADDRESS_H
#define REDIS_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { ADDRESS_TEXT = 256, ADDRESS_PORT = 6379, ADDRESS_SENTINEL_PORT = 26379, ADDRESS_ENDPOINTS_MAX = 16 };

struct tls;

/* A server: a host name or an IP address, and a port. */
struct endpoint {
    char *host;
    uint16_t port;
};

/* Zero-initialise. Owns its strings, endpoints and `tls`. */
struct address {
    char *path;                 /* unix socket; NULL for TCP */
    struct endpoint *endpoints; /* [endpoint_count], TCP: servers, or with `master` sentinels */
    size_t endpoint_count;
    char *master; /* Sentinel's name for the server; NULL: `endpoints` are servers */
    uint32_t db;
    char *user;              /* NULL: the default user */
    char *password;          /* NULL: none. Never printed */
    char *sentinel_password; /* for the sentinels; NULL: none */
    bool encrypted;          /* TLS; nothing connects before `tls` is set */
    struct tls *tls;
};

/* Reads an address as the user wrote it; `tls` and `sentinel_password` stay unset.
 * Owns: the caller ends `out` with address_free. Errors: STATUS_BAD_INPUT, STATUS_NO_MEMORY; `out` is then empty, and
 * no message repeats the text (it may hold a password). */
MUST_CHECK enum status address_parse(const char *text, struct address *out, struct err *err);

/* Replaces a password of an address, its own or that of the sentinels. Errors: STATUS_NO_MEMORY; it is unchanged. */
MUST_CHECK enum status address_set_password(char **password, const char *text, struct err *err);

/* True if the master has to be found, because the address names several servers, or sentinels. */
bool address_is_plural(const struct address *address);

/* Writes the address for logs and messages, without its password, cut to fit; returns `text`. */
const char *address_print(const struct address *address, char text[ADDRESS_TEXT]);

/* The same for an endpoint, as host:port. */
const char *endpoint_print(const struct endpoint *endpoint, char text[ADDRESS_TEXT]);

/* Wipes the passwords, frees everything and leaves an empty address. */
void address_free(struct address *address);

#endif
