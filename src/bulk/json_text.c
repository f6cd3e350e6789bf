/* Everything between two escapes is one run that is copied as it stands. Source: RFC 8259, section 7. */
#include "bulk/json_text.h"

#include <string.h>

#include "base/json_escape.h"
#include "base/utf8.h"

static bool stands_for_itself(unsigned char c)
{
    return c >= 0x20 && c != '"' && c != '\\';
}

static void put_escape(struct buffer *to, unsigned char c)
{
    static const char letters[] = "\"\\bfnrt", meanings[] = "\"\\\b\f\n\r\t";
    const char *at = c == '\0' ? NULL : strchr(meanings, c);
    if (at != NULL)
        buffer_format(to, "\\%c", letters[at - meanings]);
    else
        buffer_format(to, "\\u%04x", c);
}

/* A run of valid UTF-8. */
static void put_valid(struct buffer *to, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t run = at;
        while (at < length && stands_for_itself((unsigned char)bytes[at]))
            at++;
        buffer_append(to, bytes + run, at - run);
        if (at < length)
            put_escape(to, (unsigned char)bytes[at++]);
    }
}

void json_put_string(struct buffer *to, const char *bytes, size_t length)
{
    buffer_string(to, "\"");
    while (length > 0) {
        size_t valid = utf8_valid_prefix(bytes, length);
        put_valid(to, bytes, valid);
        if (valid < length)
            buffer_string(to, "\xef\xbf\xbd");
        size_t taken = valid < length ? valid + 1 : valid;
        bytes += taken;
        length -= taken;
    }
    buffer_string(to, "\"");
}

bool json_decode_string(struct buffer *to, const char *bytes, size_t length)
{
    const char *at = bytes, *end = bytes + length;
    while (at < end) {
        char utf8[4];
        size_t count;
        const char *escape = memchr(at, '\\', (size_t)(end - at));
        buffer_append(to, at, (size_t)((escape == NULL ? end : escape) - at));
        if (escape == NULL)
            return true;
        at = escape + 1;
        if (json_escape_read(&at, end, utf8, &count) != JSON_ESCAPE_OK)
            return false;
        buffer_append(to, utf8, count);
    }
    return true;
}
