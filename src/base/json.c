#include "base/json.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
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

/* Returns whether eight bytes are plain. The highest bit of a byte of `low` says that it was below the other operand; a
 * borrow can only make plain bytes after a special one look special, too. */
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

bool lexer_string(struct lexer *lexer, const char **bytes, size_t *length)
{
    *bytes = lexer->at;
    for (lexer_skip_plain(lexer); !lexer_take(lexer, '"'); lexer_skip_plain(lexer)) {
        if (!lexer_take(lexer, '\\') || lexer->at == lexer->end || !memchr("\"\\/bfnrtu", *lexer->at, 9)) {
            return false;
        }
        lexer->at++;
    }
    *length = (size_t)(lexer->at - 1 - *bytes);
    return true;
}

static bool skip_digits(struct lexer *lexer)
{
    const char *from = lexer->at;
    while (lexer->at < lexer->end && *lexer->at >= '0' && *lexer->at <= '9') { lexer->at++; }
    return lexer->at > from;
}

static bool skip_number(struct lexer *lexer)
{
    lexer_take(lexer, '-');
    if (!lexer_take(lexer, '0') && !skip_digits(lexer)) { return false; }
    if (lexer_take(lexer, '.') && !skip_digits(lexer)) { return false; }
    if (lexer_take(lexer, 'e') || lexer_take(lexer, 'E')) {
        if (!lexer_take(lexer, '+')) { lexer_take(lexer, '-'); }
        return skip_digits(lexer);
    }
    return true;
}

static bool skip_word(struct lexer *lexer, const char *word)
{
    size_t length = strlen(word);
    bool there = (size_t)(lexer->end - lexer->at) >= length && memcmp(lexer->at, word, length) == 0;
    lexer->at += there ? length : 0;
    return there;
}

bool lexer_scalar(struct lexer *lexer)
{
    return skip_word(lexer, "null") || skip_word(lexer, "true") || skip_word(lexer, "false") || skip_number(lexer);
}

bool lexer_value(struct lexer *lexer, unsigned depth)
{
    const char *bytes;
    size_t length;
    lexer_skip_space(lexer);
    if (lexer_take(lexer, '"')) { return lexer_string(lexer, &bytes, &length); }
    bool object = lexer_take(lexer, '{');
    if (!object && !lexer_take(lexer, '[')) { return lexer_scalar(lexer); }
    char end = object ? '}' : ']';
    lexer_skip_space(lexer);
    if (depth == JSON_DEPTH_MAX) { return false; }
    if (lexer_take(lexer, end)) { return true; }
    do {
        lexer_skip_space(lexer);
        if (object && !(lexer_take(lexer, '"') && lexer_string(lexer, &bytes, &length))) { return false; }
        lexer_skip_space(lexer);
        if ((object && !lexer_take(lexer, ':')) || !lexer_value(lexer, depth + 1)) { return false; }
        lexer_skip_space(lexer);
    } while (lexer_take(lexer, ','));
    return lexer_take(lexer, end);
}

bool lexer_next_member(struct lexer *lexer, struct lexer_member *member)
{
    bool first = !member->name;
    lexer_skip_space(lexer);
    bool more = lexer_take(lexer, first ? '{' : ',');
    lexer_skip_space(lexer);
    member->whole = more == first && lexer_take(lexer, '}');
    if (!more || member->whole || !lexer_take(lexer, '"') || !lexer_string(lexer, &member->name, &member->length)) {
        return false;
    }
    lexer_skip_space(lexer);
    if (!lexer_take(lexer, ':')) { return false; }
    lexer_skip_space(lexer);
    return true;
}

bool lexer_member_is(const struct lexer_member *member, const char *name)
{
    return strlen(name) == member->length && memcmp(name, member->name, member->length) == 0;
}

bool json_valid(const char *bytes, size_t length)
{
    struct lexer lexer = {bytes, bytes + length};
    if (!utf8_valid(bytes, length) || !lexer_value(&lexer, 0)) { return false; }
    lexer_skip_space(&lexer);
    return lexer.at == lexer.end;
}

/* Four hex digits. */
static bool take_hex(struct lexer *lexer, uint32_t *out)
{
    uint32_t value = 0;
    if (lexer->end - lexer->at < 4) { return false; }
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(lexer->at[i]);
        if (digit < 0) { return false; }
        value = value << 4 | (unsigned)digit;
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
    /* The other half is a second escape. */
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

bool json_member(const char *object, size_t length, const char *name, const char **value, size_t *value_length)
{
    struct lexer lexer = {object, object ? object + length : NULL};
    struct lexer_member member = {0};
    while (lexer_next_member(&lexer, &member)) {
        *value = lexer.at;
        if (!lexer_value(&lexer, 1)) { return false; }
        *value_length = (size_t)(lexer.at - *value);
        if (lexer_member_is(&member, name)) { return true; }
    }
    return false;
}

bool json_member_text(const char *object, size_t length, const char *name, char *text, size_t size)
{
    const char *value;
    size_t value_length;
    struct buffer decoded = {0};
    text[0] = '\0';
    if (!json_member(object, length, name, &value, &value_length)) { return false; }
    if (value[0] == '"') {
        (void)buffer_json_decode(&decoded, value + 1, value_length - 2);
    } else {
        buffer_append(&decoded, value, value_length);
    }
    size_t kept = decoded.length < size ? decoded.length : size - 1;
    if (kept > 0) { memcpy(text, decoded.data, kept); }
    text[kept] = '\0';
    buffer_free(&decoded);
    return true;
}

bool json_member_number(const char *object, size_t length, const char *name, uint64_t *number)
{
    char text[24];
    bool there = json_member_text(object, length, name, text, sizeof text) && text[0] >= '0' && text[0] <= '9';
    *number = there ? strtoull(text, NULL, 10) : 0;
    return there;
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

/* Each run between escapes is copied as one. */
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

size_t json_escaped(char *to, const char *bytes, size_t length, size_t *used)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char c = (unsigned char)bytes[0];
    size_t printable = utf8_printable(bytes, length);
    *used = printable > 0 ? printable : 1;
    if (c == '"' || c == '\\') {
        to[0] = '\\';
        to[1] = (char)c;
        return 2;
    }
    if (printable > 0) {
        memcpy(to, bytes, printable);
        return printable;
    }
    unsigned code = c < 0x80 ? c : 0xfffd;
    if (c == 0xc2 && length > 1 && ((unsigned char)bytes[1] & 0xe0) == 0x80) {
        code = (unsigned char)bytes[1];
        *used = 2;
    }
    memcpy(to, "\\u", 2);
    for (int i = 0; i < 4; i++) { to[2 + i] = digits[code >> (12 - 4 * i) & 15]; }
    return JSON_ESCAPE_BYTES;
}

/* Appends the content of a string, or (`whole`) valid JSON, which stays as it is except for bytes that break its line
 * or control a terminal. */
static void put_content(struct buffer *to, const char *bytes, size_t length, bool whole)
{
    for (size_t at = 0, used = 0; at < length; at += used) {
        size_t run = at;
        for (; at < length && bytes[at] >= ' ' && bytes[at] <= '~'; at++) {
            if (!whole && (bytes[at] == '"' || bytes[at] == '\\')) { break; }
        }
        buffer_append(to, bytes + run, at - run);
        char text[JSON_ESCAPE_BYTES];
        used = at < length;
        if (at < length && !(whole && (unsigned char)bytes[at] < ' ')) { /* else white space between its parts */
            buffer_append(to, text, json_escaped(text, bytes + at, length - at, &used));
        }
    }
}

static void put_double(struct buffer *to, const char *spec, size_t length, int precision, double number)
{
    if (length > 0 && spec[1] != '*') { precision = atoi(spec + 1); }
    if (!isfinite(number)) {
        buffer_string(to, "null");
    } else {
        buffer_format(to, spec[length] == 'g' ? "%.*g" : "%.*f", precision, number);
    }
}

/* Appends the format up to its next conversion, or its end, and returns where that is. `*inside`: in a string. */
static const char *put_literal(struct buffer *to, const char *format, bool *inside)
{
    size_t length = strcspn(format, "%");
    char *out = buffer_reserve(to, length + 1);
    for (size_t i = 0; out && i < length; i++) {
        *inside ^= format[i] == '\'';
        out[i] = format[i] == '\'' ? '"' : format[i];
    }
    to->length += out ? length : 0;
    return format + length;
}

void buffer_json(struct buffer *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bool inside = false, first = to->length > 0 && memchr("[{", to->data[to->length - 1], 2);
    const char *at = format + (first && *format == ',');
    while (*(at = put_literal(to, at, &inside)) != '\0') {
        const char *spec = ++at;
        while (!memchr("sduxgf", *at, 6)) { at++; }
        bool wide = at > spec && (at[-1] == 'l' || at[-1] == 'z'); /* all of these have 64 bits */
        int star = memchr(spec, '*', (size_t)(at - spec)) ? va_arg(args, int) : -1;
        if (*at == 's') {
            const char *text = va_arg(args, const char *);
            size_t length = star < 0 ? strlen(text) : (size_t)star;
            bool null = star < 0 && length == 0 && !inside;
            buffer_string(to, null ? "null" : inside ? "" : "\"");
            put_content(to, text, length, false);
            buffer_string(to, null || inside ? "" : "\"");
        } else if (*at == 'g' || *at == 'f') {
            put_double(to, spec, (size_t)(at - spec), star < 0 ? DBL_DIG : star, va_arg(args, double));
        } else {
            unsigned long long number = wide         ? va_arg(args, unsigned long long)
                                        : *at == 'd' ? (unsigned long long)va_arg(args, int)
                                                     : va_arg(args, unsigned);
            char text[24];
            bool null = *spec == '+' && number > LLONG_MAX;
            int length = snprintf(text, sizeof text,
                                  *spec == 'h' ? number ? "true" : "false"
                                  : null       ? "null"
                                  : *at == 'd' ? "%lld"
                                  : *at == 'u' ? "%llu"
                                               : "%016llx",
                                  number);
            buffer_append(to, text, (size_t)length);
        }
        at++;
    }
    va_end(args);
}

bool buffer_json_value(struct buffer *to, const char *bytes, size_t length)
{
    bool valid = json_valid(bytes, length);
    if (valid) { put_content(to, bytes, length, true); }
    return valid;
}
