/* The embedding of a reply as JSON, whatever its encoding. */
#ifndef CLI_EMBEDDING_PRINT_H
#define CLI_EMBEDDING_PRINT_H

#include <stdio.h>

#include "base/err.h"
#include "io/resp.h"

/* Prints the vector as an array of numbers; of a reply to several texts (which has a `count`) as an array of arrays.
 * Errors: STATUS_BAD_INPUT when it is not what the reply's `encoding` and `dim` say; STATUS_NO_MEMORY. */
MUST_CHECK enum status embedding_print(FILE *to, const struct resp_value *reply, const struct resp_value *value,
                                       struct err *err);

#endif
