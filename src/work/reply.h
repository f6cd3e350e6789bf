/* A finished row's floats as the bytes of its reply, in the asked encoding. */
#ifndef WORK_REPLY_H
#define WORK_REPLY_H

#include <stddef.h>

#include "work/request.h"

enum { REPLY_FLOAT_MAX = 17 }; /* the longest text of one float: -1.23456789e-38, with room to spare */

/* Writes the embedding of a computed request into request->reply: what a prep thread does for ACTION_FORMAT.
 * A vector with NaN or infinity never leaves: the request gets CODE_NON_FINITE instead; CODE_OUT_OF_MEMORY when the
 * reply did not fit into memory. Owns: nothing. Thread: any, one per request. */
void reply_format(struct request *request);

/* Writes a finite float as JSON text of at most nine significant digits that reads back to the same f32; no NUL behind.
 * Returns the number of bytes, at most REPLY_FLOAT_MAX. */
size_t reply_put_float(char *to, float value);

#endif
