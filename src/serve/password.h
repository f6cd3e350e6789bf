/* The Redis password: from its own file or the environment, into the address and nowhere else. */
#ifndef SERVE_PASSWORD_H
#define SERVE_PASSWORD_H

#include "io/address.h"
#include "serve/config.h"

/* Reads the address that `redis` names and puts the configured password into it (redis_password, or the first line of
 * redis_password_file), over one in the URL.
 * Owns: the caller ends `out` with address_free. Errors: those of address_parse and file_read; STATUS_BAD_INPUT (an
 * empty password file), STATUS_NO_MEMORY; `out` is then empty. */
MUST_CHECK enum status password_address(const struct config *config, struct address *out, struct err *err);

#endif
