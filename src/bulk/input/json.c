/* Recursive descent, at most JSON_PICK_DEPTH_MAX deep. A mask of paths goes down with it: bit p says that the first
 * `depth` names of path p led here. */
#include "bulk/input/json.h"

#include <string.h>

#include "base/json_escape.h"
#include "base/utf8.h"

struct scanner {
    const char *begin, *at, *end;
    char *const *paths;
    uint32_t count;
    struct value *values;
};

static enum json_pick_problem scan_value(struct scanner *scanner, uint32_t depth, uint32_t mask, struct value *out);

static void skip_space(struct scanner *scanner)
{
    while (scanner->at < scanner->end &&
           (*scanner->at == ' ' || *scanner->at == '\n' || *scanner->at == '\t' || *scanner->at == '\r')) {
        scanner->at++;
    }
}

static bool take(struct scanner *scanner, char expected)
{
    if (scanner->at == scanner->end || *scanner->at != expected) {
        return false;
    }
    scanner->at++;
    return true;
}

static bool is_letter_of_escape(const struct scanner *scanner)
{
    return scanner->at < scanner->end && memchr("\"\\/bfnrtu", *scanner->at, 9);
}

/* Scans from behind the opening quote; `out` is what is between the quotes. */
static enum json_pick_problem scan_string(struct scanner *scanner, struct value *out)
{
    out->kind = VALUE_STRING;
    out->bytes = scanner->at;
    while (scanner->at < scanner->end) {
        unsigned char c = (unsigned char)*scanner->at;
        if (c == '"') {
            out->length = (size_t)(scanner->at++ - out->bytes);
            return JSON_PICK_OK;
        }
        if (c < 0x20) {
            return JSON_PICK_BROKEN;
        }
        scanner->at++;
        if (c == '\\') {
            if (!is_letter_of_escape(scanner)) {
                return JSON_PICK_BROKEN;
            }
            scanner->at++;
        }
    }
    return JSON_PICK_BROKEN;
}

static bool skip_digits(struct scanner *scanner)
{
    const char *from = scanner->at;
    while (scanner->at < scanner->end && *scanner->at >= '0' && *scanner->at <= '9') {
        scanner->at++;
    }
    return scanner->at > from;
}

static bool scan_number(struct scanner *scanner)
{
    take(scanner, '-');
    if (!take(scanner, '0') && !skip_digits(scanner)) {
        return false;
    }
    if (take(scanner, '.') && !skip_digits(scanner)) {
        return false;
    }
    if (take(scanner, 'e') || take(scanner, 'E')) {
        if (!take(scanner, '+')) {
            take(scanner, '-');
        }
        return skip_digits(scanner);
    }
    return true;
}

static bool scan_word(struct scanner *scanner, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(scanner->end - scanner->at) < length || memcmp(scanner->at, word, length) != 0) {
        return false;
    }
    scanner->at += length;
    return true;
}

static enum json_pick_problem scan_scalar(struct scanner *scanner, struct value *out)
{
    out->kind = VALUE_SCALAR;
    out->bytes = scanner->at;
    bool good = true;
    if (scan_word(scanner, "null")) {
        out->kind = VALUE_NULL;
    } else {
        good = scan_word(scanner, "true") || scan_word(scanner, "false") || scan_number(scanner);
    }
    out->length = (size_t)(scanner->at - out->bytes);
    return good ? JSON_PICK_OK : JSON_PICK_BROKEN;
}

static enum json_pick_problem scan_array(struct scanner *scanner, uint32_t depth)
{
    struct value ignored;
    skip_space(scanner);
    if (take(scanner, ']')) {
        return JSON_PICK_OK;
    }
    for (;;) {
        enum json_pick_problem problem = scan_value(scanner, depth + 1, 0, &ignored);
        if (problem != JSON_PICK_OK) {
            return problem;
        }
        skip_space(scanner);
        if (take(scanner, ']')) {
            return JSON_PICK_OK;
        }
        if (!take(scanner, ',')) {
            return JSON_PICK_BROKEN;
        }
    }
}

/* Name `number` of a dotted path; returns whether it is the last. */
static bool name_of(const char *path, uint32_t number, const char **name, size_t *length)
{
    for (; number > 0; number--) {
        path = strchr(path, '.') + 1;
    }
    *name = path;
    *length = strcspn(path, ".");
    return path[*length] == '\0';
}

/* The paths in `mask` that continue with this key; `*ends`: those that end with it. */
static uint32_t match(const struct scanner *scanner, uint32_t depth, uint32_t mask, const char *key, size_t key_bytes,
                      uint32_t *ends)
{
    uint32_t on = *ends = 0;
    for (uint32_t p = 0; p < scanner->count; p++) {
        const char *name;
        size_t length;
        if ((mask & 1u << p) == 0) {
            continue;
        }
        bool last = name_of(scanner->paths[p], depth, &name, &length);
        if (length != key_bytes || memcmp(name, key, length) != 0) {
            continue;
        }
        if (last) {
            *ends |= 1u << p;
        } else {
            on |= 1u << p;
        }
    }
    return on;
}

static uint32_t match_key(const struct scanner *scanner, uint32_t depth, uint32_t mask, const struct value *key,
                          uint32_t *ends)
{
    *ends = 0;
    if (mask == 0) {
        return 0;
    }
    if (!memchr(key->bytes, '\\', key->length)) {
        return match(scanner, depth, mask, key->bytes, key->length, ends);
    }
    struct buffer decoded = {0};
    uint32_t on = 0;
    if (json_decode_string(&decoded, key->bytes, key->length) && buffer_ok(&decoded) && decoded.data) {
        on = match(scanner, depth, mask, decoded.data, decoded.length, ends);
    }
    buffer_free(&decoded);
    return on;
}

/* One "key": value. */
static enum json_pick_problem scan_member(struct scanner *scanner, uint32_t depth, uint32_t mask)
{
    struct value key, value = {0};
    uint32_t ends;
    skip_space(scanner);
    enum json_pick_problem problem = take(scanner, '"') ? scan_string(scanner, &key) : JSON_PICK_BROKEN;
    if (problem != JSON_PICK_OK) {
        return problem;
    }
    skip_space(scanner);
    if (!take(scanner, ':')) {
        return JSON_PICK_BROKEN;
    }
    uint32_t on = match_key(scanner, depth, mask, &key, &ends);
    problem = scan_value(scanner, depth + 1, on, &value);
    for (uint32_t p = 0; p < scanner->count && problem == JSON_PICK_OK; p++) {
        if ((ends & 1u << p) != 0) {
            scanner->values[p] = value;
        }
    }
    return problem;
}

static enum json_pick_problem scan_object(struct scanner *scanner, uint32_t depth, uint32_t mask)
{
    skip_space(scanner);
    if (take(scanner, '}')) {
        return JSON_PICK_OK;
    }
    for (;;) {
        enum json_pick_problem problem = scan_member(scanner, depth, mask);
        if (problem != JSON_PICK_OK) {
            return problem;
        }
        skip_space(scanner);
        if (take(scanner, '}')) {
            return JSON_PICK_OK;
        }
        if (!take(scanner, ',')) {
            return JSON_PICK_BROKEN;
        }
    }
}

static enum json_pick_problem scan_value(struct scanner *scanner, uint32_t depth, uint32_t mask, struct value *out)
{
    if (depth > JSON_PICK_DEPTH_MAX) {
        return JSON_PICK_TOO_DEEP;
    }
    skip_space(scanner);
    const char *from = scanner->at;
    if (take(scanner, '"')) {
        return scan_string(scanner, out);
    }
    bool object = take(scanner, '{');
    if (!object && !take(scanner, '[')) {
        return scan_scalar(scanner, out);
    }
    enum json_pick_problem problem = object ? scan_object(scanner, depth, mask) : scan_array(scanner, depth);
    *out = (struct value){VALUE_TREE, from, (size_t)(scanner->at - from)};
    return problem;
}

enum json_pick_problem json_pick(const char *json, size_t length, char *const *paths, uint32_t count,
                                 struct value *values, size_t *at)
{
    struct scanner scanner = {json, json, json + length, paths, count, values};
    struct value whole = {0};
    memset(values, 0, count * sizeof *values);
    *at = utf8_valid_prefix(json, length);
    if (*at < length) {
        return JSON_PICK_BAD_UTF8;
    }
    skip_space(&scanner);
    bool object = scanner.at < scanner.end && *scanner.at == '{';
    uint32_t all = count == 32 ? UINT32_MAX : (1u << count) - 1;
    enum json_pick_problem problem = scan_value(&scanner, 0, all, &whole);
    if (problem == JSON_PICK_OK) {
        skip_space(&scanner);
    }
    if (problem == JSON_PICK_OK && scanner.at < scanner.end) {
        problem = JSON_PICK_BROKEN;
    }
    *at = (size_t)(scanner.at - json);
    return problem == JSON_PICK_OK && !object ? JSON_PICK_NOT_OBJECT : problem;
}

/* --- The names of fields --- */

enum { LIST_BYTES = 160, LIST_NAME_BYTES = 60 };

/* From behind the opening brace; `path` ends with a dot, or is empty. False: there are more than fit. */
static bool list_members(struct scanner *scanner, uint32_t depth, struct buffer *path, struct buffer *to)
{
    size_t path_bytes = path->length;
    struct value key = {0}, value = {0};
    skip_space(scanner);
    while (take(scanner, '"') && scan_string(scanner, &key) == JSON_PICK_OK) {
        if (to->length > LIST_BYTES) {
            return false;
        }
        skip_space(scanner);
        if (!take(scanner, ':') || scan_value(scanner, depth + 1, 0, &value) != JSON_PICK_OK) {
            return true;
        }
        buffer_append(path, key.bytes, key.length);
        if (value.kind == VALUE_TREE && *value.bytes == '{') {
            struct scanner inner = {.begin = value.bytes, .at = value.bytes + 1, .end = value.bytes + value.length};
            buffer_string(path, ".");
            if (!list_members(&inner, depth + 1, path, to)) {
                return false;
            }
        } else if (value.kind != VALUE_TREE && path->length > 0 && buffer_ok(path)) {
            size_t shown = path->length < LIST_NAME_BYTES ? path->length : LIST_NAME_BYTES;
            buffer_format(to, "%s\"%.*s\"", to->length > 0 ? ", " : "", (int)utf8_valid_prefix(path->data, shown),
                          path->data);
        }
        path->length = path_bytes;
        skip_space(scanner);
        take(scanner, ',');
        skip_space(scanner);
    }
    return true;
}

void json_list_fields(struct buffer *to, const char *json, size_t length)
{
    struct scanner scanner = {.begin = json, .at = json, .end = json + length};
    struct buffer path = {0};
    skip_space(&scanner);
    if (take(&scanner, '{') && !list_members(&scanner, 0, &path, to)) {
        buffer_string(to, ", ...");
    }
    buffer_free(&path);
}

/* --- Strings. Runs between escapes are copied at once. Source: RFC 8259, section 7. --- */

static bool stands_for_itself(unsigned char c)
{
    return c >= 0x20 && c != '"' && c != '\\';
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

/* Appends valid UTF-8. */
static void put_valid(struct buffer *to, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t run = at;
        while (at < length && stands_for_itself((unsigned char)bytes[at])) {
            at++;
        }
        buffer_append(to, bytes + run, at - run);
        if (at < length) {
            put_escape(to, (unsigned char)bytes[at++]);
        }
    }
}

void json_put_string(struct buffer *to, const char *bytes, size_t length)
{
    buffer_string(to, "\"");
    while (length > 0) {
        size_t valid = utf8_valid_prefix(bytes, length);
        put_valid(to, bytes, valid);
        if (valid < length) {
            buffer_string(to, "\xef\xbf\xbd");
        }
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
        buffer_append(to, at, (size_t)((escape ? escape : end) - at));
        if (!escape) {
            return true;
        }
        at = escape + 1;
        if (json_escape_read(&at, end, utf8, &count) != JSON_ESCAPE_OK) {
            return false;
        }
        buffer_append(to, utf8, count);
    }
    return true;
}
