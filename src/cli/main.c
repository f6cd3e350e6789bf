/* sluice: the table of commands, and what is common to all: arguments, configuration, errors, exit codes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/places.h"

static const struct subcommand *const commands[] = {
    &command_serve,    &command_submit, &command_get,    &command_cancel,  &command_stats, &command_workers,
    &command_dead,     &command_caps,   &command_pause,  &command_resume,  &command_embed, &command_similar,
    &command_tokenize, &command_doctor, &command_config, &command_version,
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_commands(FILE *to)
{
    fprintf(to, "usage: sluice COMMAND [options]\n\n"
                "Sluice turns texts into vectors behind a Redis stream. Commands:\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\nsluice COMMAND --help explains one.\n");
}

int report(const struct invocation *invocation, const struct err *err)
{
    fprintf(stderr, "sluice %s: %s\n", invocation->command->name, err->message);
    return status_exit_code(err->status);
}

static const struct subcommand *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *nearest = commands[0]->name;
    for (size_t i = 1; i < COMMANDS; i++)
        if (edit_distance(commands[i]->name, name) < edit_distance(nearest, name))
            nearest = commands[i]->name;
    fprintf(stderr, "sluice: unknown command \"%.80s\"; the nearest one is %s (see sluice --help)\n", name, nearest);
    return EX_USAGE;
}

/* File and environment; flags are in already and win by their rank. */
static enum status load_config(struct invocation *invocation, const char *path, struct err *err)
{
    if (path == NULL)
        path = getenv("SLUICE_CONFIG");
    if (path == NULL && access(PLACES_SYSTEM_CONFIG, F_OK) == 0)
        path = PLACES_SYSTEM_CONFIG;
    enum status status = STATUS_OK;
    if (path != NULL) {
        status = config_read(&invocation->config, path, err);
        invocation->config_path = strdup(path);
        if (status == STATUS_OK && invocation->config_path == NULL)
            status = err_set(err, STATUS_NO_MEMORY, "no memory for the name of the configuration file");
    }
    if (status == STATUS_OK)
        status = config_environment(&invocation->config, err);
    if (status == STATUS_OK && invocation->config.model == NULL)
        status = places_model(&invocation->config.model, err);
    if (status == STATUS_OK)
        status = config_pick_queue(&invocation->config, err);
    if (status == STATUS_OK)
        status = config_check(&invocation->config, err);
    return status;
}

static enum status prepare(struct invocation *invocation, struct err *err)
{
    enum status status = config_init(&invocation->config, err);
    if (status != STATUS_OK)
        return status;
    if (invocation->command->own_size == 0)
        return STATUS_OK;
    invocation->own = calloc(1, invocation->command->own_size);
    if (invocation->own == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the options");
    return settings_reset(invocation->command->own, invocation->command->own_count, invocation->own, err);
}

static int run(struct invocation *invocation, int argc, char **argv)
{
    struct err err;
    struct arguments arguments = {0};
    enum status status = prepare(invocation, &err);
    if (status == STATUS_OK)
        status = arguments_parse(argc, argv, invocation, &arguments, &err);
    if (status != STATUS_OK) {
        int code = report(invocation, &err);
        return status == STATUS_BAD_INPUT ? EX_USAGE : code;
    }
    if (arguments.help) {
        print_help(invocation->command);
        return EX_OK;
    }
    status = invocation->command->bit == 0 ? STATUS_OK : load_config(invocation, arguments.config_path, &err);
    if (status != STATUS_OK) {
        int code = report(invocation, &err);
        return status == STATUS_BAD_INPUT ? EX_CONFIG : code;
    }
    return invocation->command->run(invocation);
}

/* Output that nobody could write is a failure, too. */
static int check_output(const struct invocation *invocation, int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    struct err err;
    int written = report(invocation, (err_set_errno(&err, "cannot write to standard output"), &err));
    return code == EX_OK ? written : code;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_commands(stderr);
        return EX_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        const struct subcommand *wanted = argc > 2 ? find_command(argv[2]) : NULL;
        if (wanted != NULL)
            print_help(wanted);
        else
            print_commands(stdout);
        return EX_OK;
    }
    struct invocation invocation = {.command = find_command(strcmp(name, "--version") == 0 ? "version" : name)};
    if (invocation.command == NULL)
        return unknown_command(name);
    int code = check_output(&invocation, run(&invocation, argc - 2, argv + 2));
    config_free(&invocation.config);
    if (invocation.own != NULL)
        settings_free(invocation.command->own, invocation.command->own_count, invocation.own);
    free(invocation.own);
    free(invocation.config_path);
    return code;
}
