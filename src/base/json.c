#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

void json_skip_space(struct json_reader *reader)
{
    while (reader->at < reader->end &&
           (*reader->at == ' ' || *reader->at == '\n' || *reader->at == '\t' || *reader->at == '\r')) {
        reader->at++;
    }
}

bool json_take(struct json_reader *reader, char expected)
{
    bool there = reader->at < reader->end && *reader->at == expected;
    reader->at += there;
    return there;
}

static bool is_plain(char c)
{
    return (unsigned char)c >= ' ' && c != '"' && c != '\\';
}

/* Whether eight bytes are plain. The highest bit of a byte of `low` says that it lay below the other operand; a borrow
 * can only make plain bytes look suspicious behind one that is. */
static bool eight_plain(const char *bytes)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x80 * ones;
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    uint64_t quote = word ^ '"' * ones, backslash = word ^ '\\' * ones;
    uint64_t low = ((word - ' ' * ones) & ~word) | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash);
    return (low & tops) == 0;
}

void json_skip_plain(struct json_reader *reader)
{
    const char *at = reader->at, *end = reader->end;
    while (end - at >= 8 && eight_plain(at)) { at += 8; }
    while (at < end && is_plain(*at)) { at++; }
    reader->at = at;
}

/* Four hex digits. */
static bool take_hex(struct json_reader *reader, uint32_t *out)
{
    uint32_t value = 0;
    if (reader->end - reader->at < 4) { return false; }
    for (int i = 0; i < 4; i++) {
        unsigned c = (unsigned char)reader->at[i], letter = c | 0x20;
        if (c >= '0' && c <= '9') {
            value = value << 4 | (c - '0');
        } else if (letter >= 'a' && letter <= 'f') {
            value = value << 4 | (letter - 'a' + 10);
        } else {
            return false;
        }
    }
    reader->at += 4;
    *out = value;
    return true;
}

static enum json_escape read_code_point(struct json_reader *reader, uint32_t *out)
{
    uint32_t second;
    if (!take_hex(reader, out)) { return JSON_ESCAPE_BAD; }
    if (*out < 0xd800 || *out > 0xdfff) { return JSON_ESCAPE_OK; }
    /* The other half is an escape of its own. */
    if (*out >= 0xdc00 || !json_take(reader, '\\') || !json_take(reader, 'u') || !take_hex(reader, &second) ||
        second < 0xdc00 || second > 0xdfff) {
        return JSON_ESCAPE_HALF;
    }
    *out = 0x10000 + ((*out - 0xd800) << 10) + (second - 0xdc00);
    return JSON_ESCAPE_OK;
}

enum json_escape json_read_escape(struct json_reader *reader, char utf8[4], size_t *length)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (reader->at == reader->end) { return JSON_ESCAPE_BAD; }
    char letter = *reader->at;
    const char *known = memchr(letters, letter, sizeof letters - 1);
    reader->at += known != NULL || letter == 'u';
    if (known) {
        utf8[0] = meanings[known - letters];
        *length = 1;
        return JSON_ESCAPE_OK;
    }
    uint32_t code_point;
    enum json_escape read = letter == 'u' ? read_code_point(reader, &code_point) : JSON_ESCAPE_BAD;
    if (read == JSON_ESCAPE_OK) { *length = utf8_put(utf8, code_point); }
    return read;
}

bool json_decode_string(struct buffer *to, const char *bytes, size_t length)
{
    struct json_reader reader = {bytes, bytes + length};
    while (reader.at < reader.end) {
        char utf8[4];
        size_t count;
        const char *escape = memchr(reader.at, '\\', (size_t)(reader.end - reader.at));
        buffer_append(to, reader.at, (size_t)((escape ? escape : reader.end) - reader.at));
        if (!escape) { return true; }
        reader.at = escape + 1;
        if (json_read_escape(&reader, utf8, &count) != JSON_ESCAPE_OK) { return false; }
        buffer_append(to, utf8, count);
    }
    return true;
}

static void put_escape(struct buffer *to, unsigned char c)
{
    static const char letters[] = "\"\\bfnrt", meanings[] = "\"\\\b\f\n\r\t";
    const char *at = c == '\0' ? NULL : strchr(meanings, c);
    if (at) {
        buffer_format(to, "\\%c", letters[at - meanings]);
    } else {
        buffer_format(to, "\\u%04x", c);
    }
}

/* Runs between escapes are copied at once. */
void json_put_string(struct buffer *to, const char *bytes, size_t length)
{
    struct json_reader reader = {bytes, bytes + length};
    const char *valid_end = bytes + utf8_valid_prefix(bytes, length);
    buffer_string(to, "\"");
    while (reader.at < reader.end) {
        const char *run = reader.at;
        json_skip_plain(&reader);
        reader.at = reader.at < valid_end ? reader.at : valid_end;
        buffer_append(to, run, (size_t)(reader.at - run));
        if (reader.at < valid_end) {
            put_escape(to, (unsigned char)*reader.at++);
        } else if (reader.at < reader.end) {
            buffer_string(to, "\xef\xbf\xbd");
            reader.at++;
            valid_end = reader.at + utf8_valid_prefix(reader.at, (size_t)(reader.end - reader.at));
        }
    }
    buffer_string(to, "\"");
}
