/* Floats as JSON text. */
#ifndef BASE_FLOAT_TEXT_H
#define BASE_FLOAT_TEXT_H

#include <stddef.h>

enum { FLOAT_TEXT_MAX = 17 }; /* the longest text of one float: -1.23456789e-38, with room to spare */

/* Writes a finite float as JSON text with as few digits as read back to the same f32, straight or through a double (one
 * more for some powers of two and large integers; at most nine); no NUL follows. Returns the number of bytes, at most
 * FLOAT_TEXT_MAX. */
size_t float_text_put(char *to, float value);

#endif
