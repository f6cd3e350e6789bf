#include "cli/arguments.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"

/* A flag found in one of the two tables. */
struct flag {
    const struct setting *setting; /* NULL: none */
    bool own;
    bool negated; /* --no-switch */
};

/* "--window-ms" → "window_ms", cut at '='. */
static void key_of(const char *argument, char key[SETTING_NAME_MAX])
{
    size_t length = 0;
    for (const char *c = argument + 2; *c != '\0' && *c != '=' && length + 1 < SETTING_NAME_MAX; c++) {
        key[length++] = *c == '-' ? '_' : *c;
    }
    key[length] = '\0';
}

static struct flag find_flag(const struct subcommand *command, const char *key)
{
    struct flag flag = {.setting = setting_find(command->own, command->own_count, key)};
    if (flag.setting) {
        flag.own = true;
        return flag;
    }
    size_t count;
    const struct setting *table = config_settings(&count);
    flag.setting = setting_find(table, count, key);
    if (!flag.setting && strncmp(key, "no_", 3) == 0) {
        flag = find_flag(command, key + 3);
        flag.negated = true;
        if (flag.setting && flag.setting->type != SETTING_SWITCH) { flag.setting = NULL; }
    }
    return flag;
}

/* The command's flag that is nearest to `key`. */
static void nearest_flag(const struct subcommand *command, const char *key, char name[SETTING_NAME_MAX])
{
    snprintf(name, SETTING_NAME_MAX, "--help");
    unsigned least = edit_distance("help", key);
    size_t count;
    const struct setting *table = config_settings(&count);
    for (size_t i = 0; i < count + command->own_count; i++) {
        const struct setting *setting = i < count ? &table[i] : &command->own[i - count];
        bool takes = i >= count || (setting->commands & command->bit) != 0;
        unsigned distance = edit_distance(setting->key, key);
        if (takes && !setting->secret && distance < least) {
            least = distance;
            setting_flag(setting, name);
        }
    }
}

static enum status refuse_unknown(const struct subcommand *command, const char *argument, const char *key,
                                  const struct setting *elsewhere, struct err *err)
{
    char shown[SETTING_NAME_MAX + 2];
    snprintf(shown, sizeof shown, "%.*s", (int)strcspn(argument, "="), argument);
    if (elsewhere && elsewhere->secret) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s does not exist, because anyone can read the arguments of a process: use "
                       "--redis-password-file, or SLUICE_REDIS_PASSWORD in the environment",
                       shown);
    }
    if (elsewhere) {
        return err_set(err, STATUS_BAD_INPUT, "%s does not take %s; see sluice %s --help", command->name, shown,
                       command->name);
    }
    char nearest[SETTING_NAME_MAX];
    nearest_flag(command, key, nearest);
    return err_set(err, STATUS_BAD_INPUT, "unknown option %s; the nearest one is %s (see sluice %s --help)", shown,
                   nearest, command->name);
}

static void wipe_password(char *value, const char *flag)
{
    size_t begin, end;
    url_password(value, &begin, &end);
    if (begin == end) { return; }
    memset(value + begin, '*', end - begin);
    fprintf(stderr,
            "sluice: warning: the password in %s could be seen by other users of this machine; use "
            "--redis-password-file, or SLUICE_REDIS_PASSWORD in the environment\n",
            flag);
}

static enum status store(struct invocation *invocation, const struct flag *flag, char *value, struct err *err)
{
    char name[SETTING_NAME_MAX];
    setting_flag(flag->setting, name);
    enum status status = flag->own ? setting_parse(flag->setting, value, name, invocation->own, err)
                                   : config_set(&invocation->config, flag->setting, value, SOURCE_FLAG, name, err);
    if (flag->setting->has_secret) { wipe_password(value, name); }
    return status;
}

/* Reads the flag at argv[*at], and moves `*at` to its last argument. */
static enum status take_flag(int argc, char **argv, int *at, struct invocation *invocation, struct arguments *out,
                             struct err *err)
{
    static char yes[] = "true", no[] = "false";
    char *argument = argv[*at];
    char *value = strchr(argument, '=');
    value = value ? value + 1 : NULL;
    char key[SETTING_NAME_MAX];
    key_of(argument, key);
    struct flag flag = find_flag(invocation->command, key);
    bool is_config = strcmp(key, "config") == 0;
    bool takes = is_config || (flag.setting && !flag.setting->secret &&
                               (flag.own || (flag.setting->commands & invocation->command->bit) != 0));
    if (!takes || (is_config && invocation->command->bit == 0)) {
        return refuse_unknown(invocation->command, argument, key, flag.setting, err);
    }
    if (!is_config && flag.setting->type == SETTING_SWITCH) {
        if (flag.negated && value) { return err_set(err, STATUS_BAD_INPUT, "%.80s takes no value", argument); }
        value = flag.negated ? no : !value ? yes : value;
    }
    if (!value && *at + 1 >= argc) { return err_set(err, STATUS_BAD_INPUT, "%.80s needs a value", argument); }
    if (!value) { value = argv[++*at]; }
    if (is_config) {
        out->config_path = value;
        return STATUS_OK;
    }
    return store(invocation, &flag, value, err);
}

enum status arguments_parse(int argc, char **argv, struct invocation *invocation, struct arguments *out,
                            struct err *err)
{
    bool flags = true;
    invocation->operands = argv; /* filled from the front, over arguments already read */
    for (int at = 0; at < argc; at++) {
        char *argument = argv[at];
        if (flags && strcmp(argument, "--") == 0) {
            flags = false;
        } else if (flags && (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0)) {
            out->help = true;
        } else if (flags && strncmp(argument, "--", 2) == 0) {
            enum status status = take_flag(argc, argv, &at, invocation, out, err);
            if (status != STATUS_OK) { return status; }
        } else if (flags && argument[0] == '-' && argument[1] != '\0') {
            return err_set(err, STATUS_BAD_INPUT, "unknown option %.80s; put -- before a text that begins with a dash",
                           argument);
        } else {
            invocation->operands[invocation->operand_count++] = argument;
        }
    }
    if (invocation->operand_count > 0 && !invocation->command->operands && !out->help) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s takes no arguments, so what does \"%.80s\" mean? See sluice %s --help",
                       invocation->command->name, invocation->operands[0], invocation->command->name);
    }
    return STATUS_OK;
}

/* --help, from the same rows that parse the flags. */

enum { COLUMN = 30 };

static void print_row(const struct setting *setting)
{
    char flag[SETTING_NAME_MAX], left[3 * SETTING_NAME_MAX];
    setting_flag(setting, flag);
    if (setting->type == SETTING_CHOICE) {
        int used = snprintf(left, sizeof left, "%s ", flag);
        for (size_t i = 0; setting->choices[i] != NULL && used < (int)sizeof left; i++) {
            used += snprintf(left + used, sizeof left - (size_t)used, "%s%s", i == 0 ? "" : "|", setting->choices[i]);
        }
    } else if (setting->type == SETTING_SWITCH) {
        bool on = setting->fallback && strcmp(setting->fallback, "true") == 0;
        if (on) { /* then only --no-… changes anything */
            snprintf(left, sizeof left, "%s, --no-%s", flag, flag + strlen("--"));
        } else {
            snprintf(left, sizeof left, "%s", flag);
        }
    } else {
        snprintf(left, sizeof left, "%s %s", flag, setting->value);
    }
    if (strlen(left) > COLUMN) {
        printf("  %s\n  %-*s %s", left, COLUMN, "", setting->help);
    } else {
        printf("  %-*s %s", COLUMN, left, setting->help);
    }
    if (setting->fallback && setting->fallback[0] != '\0') { printf(" [%s]", setting->fallback); }
    putchar('\n');
}

static void print_settings(const struct subcommand *command)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    printf("\nSettings, also from the configuration file and from the environment (SLUICE_<KEY>):\n");
    for (size_t i = 0; i < count; i++) {
        if ((table[i].commands & command->bit) != 0 && !table[i].secret && table[i].type != SETTING_LIST) {
            print_row(&table[i]);
        }
    }
    printf("  %-*s %s\n", COLUMN, "--config FILE", "the configuration file [/etc/sluice/sluice.json if there is one]");
}

void print_help(const struct subcommand *command)
{
    printf("usage: sluice %s%s%s%s\n\n%s.\n", command->name, command->bit == 0 ? "" : " [options]",
           !command->operands ? "" : " ", command->operands ? command->operands : "", command->summary);
    if (command->explanation) { printf("\n%s\n", command->explanation); }
    if (command->own_count > 0) { printf("\nOptions:\n"); }
    for (size_t i = 0; i < command->own_count; i++) { print_row(&command->own[i]); }
    if (command->bit != 0) { print_settings(command); }
}
