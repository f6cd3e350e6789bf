/* The command line into settings: --flag VALUE, --flag=VALUE, --switch, --no-switch; "--" ends the flags.
 *
 * The rows of the settings drive it: the configuration's and the command's own. There is no second list of flags. */
#ifndef CLI_ARGUMENTS_H
#define CLI_ARGUMENTS_H

#include <stdbool.h>

#include "cli/command.h"

/* Arguments that are no settings. */
struct arguments {
    bool help;
    const char *config_path; /* --config; points into argv */
};

/* Reads argv[0..argc) (without program and command names) into the invocation's config, own options and operands. It
 * overwrites a password inside a URL in argv, so that `ps` does not show it, and prints a warning.
 * Owns: operands point into argv. Errors: STATUS_BAD_INPUT, STATUS_NO_MEMORY. */
MUST_CHECK enum status arguments_parse(int argc, char **argv, struct invocation *invocation, struct arguments *out,
                                       struct err *err);

#endif
