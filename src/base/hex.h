/* Reads and writes hexadecimal digits. */
#ifndef BASE_HEX_H
#define BASE_HEX_H

#include <stddef.h>

/* The value of a digit of either case, or -1. */
int hex_digit(char c);

/* Writes bytes as lower-case digits. Shapes: to [2 * count + 1]. */
void hex_write(char *to, const void *bytes, size_t count);

#endif
