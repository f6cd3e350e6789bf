/* TLS for connections to Redis: who may sign the server's certificate, what we show of ourselves, and what went wrong.
 *
 * TLS 1.2 at least, the server's certificate must be valid for the host that was asked for, and there is no switch that
 * turns any of it off. The files are read again when they have changed, so that a renewed certificate needs no
 * restart. */
#ifndef IO_TLS_H
#define IO_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct ssl_st; /* OpenSSL's SSL */
struct tls;

/* Files; the names are copied. */
struct tls_options {
    const char *ca_file;              /* PEM: who may sign; NULL: the system's list */
    const char *cert_file, *key_file; /* PEM: our own certificate and its key, unencrypted; NULL: none */
};

/* Reads the files.
 * Owns: copies the names; the caller ends it with tls_close. Errors: those of a file that cannot be read;
 * STATUS_BAD_INPUT (no certificate in it, a key of another certificate, an encrypted key), STATUS_NO_MEMORY. */
MUST_CHECK enum status tls_open(const struct tls_options *options, struct tls **out, struct err *err);

/* Frees it; sessions that are open live on. NULL is allowed. */
void tls_close(struct tls *tls);

/* Makes our end of a connection to `host`, a name or an IP address, which the server's certificate must bear.
 * Owns: the caller gives `out` to libevent, which frees it. Errors: as tls_open, when the files have changed. */
MUST_CHECK enum status tls_session(struct tls *tls, const char *host, struct ssl_st **out, struct err *err);

/* Writes in a sentence why a session failed: `code` is OpenSSL's error (0: the connection just ended), `up` whether
 * the handshake was over. False when TLS has nothing to say about it. */
bool tls_explain(const struct tls *tls, const struct ssl_st *session, const char *host, unsigned long code, bool up,
                 char *text, size_t size);

#endif
