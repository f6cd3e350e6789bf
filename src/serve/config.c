/* The table of settings, and how sources are laid over each other. To add a setting: a field in struct config, a row
 * here, its paragraph in config/sluice.json (a test holds the three together). */
#include "serve/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENGINE_USERS (FOR_SERVE | FOR_EMBED)
#define MODEL_USERS (FOR_SERVE | FOR_EMBED | FOR_TOKENIZE)
#define REDIS_USERS (FOR_SERVE | FOR_SUBMIT | FOR_GET)
#define EVERYONE (REDIS_USERS | MODEL_USERS)

static const char *const precisions[] = {"auto", "f32", "bf16", NULL};
static const char *const poolings[] = {"model", "mean", "cls", NULL};
static const char *const layouts[] = {"packed", "padded", NULL};
static const char *const windows[] = {"idle", "fixed", NULL};
static const char *const encodings[] = {"json", "f32", NULL};
static const char *const log_formats[] = {"text", "json", NULL};
static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};

static bool is_queue_name(const char *text)
{
    size_t length = strlen(text);
    return length >= 1 && length <= 64 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_.-") == length;
}

static bool is_given(const char *text)
{
    return text[0] != '\0';
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
    {TEXT(redis, "redis://127.0.0.1:6379/0", REDIS_USERS, "URL", "redis://[user:password@]host[:port][/db], or the path of a unix socket"),
        .accepts = is_given, .expects = "a redis:// URL or the path of a unix socket", .has_secret = true},
    {TEXT(redis_password, NULL, REDIS_USERS, "TEXT", "the password, where a file of its own is not possible"), .secret = true},
    {TEXT(redis_password_file, NULL, REDIS_USERS, "FILE", "a file whose first line is the password")},
    {TEXT(queue, "default", REDIS_USERS, "NAME", "the queue's name"),
        .accepts = is_queue_name, .expects = "1 to 64 of a-z 0-9 _ . -"},
    {SWITCH(allow_eviction, "false", FOR_SERVE, "start even if Redis may evict keys (maxmemory-policy)")},

    {TEXT(model, NULL, MODEL_USERS, "DIR", "a Hugging Face or sentence-transformers directory [the model that comes with Sluice]")},
    {CHOICE(precision, "auto", precisions, ENGINE_USERS, "arithmetic of the forward pass")},
    {CHOICE(pooling, "model", poolings, MODEL_USERS, "how token vectors become one, when the model does not say")},
    {INTEGER(max_tokens, "0", 0, 1048576, MODEL_USERS, "tokens per text, special ones included; 0 = as the model says")},
    {TEXT(prompt, NULL, MODEL_USERS, "NAME", "a prompt of the model to put before every text")},
    {TEXT(prefix, NULL, MODEL_USERS, "TEXT", "this text before every text, where the model names no prompt for it")},
    {TEXT(backend, "auto", ENGINE_USERS, "NAME", "engine backend: auto, cpu, null"), .accepts = is_given, .expects = "the name of a backend"},
    {INTEGER(threads, "0", 0, 1024, ENGINE_USERS, "compute threads; 0 = the CPUs this process may use")},
    {INTEGER(prep_threads, "1", 1, 64, FOR_SERVE, "threads that tokenise texts and write replies")},

    {CHOICE(layout, "packed", layouts, FOR_SERVE, "how a batch lies in memory; padded is for comparison")},
    {INTEGER(max_batch_tokens, "4096", 1, 1048576, ENGINE_USERS, "tokens in one batch")},
    {INTEGER(max_batch_rows, "256", 1, 1024, ENGINE_USERS, "texts in one batch")},
    {CHOICE(window, "idle", windows, FOR_SERVE, "idle: an idle engine starts at once; fixed: always wait window_ms")},
    {INTEGER(window_ms, "5", 0, 60000, FOR_SERVE, "longest wait for more texts before a batch starts")},
    {INTEGER(credit_tokens, "131072", 1, 1073741824, FOR_SERVE, "tokens of unfinished requests that this daemon may hold")},
    {INTEGER(credit_bytes, "67108864", 4096, 1099511627776, FOR_SERVE, "bytes of unfinished requests that it may hold")},

    {CHOICE(default_encoding, "json", encodings, FOR_SERVE, "encoding of a reply whose request names none")},
    {INTEGER(default_ttl_s, "3600", 1, 604800, FOR_SERVE, "seconds a reply is kept when the request does not say")},
    {INTEGER(max_ttl_s, "604800", 1, 604800, FOR_SERVE, "longest ttl that a request may ask for")},
    {INTEGER(error_ttl_s, "3600", 1, 604800, FOR_SERVE, "seconds that an error reply is kept at least")},
    {INTEGER(default_max_attempts, "4", 1, 10, FOR_SERVE, "attempts before a request is dead-lettered")},
    {SWITCH(truncate, "true", FOR_SERVE, "cut texts that are too long; otherwise they are refused")},
    {INTEGER(max_text_bytes, "1048576", 1, 15728640, FOR_SERVE, "longest text that a request may carry")},

    {INTEGER(lease_ms, "15000", 100, 600000, FOR_SERVE, "a daemon that is silent this long counts as dead")},
    {INTEGER(read_block_ms, "2000", 1, 2000, FOR_SERVE, "longest blocking read")},
    {INTEGER(backoff_ms, "1000", 1, 3600000, FOR_SERVE, "delay before the first retry; it doubles")},
    {INTEGER(backoff_cap_ms, "60000", 1, 3600000, FOR_SERVE, "longest delay before a retry")},
    {INTEGER(shutdown_timeout_ms, "25000", 0, 3600000, FOR_SERVE, "time to finish running work after SIGTERM")},

    {CHOICE(log, "text", log_formats, FOR_SERVE, "log lines as text or as JSON")},
    {CHOICE(log_level, "info", log_levels, EVERYONE, "least level that is logged")},
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
    if (config->prompt != NULL && config->prefix != NULL)
        return err_set(err, STATUS_BAD_INPUT, "prompt and prefix are both set; keep one");
    return STATUS_OK;
}

const char *config_source_name(enum config_source source)
{
    static const char *const names[] = {"default", "file", "environment", "flag"};
    return names[source];
}
