/* The configuration file: JSON with comments. Comments are blanked in place, so that positions stay true; the rest is
 * model/json's, which checks what cJSON does not (UTF-8, depth, NUL, a key that stands there twice). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Room for numbers of the file as text. */
struct number_text {
    char text[256];
};

static bool is_whole(const cJSON *item)
{
    return cJSON_IsNumber(item) && fabs(item->valuedouble) < 9007199254740992.0 &&
           item->valuedouble == floor(item->valuedouble);
}

/* "1,2" for [1, 2], and "1" for 1; NULL for anything else, and for more than there is room for. */
static const char *numbers_text(const cJSON *item, struct number_text *number)
{
    size_t used = 0;
    const cJSON *first = cJSON_IsArray(item) ? item->child : item;
    number->text[0] = '\0';
    for (const cJSON *at = first; at != NULL && used < sizeof number->text;
         at = cJSON_IsArray(item) ? at->next : NULL) {
        if (!is_whole(at))
            return NULL;
        used += (size_t)snprintf(number->text + used, sizeof number->text - used, "%s%.0f", at == first ? "" : ",",
                                 at->valuedouble);
    }
    return used < sizeof number->text ? number->text : NULL;
}

/* The text of a member's value, so that one parser checks every source; NULL for a null, which counts as absent. */
static enum status member_text(const struct setting *setting, const cJSON *item, const char *where,
                               struct number_text *number, const char **text, struct err *err)
{
    *text = NULL;
    bool wants_string = setting->type == SETTING_TEXT || setting->type == SETTING_CHOICE;
    if (cJSON_IsNull(item) && setting->type == SETTING_TEXT)
        return STATUS_OK;
    bool is_auto = setting->automatic && cJSON_IsString(item) && strcmp(item->valuestring, "auto") == 0;
    if ((cJSON_IsString(item) && wants_string) || is_auto)
        *text = item->valuestring;
    else if (cJSON_IsBool(item) && setting->type == SETTING_SWITCH)
        *text = cJSON_IsTrue(item) ? "true" : "false";
    else if ((is_whole(item) && setting->type == SETTING_INTEGER) || (setting->numbers && !cJSON_IsNull(item)))
        *text = numbers_text(item, number);
    return *text == NULL ? wrong_type(setting, where, err) : STATUS_OK;
}

static enum status find_setting(const char *key, const char *name, const struct setting **out, struct err *err)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    *out = setting_find(table, count, key);
    if (*out == NULL)
        return err_set(err, STATUS_BAD_INPUT, "%s: unknown key \"%.100s\"; the nearest known one is \"%s\"", name, key,
                       setting_nearest(table, count, key)->key);
    return STATUS_OK;
}

/* One member of an entry of `queues`: checked in a configuration that is thrown away, and kept as text. */
static enum status take_queue_member(struct config_queue *queue, const cJSON *item, const char *name, struct err *err)
{
    const struct setting *setting;
    const char *text;
    struct number_text number;
    size_t count;
    TRY(find_setting(item->string, name, &setting, err));
    char where[512];
    snprintf(where, sizeof where, "%s: \"%s\"", name, setting->key);
    if ((setting->commands & FOR_QUEUES) == 0)
        return err_set(err, STATUS_BAD_INPUT, "%s is the same for all queues of a daemon", where);
    TRY(member_text(setting, item, where, &number, &text, err));
    struct config scratch = {0};
    enum status status = text == NULL ? STATUS_OK : setting_parse(setting, text, where, &scratch, err);
    config_free(&scratch);
    if (status != STATUS_OK || text == NULL)
        return status;
    char *copy = strdup(text);
    if (copy == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %s", where);
    queue->values[setting - config_settings(&count)] = copy;
    return STATUS_OK;
}

static enum status take_queue(struct config_queues *queues, const cJSON *object, const char *file, struct err *err)
{
    char name[256];
    size_t number = queues->count++;
    snprintf(name, sizeof name, "%.200s: \"queues\"[%zu]", file, number);
    if (!cJSON_IsObject(object))
        return err_set(err, STATUS_BAD_INPUT, "%s must be an object", name);
    const cJSON *item;
    cJSON_ArrayForEach(item, object) TRY(take_queue_member(&queues->items[number], item, name, err));
    const char *queue = config_queue_value(queues, number, "queue");
    if (queue == NULL)
        return err_set(err, STATUS_BAD_INPUT, "%s lacks \"queue\", its name", name);
    for (size_t i = 0; i < number; i++)
        if (strcmp(config_queue_value(queues, i, "queue"), queue) == 0)
            return err_set(err, STATUS_BAD_INPUT, "%s: the queue %s stands there twice", name, queue);
    return STATUS_OK;
}

/* The file's `queues`. */
static enum status take_queues(struct config *config, const cJSON *array, const char *file, struct err *err)
{
    int count = cJSON_GetArraySize(array);
    if (!cJSON_IsArray(array) || count > CONFIG_QUEUES_MAX)
        return err_set(err, STATUS_BAD_INPUT, "%s: \"queues\" must be an array of at most %d objects", file,
                       CONFIG_QUEUES_MAX);
    if (count == 0)
        return STATUS_OK;
    config->queues.items = calloc((size_t)count, sizeof(struct config_queue));
    if (config->queues.items == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %d queues", count);
    const cJSON *object;
    cJSON_ArrayForEach(object, array) TRY(take_queue(&config->queues, object, file, err));
    size_t rows;
    const struct setting *table = config_settings(&rows);
    config->sources[setting_find(table, rows, "queues") - table] = SOURCE_FILE;
    return STATUS_OK;
}

static enum status take_object(struct config *config, const cJSON *object, const char *name, struct err *err)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        const struct setting *setting;
        TRY(find_setting(item->string, name, &setting, err));
        if (setting->type == SETTING_LIST) {
            TRY(take_queues(config, item, name, err));
            continue;
        }
        char where[256];
        const char *text;
        struct number_text number;
        snprintf(where, sizeof where, "%s: \"%s\"", name, setting->key);
        TRY(member_text(setting, item, where, &number, &text, err));
        if (text != NULL)
            TRY(config_set(config, setting, text, SOURCE_FILE, where, err));
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
