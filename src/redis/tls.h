/* TLS for connections to Redis: which authorities we trust, our own certificate, and errors that explain themselves.
 *
 * TLS 1.2 or later. The server's certificate must be valid for the host, and no switch turns that off. Files that have
 * changed are read again, so a renewed certificate needs no restart. */
#ifndef REDIS_TLS_H
#define REDIS_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct ssl_st; /* OpenSSL's SSL */
struct tls;

/* Files; the names are copied. */
struct tls_options {
    const char *ca_file;              /* PEM: the authorities; NULL: the system's */
    const char *cert_file, *key_file; /* PEM: our certificate and its unencrypted key; NULL: none */
};

/* Reads the files.
 * Owns: copies the names; the caller ends it with tls_close. Errors: those of a file that cannot be read;
 * STATUS_BAD_INPUT (no certificate in it, a key of another certificate, an encrypted key), STATUS_NO_MEMORY. */
MUST_CHECK enum status tls_open(const struct tls_options *options, struct tls **out, struct err *err);

/* Frees it; open sessions stay valid. NULL is allowed. */
void tls_close(struct tls *tls);

/* Makes our end of a connection to `host`, a name or IP address that the server's certificate must cover.
 * Owns: the caller gives `out` to libevent, which frees it. Errors: those of tls_open, if files have changed. */
MUST_CHECK enum status tls_session(struct tls *tls, const char *host, struct ssl_st **out, struct err *err);

/* Explains in a sentence why a session failed. `code` is OpenSSL's error (0: the connection just ended), `up`: the
 * handshake was over. False if TLS is not the reason. */
bool tls_explain(const struct tls *tls, const struct ssl_st *session, const char *host, unsigned long code, bool up,
                 char *text, size_t size);

#endif
