/* One pass checks the text before cJSON parses it, one checks the tree after it. The typed getters share their
 * messages. */
#include "base/json_tree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"

/* Reports a fault at a byte, by its line and its place in that line, both from 1. */
static enum status fault_at(const char *bytes, size_t at, const char *name, const char *fault, struct err *err)
{
    size_t line = 1, begin = 0;
    for (size_t i = 0; i < at; i++) {
        if (bytes[i] != '\n') { continue; }
        line++;
        begin = i + 1;
    }
    return err_set(err, STATUS_BAD_INPUT, "%s line %zu, byte %zu: %s", name, line, at - begin + 1, fault);
}

/* Moves `*at` from after an opening quote to after the closing one. False for an escaped NUL. */
static bool skip_string(const char *bytes, size_t length, size_t *at)
{
    while (*at < length && bytes[*at] != '"') {
        if (bytes[*at] == '\\') {
            if (length - *at >= 6 && memcmp(bytes + *at, "\\u0000", 6) == 0) { return false; }
            *at += 1;
        }
        *at += 1;
    }
    *at += 1;
    return true;
}

/* Checks the rules that cJSON does not; its own parser finds every other fault. */
static enum status check_text(const char *bytes, size_t length, const char *name, struct err *err)
{
    size_t valid = utf8_valid_prefix(bytes, length);
    if (valid != length) { return fault_at(bytes, valid, name, "not UTF-8", err); }
    if (memchr(bytes, '\0', length)) { return err_set(err, STATUS_BAD_INPUT, "%s: has a NUL byte", name); }
    size_t depth = 0;
    for (size_t at = 0; at < length;) {
        char c = bytes[at++];
        if (c == '"' && !skip_string(bytes, length, &at)) {
            return err_set(err, STATUS_BAD_INPUT, "%s: a string has an escaped NUL", name);
        }
        if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
        if (depth > JSON_MAX_DEPTH) {
            return err_set(err, STATUS_BAD_INPUT, "%s: nested deeper than %d levels", name, JSON_MAX_DEPTH);
        }
    }
    return STATUS_OK;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status check_keys_of(const cJSON *object, const char *name, struct err *err)
{
    size_t count = 0;
    const cJSON *child;
    cJSON_ArrayForEach(child, object) count++;
    if (count < 2) { return STATUS_OK; }
    const char **keys = calloc(count, sizeof *keys);
    if (!keys) { return err_set(err, STATUS_NO_MEMORY, "%s: no memory for %zu keys", name, count); }
    size_t at = 0;
    cJSON_ArrayForEach(child, object) keys[at++] = child->string;
    qsort(keys, count, sizeof *keys, compare_keys);
    enum status status = STATUS_OK;
    for (size_t i = 1; i < count && status == STATUS_OK; i++) {
        if (strcmp(keys[i - 1], keys[i]) == 0) {
            status = err_set(err, STATUS_BAD_INPUT, "%s: the key %.100s stands twice in one object", name, keys[i]);
        }
    }
    free(keys);
    return status;
}

/* Recursion is bounded by JSON_MAX_DEPTH. */
static enum status check_keys(const cJSON *value, const char *name, struct err *err)
{
    TRY(cJSON_IsObject(value) ? check_keys_of(value, name, err) : STATUS_OK);
    const cJSON *child;
    cJSON_ArrayForEach(child, value)
    {
        if (child->child) { TRY(check_keys(child, name, err)); }
    }
    return STATUS_OK;
}

enum status json_parse(const char *bytes, size_t length, const char *name, cJSON **out, struct err *err)
{
    *out = NULL;
    enum status status = check_text(bytes, length, name, err);
    if (status != STATUS_OK) { return status; }
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(bytes, length + 1, &end, 0);
    if (!root) { return fault_at(bytes, end ? (size_t)(end - bytes) : 0, name, "not valid JSON", err); }
    end += strspn(end, " \t\r\n");
    if ((size_t)(end - bytes) < length) {
        status = fault_at(bytes, (size_t)(end - bytes), name, "more text after the JSON", err);
    } else {
        status = check_keys(root, name, err);
    }
    if (status == STATUS_OK) {
        *out = root;
    } else {
        cJSON_Delete(root);
    }
    return status;
}

enum status json_read(const char *directory, const char *name, size_t limit, cJSON **out, struct err *err)
{
    *out = NULL;
    struct buffer text = {0};
    enum status status = file_read_in(directory, name, limit, &text, err);
    if (status == STATUS_OK) { status = json_parse(text.data, text.length, name, out, err); }
    buffer_free(&text);
    return status;
}

enum status json_read_optional(const char *directory, const char *name, cJSON **out, struct err *err)
{
    enum status status = json_read(directory, name, JSON_CONFIG_MAX_BYTES, out, err);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

const cJSON *json_field(const cJSON *object, const char *field)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, field);
    return cJSON_IsNull(value) ? NULL : value;
}

bool json_is_empty(const cJSON *value)
{
    if (!value || cJSON_IsNull(value) || cJSON_IsFalse(value)) { return true; }
    if (cJSON_IsString(value)) { return value->valuestring[0] == '\0'; }
    return (cJSON_IsObject(value) || cJSON_IsArray(value)) && !value->child;
}

bool json_is_in(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0) { list++; }
    return *list;
}

enum status json_only(const cJSON *object, const char *name, const char *const *known, const char *const *empty,
                      struct err *err)
{
    if (!cJSON_IsObject(object)) { return err_set(err, STATUS_BAD_INPUT, "%s must be an object", name); }
    const cJSON *value;
    cJSON_ArrayForEach(value, object)
    {
        if (cJSON_IsNull(value) || json_is_in(known, value->string)) { continue; }
        if (!empty || !json_is_in(empty, value->string)) {
            return err_set(err, STATUS_UNSUPPORTED,
                           "%s: the field %.100s is not known here and may change the result; remove it if it does not",
                           name, value->string);
        }
        if (!json_is_empty(value)) {
            return err_set(err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", name, value->string);
        }
    }
    return STATUS_OK;
}

enum status json_bool(const cJSON *object, const char *name, const char *field, bool *value, struct err *err)
{
    const cJSON *found = json_field(object, field);
    if (!found) { return STATUS_OK; }
    if (!cJSON_IsBool(found)) { return err_set(err, STATUS_BAD_INPUT, "%s: %s must be true or false", name, field); }
    *value = cJSON_IsTrue(found);
    return STATUS_OK;
}

bool json_whole(const cJSON *value, uint64_t *out)
{
    const double most = 9007199254740992.0; /* 2^53: beyond it a double skips whole numbers */
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= 0) || value->valuedouble > most ||
        value->valuedouble != (double)(uint64_t)value->valuedouble) {
        return false;
    }
    *out = (uint64_t)value->valuedouble;
    return true;
}

enum status json_u32(const cJSON *object, const char *name, const char *field, uint32_t least, uint32_t most,
                     uint32_t *value, struct err *err)
{
    const cJSON *found = json_field(object, field);
    if (!found) { return STATUS_OK; }
    uint64_t number;
    if (!json_whole(found, &number) || number < least || number > most) {
        return err_set(err, STATUS_BAD_INPUT, "%s: %s must be a whole number from %u to %u", name, field, least, most);
    }
    *value = (uint32_t)number;
    return STATUS_OK;
}

enum status json_double(const cJSON *object, const char *name, const char *field, double *value, struct err *err)
{
    const cJSON *found = json_field(object, field);
    if (!found) { return STATUS_OK; }
    if (!cJSON_IsNumber(found) || !isfinite(found->valuedouble)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: %s must be a number", name, field);
    }
    *value = found->valuedouble;
    return STATUS_OK;
}

enum status json_string(const cJSON *object, const char *name, const char *field, const char **value, struct err *err)
{
    const cJSON *found = json_field(object, field);
    if (!found) { return STATUS_OK; }
    if (!cJSON_IsString(found)) { return err_set(err, STATUS_BAD_INPUT, "%s: %s must be a string", name, field); }
    *value = found->valuestring;
    return STATUS_OK;
}

enum status json_must_be(const cJSON *object, const char *name, const char *field, const char *only, struct err *err)
{
    const char *text = only;
    TRY(json_string(object, name, field, &text, err));
    return strcmp(text, only) == 0 ? STATUS_OK
                                   : err_set(err, STATUS_UNSUPPORTED, "%s: %s \"%.60s\" is not supported; \"%s\" is",
                                             name, field, text, only);
}
