/* Bytes of others on a terminal: whatever they are, they stay on their line and control nothing. */
#ifndef CLI_PRINT_H
#define CLI_PRINT_H

#include <stddef.h>
#include <stdio.h>

/* Prints bytes as they are where they are printable UTF-8; the rest as \xNN. */
void print_bytes(FILE *to, const char *bytes, size_t length);

/* Prints bytes as a string of JSON, with quotes around it. Controls (C0, DEL, and C1, which some terminals obey like an
 * escape sequence) become \uNNNN, what is not UTF-8 becomes \ufffd. */
void print_json_string(FILE *to, const char *bytes, size_t length);

#endif
