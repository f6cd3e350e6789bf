/* Recursive descent, at most PICK_DEPTH_MAX deep. A mask of paths goes down with it: bit p says that the first
 * `depth` names of path p led here. */
#include "bulk/input/json.h"

#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

struct scanner {
    struct json_reader reader;
    char *const *paths;
    uint32_t count;
    struct value *values;
};

static enum pick_problem scan_value(struct scanner *scanner, uint32_t depth, uint32_t mask, struct value *out);

/* Scans from behind the opening quote; `out` is what is between the quotes. */
static enum pick_problem scan_string(struct scanner *scanner, struct value *out)
{
    struct json_reader *reader = &scanner->reader;
    const char *begin = reader->at;
    for (json_skip_plain(reader); !json_take(reader, '"'); json_skip_plain(reader)) {
        if (!json_take(reader, '\\') || reader->at == reader->end || !memchr("\"\\/bfnrtu", *reader->at, 9)) {
            return PICK_BROKEN;
        }
        reader->at++;
    }
    *out = (struct value){VALUE_STRING, begin, (size_t)(reader->at - 1 - begin)};
    return PICK_OK;
}

static bool skip_digits(struct scanner *scanner)
{
    const char *from = scanner->reader.at;
    while (scanner->reader.at < scanner->reader.end && *scanner->reader.at >= '0' && *scanner->reader.at <= '9') {
        scanner->reader.at++;
    }
    return scanner->reader.at > from;
}

static bool scan_number(struct scanner *scanner)
{
    json_take(&scanner->reader, '-');
    if (!json_take(&scanner->reader, '0') && !skip_digits(scanner)) { return false; }
    if (json_take(&scanner->reader, '.') && !skip_digits(scanner)) { return false; }
    if (json_take(&scanner->reader, 'e') || json_take(&scanner->reader, 'E')) {
        if (!json_take(&scanner->reader, '+')) { json_take(&scanner->reader, '-'); }
        return skip_digits(scanner);
    }
    return true;
}

static bool scan_word(struct scanner *scanner, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(scanner->reader.end - scanner->reader.at) < length || memcmp(scanner->reader.at, word, length) != 0) {
        return false;
    }
    scanner->reader.at += length;
    return true;
}

static enum pick_problem scan_scalar(struct scanner *scanner, struct value *out)
{
    out->kind = VALUE_SCALAR;
    out->bytes = scanner->reader.at;
    bool good = true;
    if (scan_word(scanner, "null")) {
        out->kind = VALUE_NULL;
    } else {
        good = scan_word(scanner, "true") || scan_word(scanner, "false") || scan_number(scanner);
    }
    out->length = (size_t)(scanner->reader.at - out->bytes);
    return good ? PICK_OK : PICK_BROKEN;
}

static enum pick_problem scan_array(struct scanner *scanner, uint32_t depth)
{
    struct value ignored;
    json_skip_space(&scanner->reader);
    if (json_take(&scanner->reader, ']')) { return PICK_OK; }
    for (;;) {
        enum pick_problem problem = scan_value(scanner, depth + 1, 0, &ignored);
        if (problem != PICK_OK) { return problem; }
        json_skip_space(&scanner->reader);
        if (json_take(&scanner->reader, ']')) { return PICK_OK; }
        if (!json_take(&scanner->reader, ',')) { return PICK_BROKEN; }
    }
}

/* Name `number` of a dotted path; returns whether it is the last. */
static bool name_of(const char *path, uint32_t number, const char **name, size_t *length)
{
    for (; number > 0; number--) { path = strchr(path, '.') + 1; }
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
        if ((mask & 1u << p) == 0) { continue; }
        bool last = name_of(scanner->paths[p], depth, &name, &length);
        if (length != key_bytes || memcmp(name, key, length) != 0) { continue; }
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
    if (mask == 0) { return 0; }
    if (!memchr(key->bytes, '\\', key->length)) { return match(scanner, depth, mask, key->bytes, key->length, ends); }
    struct buffer decoded = {0};
    uint32_t on = 0;
    if (json_decode_string(&decoded, key->bytes, key->length) && buffer_ok(&decoded) && decoded.data) {
        on = match(scanner, depth, mask, decoded.data, decoded.length, ends);
    }
    buffer_free(&decoded);
    return on;
}

/* One "key": value. */
static enum pick_problem scan_member(struct scanner *scanner, uint32_t depth, uint32_t mask)
{
    struct value key, value = {0};
    uint32_t ends;
    json_skip_space(&scanner->reader);
    enum pick_problem problem = json_take(&scanner->reader, '"') ? scan_string(scanner, &key) : PICK_BROKEN;
    if (problem != PICK_OK) { return problem; }
    json_skip_space(&scanner->reader);
    if (!json_take(&scanner->reader, ':')) { return PICK_BROKEN; }
    uint32_t on = match_key(scanner, depth, mask, &key, &ends);
    problem = scan_value(scanner, depth + 1, on, &value);
    for (uint32_t p = 0; p < scanner->count && problem == PICK_OK; p++) {
        if ((ends & 1u << p) != 0) { scanner->values[p] = value; }
    }
    return problem;
}

static enum pick_problem scan_object(struct scanner *scanner, uint32_t depth, uint32_t mask)
{
    json_skip_space(&scanner->reader);
    if (json_take(&scanner->reader, '}')) { return PICK_OK; }
    for (;;) {
        enum pick_problem problem = scan_member(scanner, depth, mask);
        if (problem != PICK_OK) { return problem; }
        json_skip_space(&scanner->reader);
        if (json_take(&scanner->reader, '}')) { return PICK_OK; }
        if (!json_take(&scanner->reader, ',')) { return PICK_BROKEN; }
    }
}

static enum pick_problem scan_value(struct scanner *scanner, uint32_t depth, uint32_t mask, struct value *out)
{
    if (depth > PICK_DEPTH_MAX) { return PICK_TOO_DEEP; }
    json_skip_space(&scanner->reader);
    const char *from = scanner->reader.at;
    if (json_take(&scanner->reader, '"')) { return scan_string(scanner, out); }
    bool object = json_take(&scanner->reader, '{');
    if (!object && !json_take(&scanner->reader, '[')) { return scan_scalar(scanner, out); }
    enum pick_problem problem = object ? scan_object(scanner, depth, mask) : scan_array(scanner, depth);
    *out = (struct value){VALUE_TREE, from, (size_t)(scanner->reader.at - from)};
    return problem;
}

enum pick_problem pick_fields(const char *json, size_t length, char *const *paths, uint32_t count, struct value *values,
                              size_t *at)
{
    struct scanner scanner = {{json, json + length}, paths, count, values};
    struct value whole = {0};
    memset(values, 0, count * sizeof *values);
    *at = utf8_valid_prefix(json, length);
    if (*at < length) { return PICK_BAD_UTF8; }
    json_skip_space(&scanner.reader);
    bool object = scanner.reader.at < scanner.reader.end && *scanner.reader.at == '{';
    uint32_t all = count == 32 ? UINT32_MAX : (1u << count) - 1;
    enum pick_problem problem = scan_value(&scanner, 0, all, &whole);
    if (problem == PICK_OK) { json_skip_space(&scanner.reader); }
    if (problem == PICK_OK && scanner.reader.at < scanner.reader.end) { problem = PICK_BROKEN; }
    *at = (size_t)(scanner.reader.at - json);
    return problem == PICK_OK && !object ? PICK_NOT_OBJECT : problem;
}

/* --- The names of fields --- */

enum { LIST_BYTES = 160, LIST_NAME_BYTES = 60 };

/* From behind the opening brace; `path` ends with a dot, or is empty. False: there are more than fit. */
static bool list_members(struct scanner *scanner, uint32_t depth, struct buffer *path, struct buffer *to)
{
    size_t path_bytes = path->length;
    struct value key = {0}, value = {0};
    json_skip_space(&scanner->reader);
    while (json_take(&scanner->reader, '"') && scan_string(scanner, &key) == PICK_OK) {
        if (to->length > LIST_BYTES) { return false; }
        json_skip_space(&scanner->reader);
        if (!json_take(&scanner->reader, ':') || scan_value(scanner, depth + 1, 0, &value) != PICK_OK) { return true; }
        buffer_append(path, key.bytes, key.length);
        if (value.kind == VALUE_TREE && *value.bytes == '{') {
            struct scanner inner = {.reader = {value.bytes + 1, value.bytes + value.length}};
            buffer_string(path, ".");
            if (!list_members(&inner, depth + 1, path, to)) { return false; }
        } else if (value.kind != VALUE_TREE && path->length > 0 && buffer_ok(path)) {
            size_t shown = path->length < LIST_NAME_BYTES ? path->length : LIST_NAME_BYTES;
            buffer_format(to, "%s\"%.*s\"", to->length > 0 ? ", " : "", (int)utf8_valid_prefix(path->data, shown),
                          path->data);
        }
        path->length = path_bytes;
        json_skip_space(&scanner->reader);
        json_take(&scanner->reader, ',');
        json_skip_space(&scanner->reader);
    }
    return true;
}

void pick_names(struct buffer *to, const char *json, size_t length)
{
    struct scanner scanner = {.reader = {json, json + length}};
    struct buffer path = {0};
    json_skip_space(&scanner.reader);
    if (json_take(&scanner.reader, '{') && !list_members(&scanner, 0, &path, to)) { buffer_string(to, ", ..."); }
    buffer_free(&path);
}
