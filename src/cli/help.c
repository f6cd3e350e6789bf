/* --help, from the same rows that parse the flags. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"

enum { COLUMN = 30 };

static void print_row(const struct setting *setting)
{
    char flag[SETTING_NAME_MAX], left[3 * SETTING_NAME_MAX];
    setting_flag(setting, flag);
    if (setting->type == SETTING_CHOICE) {
        int used = snprintf(left, sizeof left, "%s ", flag);
        for (size_t i = 0; setting->choices[i] != NULL && used < (int)sizeof left; i++)
            used += snprintf(left + used, sizeof left - (size_t)used, "%s%s", i == 0 ? "" : "|", setting->choices[i]);
    } else if (setting->type == SETTING_SWITCH) {
        bool on = setting->fallback != NULL && strcmp(setting->fallback, "true") == 0;
        if (on) /* then the other word is the one of use */
            snprintf(left, sizeof left, "%s, --no-%s", flag, flag + strlen("--"));
        else
            snprintf(left, sizeof left, "%s", flag);
    } else {
        snprintf(left, sizeof left, "%s %s", flag, setting->value);
    }
    if (strlen(left) > COLUMN)
        printf("  %s\n  %-*s %s", left, COLUMN, "", setting->help);
    else
        printf("  %-*s %s", COLUMN, left, setting->help);
    if (setting->fallback != NULL && setting->fallback[0] != '\0')
        printf(" [%s]", setting->fallback);
    putchar('\n');
}

static void print_settings(const struct subcommand *command)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    printf("\nSettings, also from the configuration file and from the environment (SLUICE_<KEY>):\n");
    for (size_t i = 0; i < count; i++)
        if ((table[i].commands & command->bit) != 0 && !table[i].secret && table[i].type != SETTING_LIST)
            print_row(&table[i]);
    printf("  %-*s %s\n", COLUMN, "--config FILE", "the configuration file [/etc/sluice/sluice.json if there is one]");
}

void print_help(const struct subcommand *command)
{
    printf("usage: sluice %s%s%s%s\n\n%s.\n", command->name, command->bit == 0 ? "" : " [options]",
           command->operands == NULL ? "" : " ", command->operands == NULL ? "" : command->operands, command->summary);
    if (command->explanation != NULL)
        printf("\n%s\n", command->explanation);
    if (command->own_count > 0)
        printf("\nOptions:\n");
    for (size_t i = 0; i < command->own_count; i++)
        print_row(&command->own[i]);
    if (command->bit != 0)
        print_settings(command);
}
