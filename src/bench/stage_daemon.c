/* A daemon gets our settings by its environment (so that no password stands in its arguments), and flags over them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/stage.h"

enum { ENVIRONMENT_MAX = 512, ARGUMENTS_MAX = 40, SETTING_TEXT_MAX = 4200, STOP_MS = 60000 };

struct environment {
    char *items[ENVIRONMENT_MAX + 1];
    size_t count, inherited; /* the first so many are our own environment's */
};

static void free_environment(struct environment *environment)
{
    for (size_t i = environment->inherited; i < environment->count; i++)
        free(environment->items[i]);
}

/* Of a Redis that is ours the user's settings say nothing. */
static bool about_redis(const char *key)
{
    return strncmp(key, "redis", 5) == 0 || strncmp(key, "tls_", 4) == 0 || strncmp(key, "sentinel_", 9) == 0;
}

static enum status add_setting(struct environment *environment, const struct setting *setting,
                               const struct config *config, struct err *err)
{
    char name[SETTING_NAME_MAX], value[SETTING_TEXT_MAX], *item = malloc(SETTING_NAME_MAX + SETTING_TEXT_MAX);
    if (item == NULL || environment->count == ENVIRONMENT_MAX) {
        free(item);
        return err_set(err, STATUS_NO_MEMORY, "no room for the settings of a daemon");
    }
    if (setting->type == SETTING_TEXT) { /* as it is: setting_format hides passwords */
        const char *text;
        memcpy(&text, (const char *)config + setting->offset, sizeof text);
        snprintf(value, sizeof value, "%s", text == NULL ? "" : text);
    } else {
        setting_format(setting, config, value, sizeof value);
    }
    setting_variable(setting, name);
    snprintf(item, SETTING_NAME_MAX + SETTING_TEXT_MAX, "%s=%s", name, value);
    environment->items[environment->count++] = item;
    return STATUS_OK;
}

static enum status make_environment(const struct stage *stage, struct environment *environment, struct err *err)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    for (char **item = environ; *item != NULL && environment->count < ENVIRONMENT_MAX; item++)
        if (strncmp(*item, "SLUICE_", 7) != 0)
            environment->items[environment->count++] = *item;
    environment->inherited = environment->count;
    for (size_t i = 0; i < count; i++)
        if (stage->config->sources[i] != SOURCE_DEFAULT && table[i].type != SETTING_LIST &&
            (table[i].commands & FOR_SERVE) != 0 && !(stage->own && about_redis(table[i].key)))
            TRY(add_setting(environment, &table[i], stage->config, err));
    environment->items[environment->count] = NULL;
    return STATUS_OK;
}

/* An empty configuration file stands in for /etc/sluice/sluice.json, which is in our settings already. */
static enum status make_config(const struct stage *stage, char path[CHILD_PATH], struct err *err)
{
    snprintf(path, CHILD_PATH, "%.200s/sluice.json", stage->folder);
    FILE *file = fopen(path, "w");
    bool written = file != NULL && fputs("{}\n", file) >= 0;
    if (file == NULL || fclose(file) != 0 || !written)
        return err_set_errno(err, "cannot write %s", path);
    return STATUS_OK;
}

enum status stage_daemon(struct stage *stage, const char *const *flags, struct child *out, struct err *err)
{
    char path[CHILD_PATH], log[CHILD_PATH], self[CHILD_PATH];
    const char *argv[ARGUMENTS_MAX] = {self,         "serve", "--config", path,          "--queue",
                                       stage->queue, "--log", "text",     "--log-level", "info"};
    size_t count = 10;
    *out = (struct child){0};
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return err_set_errno(err, "cannot find this program");
    self[length] = '\0';
    TRY(make_config(stage, path, err));
    snprintf(log, sizeof log, "%.200s/daemon.log", stage->folder);
    if (unlink(log) != 0 && access(log, F_OK) == 0)
        return err_set_errno(err, "cannot remove %s", log);
    if (stage->own) {
        argv[count++] = "--redis";
        argv[count++] = stage->socket;
    }
    while (*flags != NULL && count < ARGUMENTS_MAX - 1)
        argv[count++] = *flags++;
    struct environment environment = {0};
    enum status status = make_environment(stage, &environment, err);
    if (status == STATUS_OK)
        status = child_start(out, "sluice serve", argv, environment.items, log, err);
    free_environment(&environment);
    return status;
}

/* The number behind " key=" in a line. */
static double number_of(const char *line, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, " %s=", key);
    const char *at = strstr(line, name);
    return at == NULL ? 0 : strtod(at + strlen(name), NULL);
}

enum status stage_end_daemon(struct child *daemon, struct daemon_counts *out, struct err *err)
{
    struct buffer log = {0};
    child_stop(daemon, SIGTERM, STOP_MS);
    if (daemon->exit_code != 0)
        return child_gone(daemon, err);
    enum status status = child_read_log(daemon, &log, err);
    const char *line = status == STATUS_OK && log.data != NULL ? strstr(log.data, " drained ") : NULL;
    if (status == STATUS_OK && line == NULL)
        status = err_set(err, STATUS_INTERNAL, "the log of a daemon has no counters");
    else if (status == STATUS_OK)
        *out = (struct daemon_counts){.done = number_of(line, "done"),
                                      .errors = number_of(line, "errors"),
                                      .batches = number_of(line, "batches"),
                                      .rows = number_of(line, "rows"),
                                      .rows_shared = number_of(line, "rows_shared"),
                                      .tokens = number_of(line, "tokens"),
                                      .computed_tokens = number_of(line, "computed_tokens"),
                                      .busy_ms = number_of(line, "busy_ms")};
    buffer_free(&log);
    return status;
}
