/* Recursive descent, at most PICK_DEPTH_MAX deep. A mask of paths goes down with it: bit p says that the first
 * `depth` names of path p led here. */
#include "bulk/input/json.h"

#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

struct scanner {
    struct lexer lexer;
    char *const *paths;
    uint32_t count;
    struct value *values;
};

static enum pick_problem scan_value(struct scanner *scanner, uint32_t depth, uint32_t mask, struct value *out);

static enum pick_problem scan_scalar(struct scanner *scanner, struct value *out)
{
    struct lexer *lexer = &scanner->lexer;
    const char *begin = lexer->at;
    bool good = lexer_scalar(lexer);
    *out = (struct value){good && *begin == 'n' ? VALUE_NULL : VALUE_SCALAR, begin, (size_t)(lexer->at - begin)};
    return good ? PICK_OK : PICK_BROKEN;
}

/* Scans an array after its opening bracket. */
static enum pick_problem scan_array(struct scanner *scanner, uint32_t depth)
{
    struct value ignored;
    lexer_skip_space(&scanner->lexer);
    if (lexer_take(&scanner->lexer, ']')) { return PICK_OK; }
    for (;;) {
        enum pick_problem problem = scan_value(scanner, depth + 1, 0, &ignored);
        if (problem != PICK_OK) { return problem; }
        lexer_skip_space(&scanner->lexer);
        if (lexer_take(&scanner->lexer, ']')) { return PICK_OK; }
        if (!lexer_take(&scanner->lexer, ',')) { return PICK_BROKEN; }
    }
}

/* Finds name `number` of a dotted path; returns whether it is the last. */
static bool name_of(const char *path, uint32_t number, const char **name, size_t *length)
{
    for (; number > 0; number--) { path = strchr(path, '.') + 1; }
    *name = path;
    *length = strcspn(path, ".");
    return path[*length] == '\0';
}

/* Returns the paths in `mask` that continue with this key; `*ends`: those that end with it. */
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

static uint32_t match_key(const struct scanner *scanner, uint32_t depth, uint32_t mask, const struct lexer_member *key,
                          uint32_t *ends)
{
    *ends = 0;
    if (mask == 0) { return 0; }
    if (!memchr(key->name, '\\', key->length)) { return match(scanner, depth, mask, key->name, key->length, ends); }
    struct buffer decoded = {0};
    uint32_t on = 0;
    if (buffer_json_decode(&decoded, key->name, key->length) && buffer_ok(&decoded) && decoded.data) {
        on = match(scanner, depth, mask, decoded.data, decoded.length, ends);
    }
    buffer_free(&decoded);
    return on;
}

static enum pick_problem scan_object(struct scanner *scanner, uint32_t depth, uint32_t mask)
{
    struct lexer_member member = {0};
    while (lexer_next_member(&scanner->lexer, &member)) {
        struct value value = {0};
        uint32_t ends, on = match_key(scanner, depth, mask, &member, &ends);
        enum pick_problem problem = scan_value(scanner, depth + 1, on, &value);
        if (problem != PICK_OK) { return problem; }
        for (uint32_t p = 0; p < scanner->count; p++) {
            if ((ends & 1u << p) != 0) { scanner->values[p] = value; }
        }
    }
    return member.whole ? PICK_OK : PICK_BROKEN;
}

static enum pick_problem scan_value(struct scanner *scanner, uint32_t depth, uint32_t mask, struct value *out)
{
    if (depth > PICK_DEPTH_MAX) { return PICK_TOO_DEEP; }
    lexer_skip_space(&scanner->lexer);
    const char *from = scanner->lexer.at;
    if (lexer_take(&scanner->lexer, '"')) {
        out->kind = VALUE_STRING;
        return lexer_string(&scanner->lexer, &out->bytes, &out->length) ? PICK_OK : PICK_BROKEN;
    }
    bool object = from < scanner->lexer.end && *from == '{';
    if (!object && !lexer_take(&scanner->lexer, '[')) { return scan_scalar(scanner, out); }
    enum pick_problem problem = object ? scan_object(scanner, depth, mask) : scan_array(scanner, depth);
    *out = (struct value){VALUE_TREE, from, (size_t)(scanner->lexer.at - from)};
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
    lexer_skip_space(&scanner.lexer);
    bool object = scanner.lexer.at < scanner.lexer.end && *scanner.lexer.at == '{';
    uint32_t all = count == 32 ? UINT32_MAX : (1u << count) - 1;
    enum pick_problem problem = scan_value(&scanner, 0, all, &whole);
    if (problem == PICK_OK) { lexer_skip_space(&scanner.lexer); }
    if (problem == PICK_OK && scanner.lexer.at < scanner.lexer.end) { problem = PICK_BROKEN; }
    *at = (size_t)(scanner.lexer.at - json);
    return problem == PICK_OK && !object ? PICK_NOT_OBJECT : problem;
}

/* --- Elements of an array --- */

size_t element_scan(struct element_scan *scan, const char *bytes, size_t length)
{
    size_t at = 0;
    for (; at < length && !scan->done; at++) {
        char c = bytes[at];
        scan->lines += c == '\n';
        if (scan->string) {
            scan->string = scan->escape || c != '"';
            scan->escape = !scan->escape && c == '\\';
        } else if (c == '"') {
            scan->string = true;
        } else if (c == '{' || c == '[') {
            scan->depth++;
        } else if (scan->depth == 0 && memchr(",]} \t\r\n", c, 7)) {
            scan->done = true;
            scan->lines -= c == '\n';
            return at;
        } else if (c == '}' || c == ']') {
            scan->depth--;
        }
    }
    return at;
}

/* --- The names of fields --- */

enum { LIST_BYTES = 160, LIST_NAME_BYTES = 60 };

/* Lists the members of an object; `path` ends with a dot, or is empty. False: there are more than fit. */
static bool list_members(struct scanner *scanner, uint32_t depth, struct buffer *path, struct buffer *to)
{
    size_t path_bytes = path->length;
    struct lexer_member member = {0};
    while (lexer_next_member(&scanner->lexer, &member)) {
        struct value value = {0};
        if (to->length > LIST_BYTES) { return false; }
        if (scan_value(scanner, depth + 1, 0, &value) != PICK_OK) { return true; }
        buffer_append(path, member.name, member.length);
        if (value.kind == VALUE_TREE && *value.bytes == '{') {
            struct scanner inner = {.lexer = {value.bytes, value.bytes + value.length}};
            buffer_string(path, ".");
            if (!list_members(&inner, depth + 1, path, to)) { return false; }
        } else if (value.kind != VALUE_TREE && path->length > 0 && buffer_ok(path)) {
            size_t shown = path->length < LIST_NAME_BYTES ? path->length : LIST_NAME_BYTES;
            buffer_format(to, "%s\"%.*s\"", to->length > 0 ? ", " : "", (int)utf8_valid_prefix(path->data, shown),
                          path->data);
        }
        path->length = path_bytes;
    }
    return true;
}

void pick_names(struct buffer *to, const char *json, size_t length)
{
    struct scanner scanner = {.lexer = {json, json + length}};
    struct buffer path = {0};
    if (!list_members(&scanner, 0, &path, to)) { buffer_string(to, ", ..."); }
    buffer_free(&path);
}
