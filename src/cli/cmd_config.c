/* Every setting with its value in effect and where that came from; passwords are never shown. */
#include <stdio.h>
#include <sysexits.h>

#include "cli/command.h"

static const char *quote(const struct setting *setting, const char *text)
{
    bool is_text = setting->type == SETTING_TEXT || setting->type == SETTING_CHOICE;
    return is_text && text[0] != '\0' ? "\"" : "";
}

static int run(struct invocation *invocation)
{
    const struct config *config = &invocation->config;
    size_t count;
    const struct setting *table = config_settings(&count);
    for (size_t i = 0; i < count; i++) {
        char value[4200], name[SETTING_NAME_MAX];
        setting_format(&table[i], config, value, sizeof value);
        const char *mark = quote(&table[i], value);
        char shown[4300];
        snprintf(shown, sizeof shown, "%s%s%s", mark, value[0] == '\0' ? "null" : value, mark);
        printf("%-22s %-28s # ", table[i].key, shown);
        switch ((enum config_source)config->sources[i]) {
        case SOURCE_DEFAULT:
            puts("default");
            break;
        case SOURCE_FILE:
            printf("file %s\n", invocation->config_path);
            break;
        case SOURCE_ENVIRONMENT:
            setting_variable(&table[i], name);
            printf("environment %s\n", name);
            break;
        case SOURCE_FLAG:
            setting_flag(&table[i], name);
            printf("flag %s\n", name);
            break;
        }
    }
    return EX_OK;
}

const struct subcommand command_config = {
    .name = "config",
    .bit = FOR_CONFIG,
    .summary = "Print the settings in effect and where each came from",
    .explanation = "Each value comes from the highest of: flag, environment, file, default. The keys are explained in\n"
                   "config/sluice.json (installed as share/sluice/sluice.json).",
    .run = run,
};
