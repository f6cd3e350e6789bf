/* Reads settings from the file, variables and flags, and resolves which one wins. The settings are in settings.inc. */
#include "config/config.h"
#include "schedule/encodings.h"

#include <ctype.h>
#include <event2/util.h>
#include <math.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/edit_distance.h"
#include "base/file.h"
#include "base/json_tree.h"
#include "engine/engine.h"
#include "redis/queue_names.h"
#include "redis/tls.h"

#define SERVE_QUEUE (FOR_SERVE | FOR_QUEUES) /* may differ per queue */
#define MODEL_USERS (FOR_SERVE | FOR_EMBED | FOR_ENGINE | FOR_TOKENIZE | FOR_DOCTOR | FOR_QUEUES)
#define REDIS_USERS (FOR_SERVE | FOR_SUBMIT | FOR_GET | FOR_OPERATOR | FOR_DOCTOR | FOR_BULK | FOR_GATEWAY)
#define ENGINE_USERS (FOR_SERVE | FOR_EMBED | FOR_ENGINE | FOR_GENERATE)
#define EVERYONE (REDIS_USERS | MODEL_USERS | FOR_GENERATE)

static const char *const precisions[] = {"auto", "f32", "bf16", "f16", "int8", "int8_all", NULL};
/* In the order of enum pooling. */
static const char *const poolings[] = {"model",
#define POOLING(name, mode, flag) mode,
#include "model/poolings.inc"
#undef POOLING
                                       NULL};
static const char *const layouts[] = {"packed", "padded", "padded_fifo", NULL};
static const char *const windows[] = {"idle", "fixed", NULL};
static const char *const log_formats[] = {"text", "json", NULL};
static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};

static bool is_queue_name(const char *text)
{
    return queue_name_is(text, strlen(text));
}

static bool is_device_list(const char *text)
{
    struct device_list list;
    return device_list_parse(text, &list);
}

/* "" is off. The parser ignores anything after the digits of a port, and takes a missing port for 0. */
static bool is_http_address(const char *text)
{
    struct sockaddr_storage where = {0};
    int size = sizeof where;
    bool parsed = evutil_parse_sockaddr_port(text, (struct sockaddr *)&where, &size) == 0;
    uint16_t port = where.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&where)->sin6_port
                                                : ((struct sockaddr_in *)&where)->sin_port;
    const char *digits = strrchr(text, ':');
    bool only_digits = digits && strspn(digits + 1, "0123456789") == strlen(digits + 1);
    return text[0] == '\0' || (parsed && port != 0 && only_digits);
}

static bool is_given(const char *text)
{
    return text[0] != '\0';
}

/* Writes the names of the queues, each with its weight if the entry gives one. */
static void format_queues(const void *field, char *text, size_t size)
{
    const struct config_queues *queues = field;
    text[0] = '\0';
    for (size_t i = 0, used = 0; i < queues->count && used < size; i++, used = strlen(text)) {
        snprintf(text + used, size - used, "%s%s%s%s", i == 0 ? "" : ", ", config_queue_value(queues, i, "queue"),
                 !config_queue_value(queues, i, "weight") ? "" : ":",
                 !config_queue_value(queues, i, "weight") ? "" : config_queue_value(queues, i, "weight"));
    }
}

/* The kinds of a row. */
#define TEXT(default_value, for_commands, value_name, help_line)                                                       \
    .type = SETTING_TEXT, .fallback = (default_value), .most = 4096, .commands = (for_commands) | FOR_CONFIG,          \
    .value = (value_name), .help = (help_line)
#define INTEGER(default_value, low, high, for_commands, help_line)                                                     \
    .type = SETTING_INTEGER, .fallback = (default_value), .least = (low), .most = (high),                              \
    .commands = (for_commands) | FOR_CONFIG, .value = "N", .help = (help_line)
#define SWITCH(default_value, for_commands, help_line)                                                                 \
    .type = SETTING_SWITCH, .fallback = (default_value), .commands = (for_commands) | FOR_CONFIG, .help = (help_line)
#define CHOICE(default_value, list, for_commands, help_line)                                                           \
    .type = SETTING_CHOICE, .fallback = (default_value), .choices = (list), .commands = (for_commands) | FOR_CONFIG,   \
    .value = "WORD", .help = (help_line)

static const struct setting table[] = {
#define SETTING(type, name, ...) {.key = #name, .offset = offsetof(struct config, name), __VA_ARGS__},
#include "config/settings.inc"
#undef SETTING
};

enum { SETTINGS = sizeof table / sizeof table[0] };
_Static_assert((int)SETTINGS <= (int)CONFIG_SETTINGS_MAX, "struct config has a source for every setting");

const struct setting *config_settings(size_t *count)
{
    *count = SETTINGS;
    return table;
}

enum status config_init(struct config *config, struct err *err)
{
    memset(config, 0, sizeof *config);
    return settings_reset(table, SETTINGS, config, err);
}

void config_free(struct config *config)
{
    settings_free(table, SETTINGS, config);
    for (size_t i = 0; i < config->queues.count; i++) {
        for (size_t key = 0; key < SETTINGS; key++) { free(config->queues.items[i].values[key]); }
    }
    free(config->queues.items);
    config->queues = (struct config_queues){0};
}

const char *config_queue_value(const struct config_queues *queues, size_t number, const char *key)
{
    const struct setting *setting = setting_find(table, SETTINGS, key);
    return setting ? queues->items[number].values[setting - table] : NULL;
}

enum status config_set(struct config *config, const struct setting *setting, const char *text,
                       enum config_source source, const char *where, struct err *err)
{
    unsigned char *current = &config->sources[setting - table];
    if (source >= *current) {
        enum status status = setting_parse(setting, text, where, config, err);
        if (status == STATUS_OK) { *current = (unsigned char)source; }
        return status;
    }
    /* A value that a higher source overrides is still checked. */
    struct config scratch;
    memset(&scratch, 0, sizeof scratch);
    enum status status = setting_parse(setting, text, where, &scratch, err);
    settings_free(table, SETTINGS, &scratch);
    return status;
}

enum config_source config_source_of(const struct config *config, const char *key)
{
    const struct setting *setting = setting_find(table, SETTINGS, key);
    return setting ? (enum config_source)config->sources[setting - table] : SOURCE_DEFAULT;
}

enum status config_environment(struct config *config, struct err *err)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        char name[SETTING_NAME_MAX];
        setting_variable(&table[i], name);
        const char *text = getenv(name);
        if (!text || text[0] == '\0') { /* compose files set missing variables to "" */
            continue;
        }
        enum status status = config_set(config, &table[i], text, SOURCE_ENVIRONMENT, name, err);
        if (status != STATUS_OK) { return status; }
    }
    return STATUS_OK;
}

const struct setting *config_mistyped(const char *variable)
{
    enum { SHORTEST = 5, CHANGES = 2 }; /* SLUICE_PORT, as Kubernetes sets it, is no mistyped setting */
    char key[SETTING_NAME_MAX];
    size_t prefix = strlen("SLUICE_"), length = strcspn(variable, "=");
    if (strncmp(variable, "SLUICE_", prefix) != 0 || length < prefix + SHORTEST || length >= sizeof key) {
        return NULL;
    }
    for (size_t i = prefix; i <= length; i++) {
        key[i - prefix] = i < length ? (char)tolower((unsigned char)variable[i]) : '\0';
    }
    const struct setting *nearest = setting_nearest(table, SETTINGS, key);
    unsigned changes = strcmp(key, "config") == 0 ? 0 : edit_distance(nearest->key, key);
    return changes > 0 && changes <= CHANGES ? nearest : NULL;
}

enum status config_check(const struct config *config, struct err *err)
{
    if (config->default_ttl_s > config->max_ttl_s) {
        return err_set(err, STATUS_BAD_INPUT, "default_ttl_s (%lld) is above max_ttl_s (%lld)",
                       (long long)config->default_ttl_s, (long long)config->max_ttl_s);
    }
    if (config->backoff_ms > config->backoff_cap_ms) {
        return err_set(err, STATUS_BAD_INPUT, "backoff_ms (%lld) is above backoff_cap_ms (%lld)",
                       (long long)config->backoff_ms, (long long)config->backoff_cap_ms);
    }
    if (config->redis_password && config->redis_password_file) {
        return err_set(err, STATUS_BAD_INPUT, "redis_password and redis_password_file are both set; keep one");
    }
    if (config->sentinel_password && config->sentinel_password_file) {
        return err_set(err, STATUS_BAD_INPUT, "sentinel_password and sentinel_password_file are both set; keep one");
    }
    if ((!config->tls_cert_file) != (!config->tls_key_file)) {
        return err_set(err, STATUS_BAD_INPUT, "tls_cert_file and tls_key_file go together; one of them is not set");
    }
    if (config->http_token_file && config->http[0] == '\0') {
        return err_set(err, STATUS_BAD_INPUT, "http_token_file is set, but http is not");
    }
    if (config->queues.count > 0 && config_source_of(config, "queue") == SOURCE_FILE) {
        return err_set(err, STATUS_BAD_INPUT, "queue and queues are both set; keep one");
    }
    if (config->prompt && config->prefix) {
        return err_set(err, STATUS_BAD_INPUT, "prompt and prefix are both set; keep one");
    }
    return STATUS_OK;
}

/* ---- the configuration file ----
 *
 * JSON with comments. Comments are blanked in place, so that positions stay true; base/json_tree parses the rest, and
 * checks what cJSON does not (UTF-8, depth, NUL, a key that occurs twice). */

static unsigned line_of(const char *bytes, size_t at)
{
    unsigned line = 1;
    for (size_t i = 0; i < at; i++) { line += bytes[i] == '\n'; }
    return line;
}

/* Returns the end of the string that begins at `at`. An unfinished one ends with the file; the JSON parser reports
 * it. */
static size_t skip_string(const char *bytes, size_t length, size_t at)
{
    for (at++; at < length && bytes[at] != '"'; at++) { at += bytes[at] == '\\'; }
    return at + 1;
}

/* Returns the end of the comment that begins at `at`, or 0 for a block comment without an end. */
static size_t skip_comment(const char *bytes, size_t length, size_t at)
{
    if (bytes[at + 1] == '/') {
        const char *end = memchr(bytes + at, '\n', length - at);
        return end ? (size_t)(end - bytes) : length;
    }
    for (at += 2; at + 1 < length; at++) {
        if (bytes[at] == '*' && bytes[at + 1] == '/') { return at + 2; }
    }
    return 0;
}

/* Turns comments outside strings into spaces, but keeps line ends. */
static enum status blank_comments(char *bytes, size_t length, const char *name, struct err *err)
{
    for (size_t at = 0; at < length;) {
        bool comment = bytes[at] == '/' && at + 1 < length && (bytes[at + 1] == '/' || bytes[at + 1] == '*');
        if (!comment) {
            at = bytes[at] == '"' ? skip_string(bytes, length, at) : at + 1;
            continue;
        }
        size_t end = skip_comment(bytes, length, at);
        if (end == 0) {
            return err_set(err, STATUS_BAD_INPUT, "%s line %u: a comment without its closing */", name,
                           line_of(bytes, at));
        }
        for (; at < end; at++) { bytes[at] = bytes[at] == '\n' ? '\n' : ' '; }
    }
    return STATUS_OK;
}

struct number_text {
    char text[256];
};

static bool is_whole(const cJSON *item)
{
    return cJSON_IsNumber(item) && fabs(item->valuedouble) < 9007199254740992.0 &&
           item->valuedouble == floor(item->valuedouble);
}

/* "1,2" for [1, 2], and "1" for 1; NULL for anything else, or if it does not fit. */
static const char *numbers_text(const cJSON *item, struct number_text *number)
{
    size_t used = 0;
    const cJSON *first = cJSON_IsArray(item) ? item->child : item;
    number->text[0] = '\0';
    for (const cJSON *at = first; at != NULL && used < sizeof number->text;
         at = cJSON_IsArray(item) ? at->next : NULL) {
        if (!is_whole(at)) { return NULL; }
        used += (size_t)snprintf(number->text + used, sizeof number->text - used, "%s%.0f", at == first ? "" : ",",
                                 at->valuedouble);
    }
    return used < sizeof number->text ? number->text : NULL;
}

/* Writes the value of a member as text, so that one parser checks every source. NULL for null, which counts as absent.
 */
static enum status member_text(const struct setting *setting, const cJSON *item, const char *where,
                               struct number_text *number, const char **text, struct err *err)
{
    *text = NULL;
    bool wants_string = setting->type == SETTING_TEXT || setting->type == SETTING_CHOICE;
    if (cJSON_IsNull(item) && setting->type == SETTING_TEXT) { return STATUS_OK; }
    bool is_auto = setting->automatic && cJSON_IsString(item) && strcmp(item->valuestring, "auto") == 0;
    if ((cJSON_IsString(item) && wants_string) || is_auto) {
        *text = item->valuestring;
    } else if (cJSON_IsBool(item) && setting->type == SETTING_SWITCH) {
        *text = cJSON_IsTrue(item) ? "true" : "false";
    } else if ((is_whole(item) && setting->type == SETTING_INTEGER) || (setting->numbers && !cJSON_IsNull(item))) {
        *text = numbers_text(item, number);
    }
    if (*text) { return STATUS_OK; }
    char takes[256];
    setting_describe(setting, takes, sizeof takes);
    return err_set(err, STATUS_BAD_INPUT, "%s must be %s", where, takes);
}

static enum status find_setting(const char *key, const char *name, const struct setting **out, struct err *err)
{
    *out = setting_find(table, SETTINGS, key);
    if (!*out) {
        return err_set(err, STATUS_BAD_INPUT, "%s: unknown key \"%.100s\"; the nearest known one is \"%s\"", name, key,
                       setting_nearest(table, SETTINGS, key)->key);
    }
    return STATUS_OK;
}

/* Checks one member of an entry of `queues`, and keeps its text. */
static enum status parse_queue_member(struct config_queue *queue, const cJSON *item, const char *name, struct err *err)
{
    const struct setting *setting;
    const char *text;
    struct number_text number;
    TRY(find_setting(item->string, name, &setting, err));
    char where[512];
    snprintf(where, sizeof where, "%s: \"%s\"", name, setting->key);
    if ((setting->commands & FOR_QUEUES) == 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s is the same for all queues of a daemon", where);
    }
    TRY(member_text(setting, item, where, &number, &text, err));
    struct config scratch = {0};
    enum status status = text ? setting_parse(setting, text, where, &scratch, err) : STATUS_OK;
    config_free(&scratch);
    if (status != STATUS_OK || !text) { return status; }
    char *copy = strdup(text);
    if (!copy) { return err_set(err, STATUS_NO_MEMORY, "no memory for %s", where); }
    queue->values[setting - table] = copy;
    return STATUS_OK;
}

static enum status parse_queue(struct config_queues *queues, const cJSON *object, const char *file, struct err *err)
{
    char name[256];
    size_t number = queues->count++;
    snprintf(name, sizeof name, "%.200s: \"queues\"[%zu]", file, number);
    if (!cJSON_IsObject(object)) { return err_set(err, STATUS_BAD_INPUT, "%s must be an object", name); }
    const cJSON *item;
    cJSON_ArrayForEach(item, object) TRY(parse_queue_member(&queues->items[number], item, name, err));
    const char *queue = config_queue_value(queues, number, "queue");
    if (!queue) { return err_set(err, STATUS_BAD_INPUT, "%s lacks \"queue\", its name", name); }
    for (size_t i = 0; i < number; i++) {
        if (strcmp(config_queue_value(queues, i, "queue"), queue) == 0) {
            return err_set(err, STATUS_BAD_INPUT, "%s: the queue %s stands there twice", name, queue);
        }
    }
    return STATUS_OK;
}

static enum status parse_queues(struct config *config, const cJSON *array, const char *file, struct err *err)
{
    int count = cJSON_GetArraySize(array);
    if (!cJSON_IsArray(array) || count > CONFIG_QUEUES_MAX) {
        return err_set(err, STATUS_BAD_INPUT, "%s: \"queues\" must be an array of at most %d objects", file,
                       CONFIG_QUEUES_MAX);
    }
    if (count == 0) { return STATUS_OK; }
    config->queues.items = calloc((size_t)count, sizeof(struct config_queue));
    if (!config->queues.items) { return err_set(err, STATUS_NO_MEMORY, "no memory for %d queues", count); }
    const cJSON *object;
    cJSON_ArrayForEach(object, array) TRY(parse_queue(&config->queues, object, file, err));
    config->sources[setting_find(table, SETTINGS, "queues") - table] = SOURCE_FILE;
    return STATUS_OK;
}

static enum status parse_object(struct config *config, const cJSON *object, const char *name, struct err *err)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        const struct setting *setting;
        TRY(find_setting(item->string, name, &setting, err));
        if (setting->type == SETTING_LIST) {
            TRY(parse_queues(config, item, name, err));
            continue;
        }
        char where[256];
        const char *text;
        struct number_text number;
        snprintf(where, sizeof where, "%s: \"%s\"", name, setting->key);
        TRY(member_text(setting, item, where, &number, &text, err));
        if (text) { TRY(config_set(config, setting, text, SOURCE_FILE, where, err)); }
    }
    return STATUS_OK;
}

enum status config_parse(struct config *config, char *bytes, size_t length, const char *name, struct err *err)
{
    if (length > CONFIG_FILE_MAX_BYTES) {
        return err_set(err, STATUS_BAD_INPUT, "%s has more than %d bytes", name, CONFIG_FILE_MAX_BYTES);
    }
    enum status status = blank_comments(bytes, length, name, err);
    if (status != STATUS_OK) { return status; }
    cJSON *root;
    status = json_parse(bytes, length, name, &root, err);
    if (status != STATUS_OK) { return status; }
    if (cJSON_IsObject(root)) {
        status = parse_object(config, root, name, err);
    } else {
        status = err_set(err, STATUS_BAD_INPUT, "%s must hold one JSON object", name);
    }
    cJSON_Delete(root);
    return status;
}

enum status config_read(struct config *config, const char *path, struct err *err)
{
    struct buffer bytes = {0};
    enum status status = file_read(path, CONFIG_FILE_MAX_BYTES, &bytes, err);
    if (status == STATUS_OK) { status = config_parse(config, bytes.data, bytes.length, path, err); }
    buffer_free(&bytes);
    return status;
}

/* ---- configurations made from a configuration: one for each queue of a daemon, a new one on reload ---- */

enum status config_pick_queue(struct config *config, struct err *err)
{
    if (config->queues.count == 0 || config_source_of(config, "queue") != SOURCE_DEFAULT) { return STATUS_OK; }
    char *first = strdup(config_queue_value(&config->queues, 0, "queue"));
    if (!first) { return err_set(err, STATUS_NO_MEMORY, "no memory for the name of a queue"); }
    free(config->queue);
    config->queue = first;
    return STATUS_OK;
}

/* Makes the settings of one queue: those of `config`, overridden by the entry of `queues`. */
static enum status derive_queues(const struct config *config, const struct config_queue *queue, struct config *out,
                                 struct err *err)
{
    memset(out, 0, sizeof *out);
    memcpy(out->sources, config->sources, sizeof out->sources);
    for (size_t i = 0; i < SETTINGS; i++) {
        const char *text = queue ? queue->values[i] : NULL;
        if (!text) {
            TRY(setting_copy(&table[i], config, out, err));
        } else {
            TRY(setting_parse(&table[i], text, table[i].key, out, err));
            out->sources[i] = SOURCE_FILE;
        }
    }
    /* prompt and prefix exclude each other, so an entry's own prompt also removes the common prefix. */
    const char *own_prompt = queue ? queue->values[setting_find(table, SETTINGS, "prompt") - table] : NULL;
    const char *own_prefix = queue ? queue->values[setting_find(table, SETTINGS, "prefix") - table] : NULL;
    char **replaced = own_prompt && !own_prefix           ? &out->prefix
                      : own_prefix != NULL && !own_prompt ? &out->prompt
                                                          : NULL;
    if (replaced) {
        free(*replaced);
        *replaced = NULL;
    }
    return config_check(out, err) == STATUS_OK ? STATUS_OK : err_prefix(err, "queue %s", out->queue);
}

enum status config_split(const struct config *config, struct config **out, size_t *count, struct err *err)
{
    const struct config_queues *queues = &config->queues;
    bool picked = queues->count > 0 && config_source_of(config, "queue") > SOURCE_FILE;
    size_t most = queues->count == 0 || picked ? 1 : queues->count;
    struct config *items = calloc(most, sizeof *items);
    if (!items) { return err_set(err, STATUS_NO_MEMORY, "no memory for the settings of %zu queues", most); }
    size_t made = 0;
    enum status status = queues->count == 0 ? derive_queues(config, NULL, &items[made++], err) : STATUS_OK;
    for (size_t i = 0; i < queues->count && status == STATUS_OK; i++) {
        if (!picked || strcmp(config_queue_value(queues, i, "queue"), config->queue) == 0) {
            status = derive_queues(config, &queues->items[i], &items[made++], err);
        }
    }
    if (status == STATUS_OK && made == 0) {
        status = err_set(err, STATUS_BAD_INPUT, "the configuration file lists `queues`, and %s is none of them",
                         config->queue);
    }
    if (status == STATUS_OK) {
        *out = items;
        *count = made;
        return STATUS_OK;
    }
    while (made > 0) { config_free(&items[--made]); }
    free(items);
    return status;
}

enum status config_reload(const struct config *old, const char *path, struct config *out, struct err *err)
{
    TRY(config_init(out, err));
    for (size_t i = 0; i < SETTINGS; i++) {
        if (old->sources[i] > SOURCE_FILE) {
            TRY(setting_copy(&table[i], old, out, err));
            out->sources[i] = old->sources[i];
        }
    }
    if (path) { TRY(config_read(out, path, err)); }
    if (!out->model && old->model && config_source_of(old, "model") == SOURCE_DEFAULT) {
        TRY(setting_copy(setting_find(table, SETTINGS, "model"), old, out, err));
    }
    TRY(config_pick_queue(out, err));
    return config_check(out, err);
}

/* ---- what a configuration names: the Redis address, the model, threads, devices ---- */

enum { PASSWORD_FILE_MAX_BYTES = 4096 };

/* Names the user whose rights are missing: under systemd it is not the root who made the file. */
static enum status name_reader(struct err *err)
{
    char denial[256];
    const struct passwd *user = getpwuid(geteuid());
    snprintf(denial, sizeof denial, "%.200s", err->message);
    return err_set(
        err, STATUS_DENIED,
        "%s to user %s (%lu); under systemd, LoadCredential hands it a file of root's: see docs/admin-api.md", denial,
        user ? user->pw_name : "without a name", (unsigned long)geteuid());
}

static enum status password_from_file(const char *path, const char *key, char **password, struct err *err)
{
    struct buffer text = {0};
    enum status status = file_read(path, PASSWORD_FILE_MAX_BYTES, &text, err);
    if (status == STATUS_DENIED) { (void)name_reader(err); }
    if (status == STATUS_OK) {
        text.data[strcspn(text.data, "\r\n")] = '\0';
        status = text.data[0] == '\0' ? err_set(err, STATUS_BAD_INPUT, "%s: its first line is empty", path)
                                      : address_set_password(password, text.data, err);
        explicit_bzero(text.data, text.length);
    }
    buffer_free(&text);
    return status == STATUS_OK ? status : err_prefix(err, "%s", key);
}

enum status config_http_token(const struct config *config, char **out, struct err *err)
{
    enum { LEAST = 16 };
    *out = NULL;
    if (!config->http_token_file) { return STATUS_OK; }
    TRY(password_from_file(config->http_token_file, "http_token_file", out, err));
    if (strlen(*out) >= LEAST) { return STATUS_OK; }
    explicit_bzero(*out, strlen(*out));
    free(*out);
    *out = NULL;
    return err_set(err, STATUS_BAD_INPUT, "http_token_file: the token has fewer than %d characters", LEAST);
}

static enum status apply_passwords(const struct config *config, struct address *address, struct err *err)
{
    if (config->redis_password_file) {
        TRY(password_from_file(config->redis_password_file, "redis_password_file", &address->password, err));
    } else if (config->redis_password) {
        TRY(address_set_password(&address->password, config->redis_password, err));
    }
    if ((config->sentinel_password || config->sentinel_password_file) && !address->master) {
        return err_set(err, STATUS_BAD_INPUT,
                       "a Sentinel password is set, but redis is not a redis+sentinel:// address");
    }
    char **sentinel = &address->sentinel_password;
    if (config->sentinel_password_file) {
        TRY(password_from_file(config->sentinel_password_file, "sentinel_password_file", sentinel, err));
    } else if (config->sentinel_password) {
        TRY(address_set_password(sentinel, config->sentinel_password, err));
    }
    return STATUS_OK;
}

static enum status apply_tls(const struct config *config, struct address *address, struct err *err)
{
    struct tls_options options = {config->tls_ca_file, config->tls_cert_file, config->tls_key_file};
    if (address->encrypted) { return tls_open(&options, &address->tls, err); }
    if (options.ca_file || options.cert_file) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s is set, but redis is not a rediss:// address: nothing would be encrypted",
                       options.ca_file ? "tls_ca_file" : "tls_cert_file");
    }
    return STATUS_OK;
}

enum status config_address(const struct config *config, struct address *out, struct err *err)
{
    *out = (struct address){0};
    enum status status = address_parse(config->redis, out, err);
    if (status != STATUS_OK) { return err_prefix(err, "redis"); }
    status = apply_passwords(config, out, err);
    if (status == STATUS_OK) { status = apply_tls(config, out, err); }
    if (status != STATUS_OK) { address_free(out); }
    return status;
}

/* `options` has the kind of model; what an encoder may have in addition is as configured. */
static enum status open_model(const struct config *config, struct model_options options, struct model **out,
                              struct err *err)
{
    if (!options.generate) {
        options.pooling = (enum pooling)config->pooling;
        options.max_tokens = (uint32_t)config->max_tokens;
        options.prompt = config->prompt;
        options.prefix = config->prefix;
    }
    if (access(config->model, F_OK) != 0) {
        const char *name = config->model, *slash = strchr(name, '/');
        if (errno == ENOENT && slash && slash != name && name[0] != '.' && !strchr(slash + 1, '/')) {
            return err_set(err, STATUS_NOT_FOUND,
                           "no model at %s: --model names a folder. If this is a name on Hugging Face: hf download %s "
                           "--local-dir DIR --include '*.json' --include '*.txt' --include '*.safetensors'",
                           name, name);
        }
        return err_set_errno(err, "no model at %s (--model names a sentence-transformers directory)", config->model);
    }
    return model_open(config->model, &options, out, err);
}

enum status config_model(const struct config *config, struct model **out, struct err *err)
{
    return open_model(config, (struct model_options){0}, out, err);
}

enum status config_any_model(const struct config *config, struct model **out, struct err *err)
{
    return open_model(config, (struct model_options){.classifier = true}, out, err);
}

enum status config_generator(const struct config *config, struct model **out, struct err *err)
{
    return open_model(config, (struct model_options){.generate = true}, out, err);
}

enum status config_served_model(const struct config *config, struct model **out, struct err *err)
{
    enum status status = config_any_model(config, out, err);
    if (status == STATUS_OK || config_generator(config, out, NULL) != STATUS_OK) { return status; }
    return STATUS_OK;
}

unsigned config_threads(const struct config *config)
{
    return config->threads > 0 ? (unsigned)config->threads : engine_default_threads();
}

enum { NUMBER_DIGITS = 4 };

/* Reads a number at *text, digits only, and moves *text past it. */
static bool parse_number(const char **text, uint32_t *number)
{
    size_t digits = strspn(*text, "0123456789");
    *number = 0;
    for (size_t i = 0; i < digits && i < NUMBER_DIGITS; i++) { *number = *number * 10 + (uint32_t)((*text)[i] - '0'); }
    *text += digits;
    return digits >= 1 && digits <= NUMBER_DIGITS;
}

bool device_list_parse(const char *text, struct device_list *list)
{
    *list = (struct device_list){.all = strcmp(text, "all") == 0};
    if (list->all) { return true; }
    for (;; text++) {
        if (list->count == DEVICES_MAX || !parse_number(&text, &list->numbers[list->count])) { return false; }
        list->count++;
        if (*text == '\0') { return true; }
        if (*text != ',') { return false; }
    }
}
