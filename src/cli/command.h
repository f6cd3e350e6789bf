/* A command of the command line: a cmd_*.c that defines command_NAME, and a row in commands.inc. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <signal.h>
#include <stddef.h>

#include "base/err.h"
#include "config/config.h"

struct report;
struct session;

/* The input of a command from main: everything parsed, checked and merged. */
struct invocation {
    const struct subcommand *command;
    struct config config;
    void *own; /* [command->own_size] the command's own options */
    char **operands;
    size_t operand_count;
    char *config_path; /* the file that was read, or NULL */
};

/* A row: a command's name, its arguments, and its function. */
struct subcommand {
    const char *name;          /* one word or two */
    unsigned bit;              /* enum command_bit: the settings that it takes; 0 for none */
    const char *operands;      /* for --help: "ID", "[TEXT...]"; NULL when it takes none */
    const char *summary;       /* one line, for the list of commands */
    const char *explanation;   /* paragraphs for its --help; may be NULL */
    const struct setting *own; /* [own_count] options of the command line alone */
    size_t own_count, own_size;
    /* One of the two: `run` returns the exit code; invocation_run calls `each` for each queue. */
    int (*run)(struct invocation *invocation);
    enum status (*each)(struct session *session, const struct invocation *invocation, struct err *err);
    /* Only for `bench ...`, whose run is benchmark_run. */
    enum status (*measure)(const struct invocation *invocation, struct report *report, struct err *err);
};

#define COMMAND(name) extern const struct subcommand command_##name;
#include "cli/commands.inc"
#undef COMMAND

/* The members of a row for a command's own options: an array of settings, and the struct that they fill. */
#define OWN_OPTIONS(settings, type)                                                                                    \
    .own = settings, .own_count = sizeof settings / sizeof settings[0], .own_size = sizeof(type)

/* Prints "sluice COMMAND: message" and returns the exit code of its status. */
int print_error(const struct invocation *invocation, const struct err *err);

/* The row of --json of `bench ...`. `own` is the struct of the command's options, which begins with `char *json`. */
#define BENCH_JSON(own)                                                                                                \
    {                                                                                                                  \
        .key = "json", .type = SETTING_TEXT, .offset = offsetof(own, json), .most = 4096, .value = "FILE",             \
        .help = "write the figures as JSON; - is standard output, in place of the table"                               \
    }

/* The `run` of every `bench ...`: calls the command's `measure` and shows the result as table or JSON. */
int benchmark_run(struct invocation *invocation);

/* Listens for SIGINT and SIGTERM. The first one sets the returned flag to its number; the second one ends the process.
 * Thread: call it before other threads start. */
const volatile sig_atomic_t *interrupt_listen(void);

#endif
