/* The Redis address with what goes with it: passwords from files or the environment, and the keys of TLS. */
#ifndef SERVE_PASSWORD_H
#define SERVE_PASSWORD_H

#include "io/address.h"
#include "serve/config.h"

/* Reads the address that `redis` names and puts the configured password into it (redis_password, or the first line of
 * redis_password_file), over one in the URL; likewise the sentinels' password and the TLS files. A setting that such an
 * address has no use for is refused: who set tls_ca_file believes that the connection is encrypted.
 * Owns: the caller ends `out` with address_free. Errors: those of address_parse, file_read and tls_open;
 * STATUS_BAD_INPUT (an empty password file, a setting without use), STATUS_NO_MEMORY; `out` is then empty. */
MUST_CHECK enum status password_address(const struct config *config, struct address *out, struct err *err);

#endif
