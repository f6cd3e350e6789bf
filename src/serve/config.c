/* The table of settings, and how sources are laid over each other. To add a setting: a field in struct config, a row
 * here, its paragraph in config/sluice.json (a test holds the three together). */
#include "serve/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/device_list.h"

#define SERVE_QUEUE (FOR_SERVE | FOR_QUEUES) /* each queue of a daemon may have its own */
#define MODEL_USERS (FOR_SERVE | FOR_EMBED | FOR_BENCH | FOR_TOKENIZE | FOR_DOCTOR | FOR_QUEUES)
#define REDIS_USERS (FOR_SERVE | FOR_SUBMIT | FOR_GET | FOR_OPERATOR | FOR_DOCTOR | FOR_BULK)
#define ENGINE_USERS (FOR_SERVE | FOR_EMBED | FOR_BENCH)
#define EVERYONE (REDIS_USERS | MODEL_USERS)

static const char *const precisions[] = {"auto", "f32", "bf16", "f16", "int8", NULL};
static const char *const poolings[] = {"model", "mean", "cls", NULL};
static const char *const layouts[] = {"packed", "padded", "padded_fifo", NULL};
static const char *const windows[] = {"idle", "fixed", NULL};
static const char *const encodings[] = {"json", "f32", "f16", "base64", NULL};
static const char *const log_formats[] = {"text", "json", NULL};
static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};

static bool is_queue_name(const char *text)
{
    size_t length = strlen(text);
    return length >= 1 && length <= 64 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_.-") == length;
}

static bool is_device_list(const char *text)
{
    struct device_list list;
    return device_list_parse(text, &list);
}

static bool is_given(const char *text)
{
    return text[0] != '\0';
}

/* The names of the queues, each with its weight unless it is 1. */
static void format_queues(const void *field, char *text, size_t size)
{
    const struct config_queues *queues = field;
    text[0] = '\0';
    for (size_t i = 0, used = 0; i < queues->count && used < size; i++, used = strlen(text))
        snprintf(text + used, size - used, "%s%s%s%s", i == 0 ? "" : ", ", config_queue_value(queues, i, "queue"),
                 config_queue_value(queues, i, "weight") == NULL ? "" : ":",
                 config_queue_value(queues, i, "weight") == NULL ? "" : config_queue_value(queues, i, "weight"));
}

#define TEXT(name, default_value, for_commands, value_name, help_line)                                                 \
    .key = #name, .type = SETTING_TEXT, .offset = offsetof(struct config, name), .fallback = (default_value),          \
    .most = 4096, .commands = (for_commands) | FOR_CONFIG, .value = (value_name), .help = (help_line)
#define INTEGER(name, default_value, low, high, for_commands, help_line)                                               \
    .key = #name, .type = SETTING_INTEGER, .offset = offsetof(struct config, name), .fallback = (default_value),       \
    .least = (low), .most = (high), .commands = (for_commands) | FOR_CONFIG, .value = "N", .help = (help_line)
#define SWITCH(name, default_value, for_commands, help_line)                                                           \
    .key = #name, .type = SETTING_SWITCH, .offset = offsetof(struct config, name), .fallback = (default_value),        \
    .commands = (for_commands) | FOR_CONFIG, .help = (help_line)
#define CHOICE(name, default_value, list, for_commands, help_line)                                                     \
    .key = #name, .type = SETTING_CHOICE, .offset = offsetof(struct config, name), .fallback = (default_value),        \
    .choices = (list), .commands = (for_commands) | FOR_CONFIG, .value = "WORD", .help = (help_line)

/* clang-format off */
static const struct setting table[] = {
    {TEXT(redis, "redis://127.0.0.1:6379/0", REDIS_USERS, "URL", "redis[s]://[user:password@]host[:port][/db], redis[s]+sentinel://host,host/name[/db], or a unix socket"),
        .accepts = is_given, .expects = "a redis:// URL or the path of a unix socket", .has_secret = true},
    {TEXT(redis_password, NULL, REDIS_USERS, "TEXT", "the password, where a file of its own is not possible"), .secret = true},
    {TEXT(redis_password_file, NULL, REDIS_USERS, "FILE", "a file whose first line is the password")},
    {TEXT(tls_ca_file, NULL, REDIS_USERS, "FILE", "who may sign the server's certificate (PEM) [the system's list]")},
    {TEXT(tls_cert_file, NULL, REDIS_USERS, "FILE", "our certificate, for servers that want one (PEM)")},
    {TEXT(tls_key_file, NULL, REDIS_USERS, "FILE", "its key (PEM, unencrypted)")},
    {TEXT(sentinel_password, NULL, REDIS_USERS, "TEXT", "the password of the sentinels"), .secret = true},
    {TEXT(sentinel_password_file, NULL, REDIS_USERS, "FILE", "a file whose first line is it")},
    {TEXT(queue, "default", REDIS_USERS | FOR_QUEUES, "NAME", "the queue's name"),
        .accepts = is_queue_name, .expects = "1 to 64 of a-z 0-9 _ . -"},
    {.key = "queues", .type = SETTING_LIST, .offset = offsetof(struct config, queues), .commands = FOR_SERVE | FOR_CONFIG,
        .value = "LIST", .help = "several queues, each with its own model and weight", .format = format_queues},
    {INTEGER(weight, "1", 1, 1000, SERVE_QUEUE, "this queue's share of the compute threads beside the daemon's others")},
    {SWITCH(allow_eviction, "false", FOR_SERVE, "start even if Redis may evict keys (maxmemory-policy)")},

    {TEXT(model, NULL, MODEL_USERS, "DIR", "a Hugging Face or sentence-transformers directory [the model that comes with Sluice]")},
    {CHOICE(precision, "auto", precisions, ENGINE_USERS | FOR_QUEUES | FOR_DOCTOR, "arithmetic of the forward pass")},
    {CHOICE(pooling, "model", poolings, MODEL_USERS, "how token vectors become one, when the model does not say")},
    {INTEGER(max_tokens, "0", 0, 1048576, MODEL_USERS, "tokens per text, special ones included; 0 = as the model says")},
    {TEXT(prompt, NULL, MODEL_USERS, "NAME", "a prompt of the model to put before every text")},
    {TEXT(prefix, NULL, MODEL_USERS, "TEXT", "this text before every text, where the model names no prompt for it")},
    {TEXT(backend, "auto", ENGINE_USERS | FOR_DOCTOR, "NAME", "engine backend: auto, cuda, cpu, null"), .accepts = is_given, .expects = "the name of a backend"},
    {TEXT(device, "all", ENGINE_USERS, "LIST", "the devices to compute on: all, or numbers such as 0,1"),
        .accepts = is_device_list, .expects = "all, or up to 32 numbers of devices such as 0 or 0,1", .numbers = true},
    {INTEGER(device_memory, "80", 1, 100, ENGINE_USERS, "percent of a GPU's free memory that may be reserved")},
    {INTEGER(threads, "0", 0, 1024, ENGINE_USERS, "compute threads of a CPU; 0 = the CPUs this process may use; a GPU needs one")},
    {INTEGER(prep_threads, "1", 1, 64, FOR_SERVE, "threads that tokenise texts and write replies")},
    {TEXT(cache_dir, NULL, FOR_SERVE | FOR_EMBED, "DIR", "where measurements of this machine are kept; \"\" = nowhere [the user's cache]")},

    {CHOICE(layout, "packed", layouts, FOR_SERVE, "how a batch is made; those that pad are for comparison")},
    {INTEGER(max_batch_tokens, "auto", 1, 1048576, FOR_EMBED | SERVE_QUEUE, "tokens in one batch; auto = as the backend likes"), .automatic = true, .live = true},
    {INTEGER(max_batch_rows, "auto", 1, 1024, FOR_EMBED | SERVE_QUEUE, "texts in one batch; auto = as the backend likes"), .automatic = true, .live = true},
    {INTEGER(max_batch_ms, "100", 0, 60000, SERVE_QUEUE, "longest time that a batch is predicted to take; 0 = any"), .live = true},
    {INTEGER(target_p99_ms, "0", 0, 3600000, SERVE_QUEUE, "batches so short that 99 % are answered in this time; 0 = off"), .live = true},
    {CHOICE(window, "idle", windows, SERVE_QUEUE, "idle: an idle engine starts at once; fixed: always wait window_ms"), .live = true},
    {INTEGER(window_ms, "5", 0, 60000, SERVE_QUEUE, "longest wait for more texts before a batch starts"), .live = true},
    {INTEGER(credit_tokens, "auto", 1, 1073741824, SERVE_QUEUE, "tokens of unfinished requests that this daemon may hold, for each device; auto = of a second"), .automatic = true, .live = true},
    {INTEGER(credit_bytes, "67108864", 4096, 1099511627776, SERVE_QUEUE, "bytes of unfinished requests that it may hold, for each device"), .live = true},

    {CHOICE(default_encoding, "json", encodings, SERVE_QUEUE, "encoding of a reply whose request names none"), .live = true},
    {INTEGER(default_ttl_s, "3600", 1, 604800, SERVE_QUEUE, "seconds a reply is kept when the request does not say"), .live = true},
    {INTEGER(max_ttl_s, "604800", 1, 604800, SERVE_QUEUE, "longest ttl that a request may ask for"), .live = true},
    {INTEGER(error_ttl_s, "3600", 1, 604800, SERVE_QUEUE, "seconds that an error reply is kept at least"), .live = true},
    {INTEGER(default_max_attempts, "4", 1, 10, SERVE_QUEUE, "attempts before a request is dead-lettered"), .live = true},
    {SWITCH(truncate, "true", SERVE_QUEUE, "cut texts that are too long; otherwise they are refused"), .live = true},
    {INTEGER(max_text_bytes, "1048576", 1, 15728640, SERVE_QUEUE, "bytes of text that a request may carry"), .live = true},
    {INTEGER(max_inputs, "256", 1, 4096, SERVE_QUEUE, "texts that a request may carry in inputs"), .live = true},

    {INTEGER(lease_ms, "15000", 100, 600000, FOR_SERVE, "a daemon that is silent this long counts as dead")},
    {INTEGER(compute_timeout_ms, "60000", 0, 86400000, FOR_SERVE, "a batch that runs longer ends the daemon; 0 = never"), .live = true},
    {INTEGER(backoff_ms, "1000", 1, 3600000, FOR_SERVE, "delay before the first retry; it doubles"), .live = true},
    {INTEGER(backoff_cap_ms, "60000", 1, 3600000, FOR_SERVE, "longest delay before a retry"), .live = true},
    {INTEGER(shutdown_timeout_ms, "25000", 0, 3600000, FOR_SERVE, "time to finish running work after SIGTERM"), .live = true},

    {CHOICE(log, "text", log_formats, FOR_SERVE, "log lines as text or as JSON")},
    {CHOICE(log_level, "info", log_levels, EVERYONE, "least level that is logged"), .live = true},
    {INTEGER(stats_s, "60", 0, 86400, FOR_SERVE, "seconds between lines of counters at level debug; 0 = none")},
};
/* clang-format on */

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
    for (size_t i = 0; i < config->queues.count; i++)
        for (size_t key = 0; key < SETTINGS; key++)
            free(config->queues.items[i].values[key]);
    free(config->queues.items);
    config->queues = (struct config_queues){0};
}

const char *config_queue_value(const struct config_queues *queues, size_t number, const char *key)
{
    const struct setting *setting = setting_find(table, SETTINGS, key);
    return setting == NULL ? NULL : queues->items[number].values[setting - table];
}

enum status config_set(struct config *config, const struct setting *setting, const char *text,
                       enum config_source source, const char *where, struct err *err)
{
    unsigned char *current = &config->sources[setting - table];
    if (source >= *current) {
        enum status status = setting_parse(setting, text, where, config, err);
        if (status == STATUS_OK)
            *current = (unsigned char)source;
        return status;
    }
    /* A value that a higher source hides is still checked, in a struct that is thrown away. */
    struct config scratch;
    memset(&scratch, 0, sizeof scratch);
    enum status status = setting_parse(setting, text, where, &scratch, err);
    settings_free(table, SETTINGS, &scratch);
    return status;
}

enum config_source config_source_of(const struct config *config, const char *key)
{
    const struct setting *setting = setting_find(table, SETTINGS, key);
    return setting == NULL ? SOURCE_DEFAULT : (enum config_source)config->sources[setting - table];
}

enum status config_environment(struct config *config, struct err *err)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        char name[SETTING_NAME_MAX];
        setting_variable(&table[i], name);
        const char *text = getenv(name);
        if (text == NULL || text[0] == '\0') /* compose files set what they do not have to nothing */
            continue;
        enum status status = config_set(config, &table[i], text, SOURCE_ENVIRONMENT, name, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status config_check(const struct config *config, struct err *err)
{
    if (config->default_ttl_s > config->max_ttl_s)
        return err_set(err, STATUS_BAD_INPUT, "default_ttl_s (%lld) is above max_ttl_s (%lld)",
                       (long long)config->default_ttl_s, (long long)config->max_ttl_s);
    if (config->backoff_ms > config->backoff_cap_ms)
        return err_set(err, STATUS_BAD_INPUT, "backoff_ms (%lld) is above backoff_cap_ms (%lld)",
                       (long long)config->backoff_ms, (long long)config->backoff_cap_ms);
    if (config->redis_password != NULL && config->redis_password_file != NULL)
        return err_set(err, STATUS_BAD_INPUT, "redis_password and redis_password_file are both set; keep one");
    if (config->sentinel_password != NULL && config->sentinel_password_file != NULL)
        return err_set(err, STATUS_BAD_INPUT, "sentinel_password and sentinel_password_file are both set; keep one");
    if ((config->tls_cert_file == NULL) != (config->tls_key_file == NULL))
        return err_set(err, STATUS_BAD_INPUT, "tls_cert_file and tls_key_file go together; one of them is not set");
    if (config->queues.count > 0 && config_source_of(config, "queue") == SOURCE_FILE)
        return err_set(err, STATUS_BAD_INPUT, "queue and queues are both set; keep one");
    if (config->prompt != NULL && config->prefix != NULL)
        return err_set(err, STATUS_BAD_INPUT, "prompt and prefix are both set; keep one");
    return STATUS_OK;
}

const char *config_source_name(enum config_source source)
{
    static const char *const names[] = {"default", "file", "environment", "flag"};
    return names[source];
}
