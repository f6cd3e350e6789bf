/* A reply of Redis as one line of JSON, whatever its encoding. */
#ifndef CLI_REPLY_PRINT_H
#define CLI_REPLY_PRINT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "io/resp.h"

/* Whether an answer to HGETALL holds a reply that will not change any more. */
bool reply_is_final(const struct resp_value *reply);

/* Prints {"id": ..., every field of the reply}: the vector as an array of numbers, counts as numbers, the rest as
 * strings. Errors: STATUS_BAD_INPUT when the answer is not a reply of Sluice. */
MUST_CHECK enum status reply_print(FILE *to, const char *id, const struct resp_value *reply, struct err *err);

#endif
