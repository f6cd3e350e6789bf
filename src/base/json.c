#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

void lexer_skip_space(struct lexer *lexer)
{
    while (lexer->at < lexer->end &&
           (*lexer->at == ' ' || *lexer->at == '\n' || *lexer->at == '\t' || *lexer->at == '\r')) {
        lexer->at++;
    }
}

bool lexer_take(struct lexer *lexer, char expected)
{
    bool there = lexer->at < lexer->end && *lexer->at == expected;
    lexer->at += there;
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

void lexer_skip_plain(struct lexer *lexer)
{
    const char *at = lexer->at, *end = lexer->end;
    while (end - at >= 8 && eight_plain(at)) { at += 8; }
    while (at < end && is_plain(*at)) { at++; }
    lexer->at = at;
}

/* Four hex digits. */
static bool take_hex(struct lexer *lexer, uint32_t *out)
{
    uint32_t value = 0;
    if (lexer->end - lexer->at < 4) { return false; }
    for (int i = 0; i < 4; i++) {
        unsigned c = (unsigned char)lexer->at[i], letter = c | 0x20;
        if (c >= '0' && c <= '9') {
            value = value << 4 | (c - '0');
        } else if (letter >= 'a' && letter <= 'f') {
            value = value << 4 | (letter - 'a' + 10);
        } else {
            return false;
        }
    }
    lexer->at += 4;
    *out = value;
    return true;
}

static enum json_escape read_code_point(struct lexer *lexer, uint32_t *out)
{
    uint32_t second;
    if (!take_hex(lexer, out)) { return JSON_ESCAPE_BAD; }
    if (*out < 0xd800 || *out > 0xdfff) { return JSON_ESCAPE_OK; }
    /* The other half is an escape of its own. */
    if (*out >= 0xdc00 || !lexer_take(lexer, '\\') || !lexer_take(lexer, 'u') || !take_hex(lexer, &second) ||
        second < 0xdc00 || second > 0xdfff) {
        return JSON_ESCAPE_HALF;
    }
    *out = 0x10000 + ((*out - 0xd800) << 10) + (second - 0xdc00);
    return JSON_ESCAPE_OK;
}

enum json_escape lexer_read_escape(struct lexer *lexer, char utf8[4], size_t *length)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (lexer->at == lexer->end) { return JSON_ESCAPE_BAD; }
    char letter = *lexer->at;
    const char *known = memchr(letters, letter, sizeof letters - 1);
    lexer->at += known != NULL || letter == 'u';
    if (known) {
        utf8[0] = meanings[known - letters];
        *length = 1;
        return JSON_ESCAPE_OK;
    }
    uint32_t code_point;
    enum json_escape read = letter == 'u' ? read_code_point(lexer, &code_point) : JSON_ESCAPE_BAD;
    if (read == JSON_ESCAPE_OK) { *length = utf8_put(utf8, code_point); }
    return read;
}

bool buffer_json_decode(struct buffer *to, const char *bytes, size_t length)
{
    struct lexer lexer = {bytes, bytes + length};
    while (lexer.at < lexer.end) {
        char utf8[4];
        size_t count;
        const char *escape = memchr(lexer.at, '\\', (size_t)(lexer.end - lexer.at));
        buffer_append(to, lexer.at, (size_t)((escape ? escape : lexer.end) - lexer.at));
        if (!escape) { return true; }
        lexer.at = escape + 1;
        if (lexer_read_escape(&lexer, utf8, &count) != JSON_ESCAPE_OK) { return false; }
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
void buffer_json_string(struct buffer *to, const char *bytes, size_t length)
{
    struct lexer lexer = {bytes, bytes + length};
    const char *valid_end = bytes + utf8_valid_prefix(bytes, length);
    buffer_string(to, "\"");
    while (lexer.at < lexer.end) {
        const char *run = lexer.at;
        lexer_skip_plain(&lexer);
        lexer.at = lexer.at < valid_end ? lexer.at : valid_end;
        buffer_append(to, run, (size_t)(lexer.at - run));
        if (lexer.at < valid_end) {
            put_escape(to, (unsigned char)*lexer.at++);
        } else if (lexer.at < lexer.end) {
            buffer_string(to, "\xef\xbf\xbd");
            lexer.at++;
            valid_end = lexer.at + utf8_valid_prefix(lexer.at, (size_t)(lexer.end - lexer.at));
        }
    }
    buffer_string(to, "\"");
}
