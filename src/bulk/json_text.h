/* Strings of JSON, both ways. */
#ifndef BULK_JSON_TEXT_H
#define BULK_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/* Appends bytes as a JSON string, quotes and all; what is not UTF-8 becomes U+FFFD. */
void json_put_string(struct buffer *to, const char *bytes, size_t length);

/* Appends what a JSON string says; `bytes` are those between the quotes, valid UTF-8. False when an escape is unknown
 * or half of a surrogate pair stands alone; the content is then not complete. */
bool json_decode_string(struct buffer *to, const char *bytes, size_t length);

#endif
