/* Explains refusals. Redis 7.0 only says that a user may not access "one of the keys", or names the line at which a
 * script stopped; a person wants to know which key, and what the line says. */
#ifndef IO_REFUSAL_H
#define IO_REFUSAL_H

#include <stddef.h>

#include "io/resp.h"

enum { REFUSAL_HEAD = 256, REFUSAL_TEXT = 400 };

/* Appends the command's keys to a reply that refuses one of them. Returns `reply` itself, or `explained`, whose text is
 * in `text`. `head` is the first `length` bytes of the command. */
const struct resp_value *refusal_with_keys(const struct resp_value *reply, const char *head, size_t length,
                                           char text[REFUSAL_TEXT], struct resp_value *explained);

/* Likewise for an error that stopped a script: appends that line of `source`. */
const struct resp_value *refusal_with_line(const struct resp_value *reply, const char *name, const char *source,
                                           char text[REFUSAL_TEXT], struct resp_value *explained);

#endif
