/* Everything between two escapes is one run that is copied as it stands. Source: RFC 8259, section 7. */
#include "bulk/json_text.h"

#include <stdint.h>
#include <string.h>

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

/* Four hex digits. */
static bool read_hex(const char *bytes, const char *end, uint32_t *out)
{
    uint32_t value = 0;
    if (end - bytes < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        unsigned c = (unsigned char)bytes[i], letter = c | 0x20;
        if (c >= '0' && c <= '9')
            value = value << 4 | (c - '0');
        else if (letter >= 'a' && letter <= 'f')
            value = value << 4 | (letter - 'a' + 10);
        else
            return false;
    }
    *out = value;
    return true;
}

/* What stands behind \u, and perhaps the \u of a second half; moves `*at` behind it. */
static bool decode_code_point(struct buffer *to, const char **at, const char *end)
{
    uint32_t first, second;
    char utf8[4];
    if (!read_hex(*at, end, &first) || (first >= 0xdc00 && first <= 0xdfff))
        return false;
    *at += 4;
    if (first >= 0xd800 && first <= 0xdbff) {
        if (end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u' || !read_hex(*at + 2, end, &second))
            return false;
        if (second < 0xdc00 || second > 0xdfff)
            return false;
        *at += 6;
        first = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    }
    buffer_append(to, utf8, utf8_put(utf8, first));
    return true;
}

bool json_decode_string(struct buffer *to, const char *bytes, size_t length)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *at = bytes, *end = bytes + length;
    while (at < end) {
        const char *escape = memchr(at, '\\', (size_t)(end - at));
        buffer_append(to, at, (size_t)((escape == NULL ? end : escape) - at));
        if (escape == NULL)
            return true;
        at = escape + 1;
        if (at == end)
            return false;
        char letter = *at++;
        const char *known = memchr(letters, letter, sizeof letters - 1);
        if (known != NULL)
            buffer_append(to, &meanings[known - letters], 1);
        else if (letter != 'u' || !decode_code_point(to, &at, end))
            return false;
    }
    return true;
}
