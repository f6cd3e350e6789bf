/* Floats as JSON text. */
#ifndef BASE_FLOAT_TEXT_H
#define BASE_FLOAT_TEXT_H

#include <stddef.h>

#include "base/buffer.h"

enum { FLOAT_TEXT_MAX = 17 }; /* the longest text of one float: -1.23456789e-38, with room to spare */

/* Writes a finite float as JSON text with as few digits as read back to the same f32, straight or through a double (one
 * more for some powers of two and large integers; at most nine); no NUL follows. Returns the number of bytes, at most
 * FLOAT_TEXT_MAX. */
size_t float_text_put(char *to, float value);

/* The most room of a list of `count` floats. */
#define FLOAT_LIST_MAX(count) ((size_t)(count) * (FLOAT_TEXT_MAX + 1) + 2)

/* Writes finite floats as an array, without spaces; no NUL follows. Returns the end. */
char *float_list_put(char *to, const float *floats, size_t count);

/* Appends the same. */
void buffer_floats(struct buffer *to, const float *floats, size_t count);

#endif
