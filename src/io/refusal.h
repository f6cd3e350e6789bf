/* What a refusal of Redis is about. Redis 7.0 says that a user may not touch "one of the keys" and at which line a
 * script was stopped; a person wants to know which key, and what stands in that line. */
#ifndef IO_REFUSAL_H
#define IO_REFUSAL_H

#include <stddef.h>

#include "io/resp.h"

enum { REFUSAL_HEAD = 256, REFUSAL_TEXT = 400 };

/* Appends the keys that the command names to an answer that refuses one of them; returns the answer to hand on: `reply`
 * itself, or `explained` with its words in `text`. `head` is the first `length` bytes of the command. */
const struct resp_value *refusal_with_keys(const struct resp_value *reply, const char *head, size_t length,
                                           char text[REFUSAL_TEXT], struct resp_value *explained);

/* The same for an answer that stopped a script: appends the line of `source`. */
const struct resp_value *refusal_with_line(const struct resp_value *reply, const char *name, const char *source,
                                           char text[REFUSAL_TEXT], struct resp_value *explained);

#endif
