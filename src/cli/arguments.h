/* The command line into settings: --flag VALUE, --flag=VALUE, --switch, --no-switch; "--" ends the flags.
 *
 * The rows of the settings drive it, the configuration's and the command's own; there is no second list of flags. */
#ifndef CLI_ARGUMENTS_H
#define CLI_ARGUMENTS_H

#include <stdbool.h>

#include "cli/command.h"

/* What is not a setting. */
struct arguments {
    bool help;
    const char *config_path; /* --config; points into argv */
};

/* Reads argv[0..argc) (without program and command names) into the invocation's config, own options and operands.
 * A password inside a URL is overwritten in argv, so that `ps` does not show it, and a warning is printed.
 * Owns: operands point into argv. Errors: STATUS_BAD_INPUT, STATUS_NO_MEMORY. */
MUST_CHECK enum status arguments_parse(int argc, char **argv, struct invocation *invocation, struct arguments *out,
                                       struct err *err);

#endif
