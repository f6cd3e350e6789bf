/* All code that depends on a setting's type is here. The tables hold only data. */
#include "config/setting.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"

static char **text_field(const struct setting *setting, void *target)
{
    return (char **)(void *)((char *)target + setting->offset);
}

static const void *member_of(const struct setting *setting, const void *target)
{
    return (const char *)target + setting->offset;
}

static void *mutable_field(const struct setting *setting, void *target)
{
    return (char *)target + setting->offset;
}

void setting_flag(const struct setting *setting, char name[SETTING_NAME_MAX])
{
    snprintf(name, SETTING_NAME_MAX, "--%s", setting->key);
    for (char *c = name; *c != '\0'; c++) { *c = *c == '_' ? '-' : *c; }
}

void setting_variable(const struct setting *setting, char name[SETTING_NAME_MAX])
{
    snprintf(name, SETTING_NAME_MAX, "SLUICE_%s", setting->key);
    for (char *c = name; *c != '\0'; c++) { *c = (char)toupper((unsigned char)*c); }
}

void setting_describe(const struct setting *setting, char *text, size_t size)
{
    size_t used = 0;
    switch (setting->type) {
    case SETTING_TEXT:
        snprintf(text, size, "%s", setting->expects ? setting->expects : "a text");
        break;
    case SETTING_INTEGER:
        snprintf(text, size, "%sa whole number from %" PRId64 " to %" PRId64, setting->automatic ? "auto or " : "",
                 setting->least, setting->most);
        break;
    case SETTING_SWITCH:
        snprintf(text, size, "true or false");
        break;
    case SETTING_CHOICE:
        snprintf(text, size, "one of ");
        for (size_t i = 0; setting->choices[i] != NULL; i++) {
            used = strlen(text);
            snprintf(text + used, size - used, "%s%s", i == 0 ? "" : ", ", setting->choices[i]);
        }
        break;
    case SETTING_LIST:
        snprintf(text, size, "an array of objects");
        break;
    }
}

static enum status refuse_value(const struct setting *setting, const char *text, const char *where, struct err *err)
{
    char takes[256];
    setting_describe(setting, takes, sizeof takes);
    if (setting->secret || setting->has_secret) {
        return err_set(err, STATUS_BAD_INPUT, "%s must be %s", where, takes);
    }
    return err_set(err, STATUS_BAD_INPUT, "%s must be %s, not \"%.100s\"", where, takes, text);
}

static enum status parse_text(const struct setting *setting, const char *text, const char *where, void *target,
                              struct err *err)
{
    if (setting->most > 0 && strlen(text) > (size_t)setting->most) {
        return err_set(err, STATUS_BAD_INPUT, "%s is longer than %" PRId64 " bytes", where, setting->most);
    }
    if (setting->accepts && !setting->accepts(text)) { return refuse_value(setting, text, where, err); }
    char *copy = strdup(text);
    if (!copy) { return err_set(err, STATUS_NO_MEMORY, "no memory for %s", where); }
    free(*text_field(setting, target));
    *text_field(setting, target) = copy;
    return STATUS_OK;
}

static enum status parse_integer(const struct setting *setting, const char *text, const char *where, void *target,
                                 struct err *err)
{
    char *end;
    if (setting->automatic && strcmp(text, "auto") == 0) {
        *(int64_t *)mutable_field(setting, target) = 0;
        return STATUS_OK;
    }
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool digits = isdigit((unsigned char)text[0]) || (text[0] == '-' && isdigit((unsigned char)text[1]));
    if (!digits || *end != '\0' || errno != 0 || value < setting->least || value > setting->most) {
        return refuse_value(setting, text, where, err);
    }
    *(int64_t *)mutable_field(setting, target) = value;
    return STATUS_OK;
}

static enum status parse_switch(const struct setting *setting, const char *text, const char *where, void *target,
                                struct err *err)
{
    bool on = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    if (!on && strcmp(text, "false") != 0 && strcmp(text, "0") != 0) { return refuse_value(setting, text, where, err); }
    *(bool *)mutable_field(setting, target) = on;
    return STATUS_OK;
}

static enum status parse_choice(const struct setting *setting, const char *text, const char *where, void *target,
                                struct err *err)
{
    for (int i = 0; setting->choices[i] != NULL; i++) {
        if (strcmp(setting->choices[i], text) == 0) {
            *(int *)mutable_field(setting, target) = i;
            return STATUS_OK;
        }
    }
    return refuse_value(setting, text, where, err);
}

enum status setting_parse(const struct setting *setting, const char *text, const char *where, void *target,
                          struct err *err)
{
    switch (setting->type) {
    case SETTING_TEXT:
        return parse_text(setting, text, where, target, err);
    case SETTING_INTEGER:
        return parse_integer(setting, text, where, target, err);
    case SETTING_SWITCH:
        return parse_switch(setting, text, where, target, err);
    case SETTING_CHOICE:
        return parse_choice(setting, text, where, target, err);
    case SETTING_LIST:
        return err_set(err, STATUS_BAD_INPUT, "%s: %s can stand in the configuration file only", where, setting->key);
    }
    return err_set(err, STATUS_INTERNAL, "setting %s has an unknown type", setting->key);
}

/* The size of a field that holds its value itself: not of a text or a list. */
static size_t field_size(const struct setting *setting)
{
    return setting->type == SETTING_INTEGER  ? sizeof(int64_t)
           : setting->type == SETTING_SWITCH ? sizeof(bool)
           : setting->type == SETTING_CHOICE ? sizeof(int)
                                             : 0;
}

enum status setting_copy(const struct setting *setting, const void *from, void *to, struct err *err)
{
    if (setting->type != SETTING_TEXT) {
        memcpy(mutable_field(setting, to), member_of(setting, from), field_size(setting));
        return STATUS_OK;
    }
    const char *const *text = member_of(setting, from);
    if (*text) { return setting_parse(setting, *text, setting->key, to, err); }
    free(*text_field(setting, to));
    *text_field(setting, to) = NULL;
    return STATUS_OK;
}

bool setting_equal(const struct setting *setting, const void *a, const void *b)
{
    if (setting->type != SETTING_TEXT) {
        return memcmp(member_of(setting, a), member_of(setting, b), field_size(setting)) == 0;
    }
    const char *const *text_a = member_of(setting, a), *const *text_b = member_of(setting, b);
    return !*text_a || !*text_b ? *text_a == *text_b : strcmp(*text_a, *text_b) == 0;
}

static void format_text(const struct setting *setting, const char *value, char *text, size_t size)
{
    if (!value) {
        snprintf(text, size, "%s", "");
    } else if (setting->secret) {
        snprintf(text, size, "***");
    } else if (setting->has_secret) {
        url_redact(value, text, size);
    } else {
        snprintf(text, size, "%s", value);
    }
}

void setting_format(const struct setting *setting, const void *target, char *text, size_t size)
{
    const void *at = member_of(setting, target);
    switch (setting->type) {
    case SETTING_TEXT:
        format_text(setting, *(char *const *)at, text, size);
        break;
    case SETTING_INTEGER:
        if (setting->automatic && *(const int64_t *)at == 0) {
            snprintf(text, size, "auto");
        } else {
            snprintf(text, size, "%" PRId64, *(const int64_t *)at);
        }
        break;
    case SETTING_SWITCH:
        snprintf(text, size, "%s", *(const bool *)at ? "true" : "false");
        break;
    case SETTING_CHOICE:
        snprintf(text, size, "%s", setting->choices[*(const int *)at]);
        break;
    case SETTING_LIST:
        setting->format(at, text, size);
        break;
    }
}

enum status settings_reset(const struct setting *table, size_t count, void *target, struct err *err)
{
    enum status status = STATUS_OK;
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        if (table[i].fallback) { status = setting_parse(&table[i], table[i].fallback, table[i].key, target, err); }
    }
    return status;
}

void settings_free(const struct setting *table, size_t count, void *target)
{
    for (size_t i = 0; i < count; i++) {
        if (table[i].type == SETTING_TEXT) {
            free(*text_field(&table[i], target));
            *text_field(&table[i], target) = NULL;
        }
    }
}

const struct setting *setting_find(const struct setting *table, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].key, key) == 0) { return &table[i]; }
    }
    return NULL;
}

const struct setting *setting_nearest(const struct setting *table, size_t count, const char *key)
{
    const struct setting *nearest = table;
    unsigned least = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        unsigned distance = edit_distance(table[i].key, key);
        if (distance < least) {
            least = distance;
            nearest = &table[i];
        }
    }
    return nearest;
}

void url_password(const char *url, size_t *begin, size_t *end)
{
    *begin = *end = 0;
    const char *authority = strstr(url, "://");
    if (!authority) { return; }
    authority += 3;
    /* The last @ ends the credentials: otherwise the tail of a password with an unescaped @ would show. */
    const char *at = strrchr(authority, '@');
    const char *colon = strchr(authority, ':');
    if (!at || !colon || colon > at) { return; }
    *begin = (size_t)(colon + 1 - url);
    *end = (size_t)(at - url);
}

void url_redact(const char *url, char *text, size_t size)
{
    size_t begin, end;
    url_password(url, &begin, &end);
    if (begin == end) {
        snprintf(text, size, "%s", url);
    } else {
        snprintf(text, size, "%.*s***%s", (int)begin, url, url + end);
    }
}
