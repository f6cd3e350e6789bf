/* Prints every setting with its value in effect and the source of that value. Passwords are never shown. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "cli/command.h"
#include "engine/engine.h"

/* The backend that this machine would use, which decides what "auto" means; name NULL: none. */
struct backend_here {
    const char *name;
    struct batch_size batch;
};

static bool is_auto(const struct setting *setting, const char *text)
{
    return setting->automatic && strcmp(text, "auto") == 0;
}

static const char *quote_value(const struct setting *setting, const char *text)
{
    bool is_text = setting->type == SETTING_TEXT || setting->type == SETTING_CHOICE || is_auto(setting, text);
    return is_text && text[0] != '\0' ? "\"" : "";
}

static int run_config(struct invocation *invocation)
{
    const struct config *config = &invocation->config;
    size_t count;
    const struct setting *table = config_settings(&count);
    struct backend_here here = {0};
    if (engine_default_batch(config->backend, (enum precision)config->precision, &here.batch, &here.name, NULL) !=
        STATUS_OK) {
        here.name = NULL;
    }
    for (size_t i = 0; i < count; i++) {
        char value[4200], name[SETTING_NAME_MAX];
        setting_format(&table[i], config, value, sizeof value);
        const char *mark = quote_value(&table[i], value);
        char shown[4300];
        snprintf(shown, sizeof shown, "%s%s%s", mark, value[0] == '\0' ? "null" : value, mark);
        printf("%-22s %-28s # ", table[i].key, shown);
        switch ((enum config_source)config->sources[i]) {
        case SOURCE_DEFAULT:
            printf("default");
            break;
        case SOURCE_FILE:
            printf("file %s", invocation->config_path);
            break;
        case SOURCE_ENVIRONMENT:
            setting_variable(&table[i], name);
            printf("environment %s", name);
            break;
        case SOURCE_FLAG:
            setting_flag(&table[i], name);
            printf("flag %s", name);
            break;
        }
        if (is_auto(&table[i], value) && here.name) { /* what "auto" means here */
            bool tokens = strcmp(table[i].key, "max_batch_tokens") == 0;
            printf("; %u on %s", tokens ? here.batch.tokens : here.batch.rows, here.name);
        }
        size_t length = strlen(table[i].key);
        bool reads =
            strcmp(table[i].key, "model") == 0 || (length > 5 && strcmp(table[i].key + length - 5, "_file") == 0);
        if (reads && value[0] != '\0' && access(value, R_OK) != 0) { printf("; cannot be read: %s", strerror(errno)); }
        puts("");
    }
    return EX_OK;
}

const struct subcommand command_config = {
    .name = "config",
    .bit = FOR_CONFIG,
    .summary = "Print the settings in effect and where each came from",
    .explanation = "Each value comes from the highest of: flag, environment, file, default. A file or model that this\n"
                   "user cannot read is marked. The keys are explained in share/sluice/sluice.json, in the source\n"
                   "config/sluice.json.",
    .run = run_config,
};
