#include "base/json_escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

/* Four hex digits. */
static bool take_hex(const char **at, const char *end, uint32_t *out)
{
    uint32_t value = 0;
    if (end - *at < 4) {
        return false;
    }
    for (int i = 0; i < 4; i++) {
        unsigned c = (unsigned char)(*at)[i], letter = c | 0x20;
        if (c >= '0' && c <= '9') {
            value = value << 4 | (c - '0');
        } else if (letter >= 'a' && letter <= 'f') {
            value = value << 4 | (letter - 'a' + 10);
        } else {
            return false;
        }
    }
    *at += 4;
    *out = value;
    return true;
}

/* The other half, an escape of its own. */
static bool take_second(const char **at, const char *end, uint32_t *out)
{
    for (const char *c = "\\u"; *c != '\0'; c++, ++*at) {
        if (*at == end || **at != *c) {
            return false;
        }
    }
    return take_hex(at, end, out) && *out >= 0xdc00 && *out <= 0xdfff;
}

static enum json_escape read_code_point(const char **at, const char *end, uint32_t *out)
{
    uint32_t second;
    if (!take_hex(at, end, out)) {
        return JSON_ESCAPE_BAD;
    }
    if (*out < 0xd800 || *out > 0xdfff) {
        return JSON_ESCAPE_OK;
    }
    if (*out >= 0xdc00 || !take_second(at, end, &second)) {
        return JSON_ESCAPE_HALF;
    }
    *out = 0x10000 + ((*out - 0xd800) << 10) + (second - 0xdc00);
    return JSON_ESCAPE_OK;
}

enum json_escape json_escape_read(const char **at, const char *end, char utf8[4], size_t *length)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (*at == end) {
        return JSON_ESCAPE_BAD;
    }
    char letter = **at;
    const char *known = memchr(letters, letter, sizeof letters - 1);
    *at += known != NULL || letter == 'u';
    if (known) {
        utf8[0] = meanings[known - letters];
        *length = 1;
        return JSON_ESCAPE_OK;
    }
    uint32_t code_point;
    enum json_escape read = letter == 'u' ? read_code_point(at, end, &code_point) : JSON_ESCAPE_BAD;
    if (read == JSON_ESCAPE_OK) {
        *length = utf8_put(utf8, code_point);
    }
    return read;
}
