/* The configuration file: JSON with comments. cJSON is lenient (duplicates, bad UTF-8, \u0000, unlimited size), so the
 * bytes are checked before it sees them, and comments are blanked in place so that its positions stay true. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "serve/config.h"

enum { DEPTH_MAX = 16 };

struct scan {
    char *bytes;
    size_t length, at;
    const char *name;
    struct err *err;
};

static unsigned line_of(const char *bytes, size_t at)
{
    unsigned line = 1;
    for (size_t i = 0; i < at; i++)
        line += bytes[i] == '\n';
    return line;
}

static enum status scan_error(const struct scan *scan, size_t at, const char *what)
{
    return err_set(scan->err, STATUS_BAD_INPUT, "%s line %u: %s", scan->name, line_of(scan->bytes, at), what);
}

/* Passes over a string; `at` stands on its opening quote. */
static enum status scan_string(struct scan *scan)
{
    size_t begin = scan->at++;
    for (; scan->at < scan->length; scan->at++) {
        const char *c = &scan->bytes[scan->at];
        if (*c == '"') {
            scan->at++;
            return STATUS_OK;
        }
        if ((unsigned char)*c < 0x20)
            return scan_error(scan, begin, "a control character or a line end inside a string");
        if (*c != '\\')
            continue;
        if (scan->length - scan->at >= 6 && memcmp(c, "\\u0000", 6) == 0)
            return scan_error(scan, begin, "\\u0000 inside a string");
        scan->at++;
    }
    return scan_error(scan, begin, "a string without its closing quote");
}

static enum status blank_comment(struct scan *scan)
{
    size_t begin = scan->at;
    bool block = scan->bytes[begin + 1] == '*';
    for (scan->at += 2; scan->at < scan->length; scan->at++) {
        if (!block && scan->bytes[scan->at] == '\n')
            break;
        if (block && scan->bytes[scan->at] == '*' && scan->at + 1 < scan->length && scan->bytes[scan->at + 1] == '/') {
            scan->at += 2;
            block = false;
            break;
        }
    }
    if (block)
        return scan_error(scan, begin, "a comment without its closing */");
    for (size_t i = begin; i < scan->at; i++)
        if (scan->bytes[i] != '\n')
            scan->bytes[i] = ' ';
    return STATUS_OK;
}

/* Checks strings and depth, and turns comments into spaces. */
static enum status scan_all(struct scan *scan)
{
    unsigned depth = 0;
    while (scan->at < scan->length) {
        char c = scan->bytes[scan->at];
        char next = scan->at + 1 < scan->length ? scan->bytes[scan->at + 1] : '\0';
        enum status status = STATUS_OK;
        if (c == '"') {
            status = scan_string(scan);
        } else if (c == '/' && (next == '/' || next == '*')) {
            status = blank_comment(scan);
        } else if ((c == '{' || c == '[') && ++depth > DEPTH_MAX) {
            status = scan_error(scan, scan->at, "nested too deeply");
        } else {
            depth -= (c == '}' || c == ']') && depth > 0;
            scan->at++;
        }
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status check_bytes(char *bytes, size_t length, const char *name, struct err *err)
{
    struct scan scan = {.bytes = bytes, .length = length, .name = name, .err = err};
    if (length > CONFIG_FILE_MAX_BYTES)
        return err_set(err, STATUS_BAD_INPUT, "%s has more than %d bytes", name, CONFIG_FILE_MAX_BYTES);
    size_t valid = utf8_valid_prefix(bytes, length);
    if (valid < length)
        return scan_error(&scan, valid, "not valid UTF-8");
    const char *nul = memchr(bytes, '\0', length);
    if (nul != NULL)
        return scan_error(&scan, (size_t)(nul - bytes), "a NUL byte");
    return scan_all(&scan);
}

static enum status wrong_type(const struct setting *setting, const char *where, struct err *err)
{
    char takes[256];
    setting_describe(setting, takes, sizeof takes);
    return err_set(err, STATUS_BAD_INPUT, "%s must be %s", where, takes);
}

/* One member of the file's object. Values go through their text form, so that one parser checks every source. */
static enum status take_member(struct config *config, const struct setting *setting, const cJSON *item,
                               const char *where, struct err *err)
{
    char number[32];
    const char *text = NULL;
    bool wants_string = setting->type == SETTING_TEXT || setting->type == SETTING_CHOICE;
    if (cJSON_IsNull(item) && setting->type == SETTING_TEXT)
        return STATUS_OK; /* as if it were not there */
    if (cJSON_IsString(item) && wants_string)
        text = item->valuestring;
    else if (cJSON_IsBool(item) && setting->type == SETTING_SWITCH)
        text = cJSON_IsTrue(item) ? "true" : "false";
    else if (cJSON_IsNumber(item) && setting->type == SETTING_INTEGER)
        text = number;
    if (text == NULL)
        return wrong_type(setting, where, err);
    if (text == number) {
        if (!(fabs(item->valuedouble) < 9007199254740992.0) || item->valuedouble != floor(item->valuedouble))
            return wrong_type(setting, where, err);
        snprintf(number, sizeof number, "%.0f", item->valuedouble);
    }
    return config_set(config, setting, text, SOURCE_FILE, where, err);
}

static enum status take_object(struct config *config, const cJSON *object, const char *name, struct err *err)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    bool seen[CONFIG_SETTINGS_MAX] = {false};
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        const struct setting *setting = setting_find(table, count, item->string);
        if (setting == NULL)
            return err_set(err, STATUS_BAD_INPUT, "%s: unknown key \"%.100s\"; the nearest known one is \"%s\"", name,
                           item->string, setting_nearest(table, count, item->string)->key);
        if (seen[setting - table])
            return err_set(err, STATUS_BAD_INPUT, "%s: \"%s\" stands there twice", name, setting->key);
        seen[setting - table] = true;
        char where[256];
        snprintf(where, sizeof where, "%s: \"%s\"", name, setting->key);
        enum status status = take_member(config, setting, item, where, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status config_parse(struct config *config, char *bytes, size_t length, const char *name, struct err *err)
{
    enum status status = check_bytes(bytes, length, name, err);
    if (status != STATUS_OK)
        return status;
    const char *end = bytes;
    cJSON *root = cJSON_ParseWithOpts(bytes, &end, true);
    if (root == NULL)
        return err_set(err, STATUS_BAD_INPUT, "%s line %u: not valid JSON", name,
                       line_of(bytes, end == NULL ? 0 : (size_t)(end - bytes)));
    if (cJSON_IsObject(root))
        status = take_object(config, root, name, err);
    else
        status = err_set(err, STATUS_BAD_INPUT, "%s must hold one JSON object", name);
    cJSON_Delete(root);
    return status;
}

enum status config_read(struct config *config, const char *path, struct err *err)
{
    struct buffer bytes = {0};
    enum status status = file_read(path, CONFIG_FILE_MAX_BYTES, &bytes, err);
    if (status == STATUS_OK)
        status = config_parse(config, bytes.data, bytes.length, path, err);
    buffer_free(&bytes);
    return status;
}
