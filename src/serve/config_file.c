/* The configuration file: JSON with comments. Comments are blanked in place, so that positions stay true; the rest is
 * model/json's, which checks what cJSON does not (UTF-8, depth, NUL, a key that stands there twice). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/json.h"
#include "serve/config.h"

static unsigned line_of(const char *bytes, size_t at)
{
    unsigned line = 1;
    for (size_t i = 0; i < at; i++)
        line += bytes[i] == '\n';
    return line;
}

/* Returns where the string that begins at `at` ends; an unfinished one ends with the file (JSON will say so). */
static size_t skip_string(const char *bytes, size_t length, size_t at)
{
    for (at++; at < length && bytes[at] != '"'; at++)
        at += bytes[at] == '\\';
    return at + 1;
}

/* Returns where the comment that begins at `at` ends, or 0 for a block comment without its end. */
static size_t skip_comment(const char *bytes, size_t length, size_t at)
{
    if (bytes[at + 1] == '/') {
        const char *end = memchr(bytes + at, '\n', length - at);
        return end == NULL ? length : (size_t)(end - bytes);
    }
    for (at += 2; at + 1 < length; at++)
        if (bytes[at] == '*' && bytes[at + 1] == '/')
            return at + 2;
    return 0;
}

/* Turns comments outside strings into spaces; line ends stay. */
static enum status blank_comments(char *bytes, size_t length, const char *name, struct err *err)
{
    for (size_t at = 0; at < length;) {
        bool comment = bytes[at] == '/' && at + 1 < length && (bytes[at + 1] == '/' || bytes[at + 1] == '*');
        if (!comment) {
            at = bytes[at] == '"' ? skip_string(bytes, length, at) : at + 1;
            continue;
        }
        size_t end = skip_comment(bytes, length, at);
        if (end == 0)
            return err_set(err, STATUS_BAD_INPUT, "%s line %u: a comment without its closing */", name,
                           line_of(bytes, at));
        for (; at < end; at++)
            bytes[at] = bytes[at] == '\n' ? '\n' : ' ';
    }
    return STATUS_OK;
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
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        const struct setting *setting = setting_find(table, count, item->string);
        if (setting == NULL)
            return err_set(err, STATUS_BAD_INPUT, "%s: unknown key \"%.100s\"; the nearest known one is \"%s\"", name,
                           item->string, setting_nearest(table, count, item->string)->key);
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
    if (length > CONFIG_FILE_MAX_BYTES)
        return err_set(err, STATUS_BAD_INPUT, "%s has more than %d bytes", name, CONFIG_FILE_MAX_BYTES);
    enum status status = blank_comments(bytes, length, name, err);
    if (status != STATUS_OK)
        return status;
    cJSON *root;
    status = json_parse(bytes, length, name, &root, err);
    if (status != STATUS_OK)
        return status;
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
