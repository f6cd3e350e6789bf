/* The floats of finished rows as the bytes of a reply: cut, normalised and encoded as the request says. */
#ifndef WORK_REPLY_H
#define WORK_REPLY_H

#include <stddef.h>

#include "work/request.h"

enum { REPLY_FLOAT_MAX = 17 };    /* the longest text of one float: -1.23456789e-38, with room to spare */
#define REPLY_HALF_LIMIT 65520.0f /* what is not below it, f16 cannot hold */

/* Writes the embedding of a computed request into request->reply: what a prep thread does for ACTION_FORMAT,
 * once. A vector with NaN or infinity never leaves: the request gets CODE_NON_FINITE instead; CODE_BAD_REQUEST
 * when f16 cannot hold it; CODE_OUT_OF_MEMORY when the reply did not fit into memory. Shapes: the rows' outputs
 * lie one behind the other, [row_count, dim] f32; afterwards they are no more what they were. Owns: nothing.
 * Thread: any, one per request. */
void reply_format(struct request *request);

/* The memory that request->reply takes at most, once it is written. */
size_t reply_bound(const struct request *request);

/* Writes a finite float as JSON text with as few digits as read back to the same f32, straight or through a double (one
 * more for some powers of two and large integers; at most nine); no NUL behind. Returns the number of bytes, at most
 * REPLY_FLOAT_MAX. */
size_t reply_put_float(char *to, float value);

/* The bits of the nearest f16, ties to even. `value` is below REPLY_HALF_LIMIT. */
uint16_t reply_half(float value);

#endif
