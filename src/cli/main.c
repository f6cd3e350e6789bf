/* sluice: finds the command, and does the work that all commands share: arguments, configuration, errors, exit codes.
 */
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/edit_distance.h"
#include "base/err.h"
#include "base/log.h"
#include "base/version.h"
#include "cli/invocation.h"

#define SYSTEM_CONFIG "/etc/sluice/sluice.json"
#define DEFAULT_MODEL "sluice-mini-en"

static const struct subcommand *const commands[] = {
#define COMMAND(name) &command_##name,
#include "cli/commands.inc"
#undef COMMAND
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static int run_version(struct invocation *invocation)
{
    (void)invocation;
    printf("sluice %s\n", sluice_version);
    return EX_OK;
}

const struct subcommand command_version = {.name = "version", .summary = "Print the version", .run = run_version};

static void print_commands(FILE *to)
{
    fprintf(to, "usage: sluice COMMAND [options]\n\n"
                "Sluice turns texts into vectors behind a Redis stream. Commands:\n\n");
    for (size_t i = 0; i < COMMANDS; i++) { fprintf(to, "  %-15s %s\n", commands[i]->name, commands[i]->summary); }
    fprintf(to, "\nsluice COMMAND --help explains one.\n");
}

int print_error(const struct invocation *invocation, const struct err *err)
{
    (void)log_flush(); /* the log lines that led to the error come first */
    fprintf(stderr, "sluice %s: %s\n", invocation->command->name, err->message);
    return status_exit_code(err->status);
}

/* A signal handler gets no context, so this flag belongs to the whole process. */
static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

const volatile sig_atomic_t *interrupt_listen(void)
{
    struct sigaction action = {.sa_handler = on_signal,
                               .sa_flags = (int)SA_RESETHAND}; /* no SA_RESTART: signals interrupt reads */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &caught;
}

/* --- The arguments: --flag VALUE, --flag=VALUE, --switch, --no-switch; "--" ends the flags. They are parsed by the
 * rows of the settings, the configuration's and the command's own: there is no second list of flags. --- */

/* Arguments that are not settings. */
struct arguments {
    bool help;
    const char *config_path; /* --config; points into argv */
};

/* A flag found in one of the two tables. */
struct flag {
    const struct setting *setting; /* NULL: none */
    bool own;
    bool negated; /* --no-switch */
};

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

/* Reads the flag at argv[*at], and moves `*at` to its last argument. */
static enum status take_flag(int argc, char **argv, int *at, struct invocation *invocation, struct arguments *out,
                             struct err *err)
{
    static char yes[] = "true", no[] = "false";
    char *argument = argv[*at];
    char *value = strchr(argument, '=');
    value = value ? value + 1 : NULL;
    char key[SETTING_NAME_MAX]; /* "--window-ms=5" has the key "window_ms" */
    snprintf(key, sizeof key, "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    for (char *c = key; *c != '\0'; c++) { *c = *c == '-' ? '_' : *c; }
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
    char name[SETTING_NAME_MAX];
    setting_flag(flag.setting, name);
    enum status status = flag.own ? setting_parse(flag.setting, value, name, invocation->own, err)
                                  : config_set(&invocation->config, flag.setting, value, SOURCE_FLAG, name, err);
    if (flag.setting->has_secret) { wipe_password(value, name); }
    return status;
}

/* Reads argv[0..argc) (without program and command names) into the invocation's config, own options and operands, which
 * point into argv. Overwrites a password inside a URL in argv, so that `ps` does not show it, and prints a warning.
 * Errors: STATUS_BAD_INPUT, STATUS_NO_MEMORY. */
static enum status parse_arguments(int argc, char **argv, struct invocation *invocation, struct arguments *out,
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
        const struct subcommand *command = invocation->command;
        for (size_t i = 0; i < command->own_count; i++) {
            if (strcmp(command->own[i].key, "input") == 0) {
                return err_set(err, STATUS_BAD_INPUT, "%s takes no arguments: --input \"%.80s\" names a file to read",
                               command->name, invocation->operands[0]);
            }
        }
        return err_set(err, STATUS_BAD_INPUT,
                       "%s takes no arguments, so what does \"%.80s\" mean? See sluice %s --help",
                       invocation->command->name, invocation->operands[0], invocation->command->name);
    }
    return STATUS_OK;
}

/* --- --help, from the same rows that parse the flags --- */

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
        if (on) { /* then only --no-… has an effect */
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

static void print_help(const struct subcommand *command)
{
    printf("usage: sluice %s%s%s%s\n\n%s.\n", command->name, command->bit == 0 ? "" : " [options]",
           !command->operands ? "" : " ", command->operands ? command->operands : "", command->summary);
    if (command->explanation) { printf("\n%s\n", command->explanation); }
    if (command->own_count > 0) { printf("\nOptions:\n"); }
    for (size_t i = 0; i < command->own_count; i++) { print_row(&command->own[i]); }
    if (command->bit != 0) { print_settings(command); }
}

/* --- Finding the command, its configuration, its end --- */

/* A command's name is one word or two ("bench engine"). Finds the command, and sets `used` to the number of words in
 * its name. */
static const struct subcommand *find_command(int count, char **words, int *used)
{
    char both[64];
    snprintf(both, sizeof both, "%.20s %.20s", words[0], count > 1 ? words[1] : "");
    for (*used = 1; *used <= 2; (*used)++) {
        for (size_t i = 0; i < COMMANDS; i++) {
            if (strcmp(commands[i]->name, *used == 1 ? words[0] : both) == 0) { return commands[i]; }
        }
    }
    return NULL;
}

/* Prints the two-word commands that begin with this word. Returns whether there are any. */
static bool print_group(FILE *to, const char *word)
{
    bool any = false;
    size_t length = strlen(word);
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strncmp(commands[i]->name, word, length) == 0 && commands[i]->name[length] == ' ') {
            fprintf(to, "%s  sluice %-16s %s\n", any ? "" : "Commands:\n\n", commands[i]->name, commands[i]->summary);
            any = true;
        }
    }
    return any;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

/* Handles a name that is unknown, or that is the first word of two-word commands; then it lists these. */
static int unknown_command(int count, char **words)
{
    bool help = count > 1 && asks_for_help(words[1]);
    if (print_group(help ? stdout : stderr, words[0])) { return help ? EX_OK : EX_USAGE; }
    const char *name = words[0];
    char nearest[32] = "", first[32];
    for (size_t i = 0; i < COMMANDS; i++) {
        snprintf(first, sizeof first, "%.*s", (int)strcspn(commands[i]->name, " "), commands[i]->name);
        if (nearest[0] == '\0' || edit_distance(first, name) < edit_distance(nearest, name)) {
            memcpy(nearest, first, sizeof nearest);
        }
    }
    if (edit_distance(nearest, name) <= (strlen(name) + 1) / 3) {
        fprintf(stderr, "sluice: unknown command \"%.80s\"; did you mean %s?\n", name, nearest);
    } else {
        fprintf(stderr, "sluice: unknown command \"%.80s\"; sluice --help lists them\n", name);
    }
    return EX_USAGE;
}

/* Finds the model that comes with Sluice: ../share/sluice/models beside the program's folder if installed, else
 * config/models of the source tree. If there is none, returns the path where it would be installed: that is no error
 * yet.
 * Owns: the caller frees `*out` with free(). Errors: STATUS_NO_MEMORY. */
static enum status default_model(char **out, struct err *err)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    struct buffer installed = {0};
    buffer_format(&installed, "%s/share/sluice/models/" DEFAULT_MODEL, dirname(dirname(self)));
    const char *in_source = SLUICE_SOURCE_DIR "/config/models/" DEFAULT_MODEL;
    if (buffer_ok(&installed)) {
        bool use_source = access(installed.data, F_OK) != 0 && access(in_source, F_OK) == 0;
        *out = strdup(use_source ? in_source : installed.data);
    }
    bool ok = buffer_ok(&installed) && *out;
    buffer_free(&installed);
    return ok ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the path of the model");
}

/* Reads file and environment. Flags are set already, and outrank both. */
static enum status load_config(struct invocation *invocation, const char *path, struct err *err)
{
    if (!path) {
        path = getenv("SLUICE_CONFIG");
        path = path && path[0] != '\0' ? path : NULL; /* like every other variable (config_environment) */
    }
    if (!path && access(SYSTEM_CONFIG, F_OK) == 0) { path = SYSTEM_CONFIG; }
    if (path) {
        TRY(config_read(&invocation->config, path, err));
        invocation->config_path = strdup(path);
        if (!invocation->config_path) {
            return err_set(err, STATUS_NO_MEMORY, "no memory for the name of the configuration file");
        }
    }
    TRY(config_environment(&invocation->config, err));
    for (char **variable = environ; *variable; variable++) {
        const struct setting *meant = config_mistyped(*variable);
        char name[SETTING_NAME_MAX];
        if (!meant) { continue; }
        setting_variable(meant, name);
        fprintf(stderr, "sluice %s: %.*s is no setting and is ignored; did you mean %s?\n", invocation->command->name,
                (int)strcspn(*variable, "="), *variable, name);
    }
    if (!invocation->config.model) { TRY(default_model(&invocation->config.model, err)); }
    TRY(config_pick_queue(&invocation->config, err));
    return config_check(&invocation->config, err);
}

static int run_command(struct invocation *invocation, int argc, char **argv)
{
    struct err err;
    struct arguments arguments = {0};
    const struct subcommand *command = invocation->command;
    invocation->own = calloc(1, command->own_size + 1);
    enum status status = invocation->own ? config_init(&invocation->config, &err)
                                         : err_set(&err, STATUS_NO_MEMORY, "no memory for the options");
    if (status == STATUS_OK) { status = settings_reset(command->own, command->own_count, invocation->own, &err); }
    if (status == STATUS_OK) { status = parse_arguments(argc, argv, invocation, &arguments, &err); }
    if (status != STATUS_OK) {
        int code = print_error(invocation, &err);
        return status == STATUS_BAD_INPUT ? EX_USAGE : code;
    }
    if (arguments.help) {
        print_help(invocation->command);
        return EX_OK;
    }
    status = invocation->command->bit == 0 ? STATUS_OK : load_config(invocation, arguments.config_path, &err);
    if (status != STATUS_OK) {
        int code = print_error(invocation, &err);
        return status == STATUS_BAD_INPUT ? EX_CONFIG : code;
    }
    return command->each ? invocation_run(invocation, command->each) : command->run(invocation);
}

/* Failing to write standard output is an error, too. If the reader is gone (`| head`), there is no message. */
static int check_output(const struct invocation *invocation, int code)
{
    bool now = fflush(stdout) != 0;
    if (!now && !ferror(stdout)) { return code; }
    struct err err;
    if (now) {
        (void)err_set_errno(&err, "cannot write to standard output");
    } else { /* an earlier write failed, so errno now belongs to another call */
        (void)err_set(&err, STATUS_IO, "cannot write to standard output");
    }
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    bool gone = poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
    int written = gone ? EX_IOERR : print_error(invocation, &err);
    return code == EX_OK ? written : code;
}

/* Opens descriptors from 0 to 2 that are closed: otherwise the next file or socket would get the number, and messages
 * would go there. Using a closed standard input or output remains an error; messages are lost. */
static bool open_standard(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd) { return false; }
    }
    return true;
}

int main(int argc, char **argv)
{
    if (!open_standard()) { return EX_OSERR; }
    if (argc < 2) {
        print_commands(stderr);
        return EX_USAGE;
    }
    int used = 1; /* words of the name */
    if (asks_for_help(argv[1])) {
        const struct subcommand *wanted = argc > 2 ? find_command(argc - 2, argv + 2, &used) : NULL;
        if (wanted) {
            print_help(wanted);
        } else if (argc == 2 || !print_group(stdout, argv[2])) {
            print_commands(stdout);
        }
        return EX_OK;
    }
    bool version = strcmp(argv[1], "--version") == 0;
    struct invocation invocation = {.command = version ? &command_version : find_command(argc - 1, argv + 1, &used)};
    if (!invocation.command) { return unknown_command(argc - 1, argv + 1); }
    int code = check_output(&invocation, run_command(&invocation, argc - 1 - used, argv + 1 + used));
    config_free(&invocation.config);
    if (invocation.own) { settings_free(invocation.command->own, invocation.command->own_count, invocation.own); }
    free(invocation.own);
    free(invocation.config_path);
    return code;
}
