#include <stdio.h>
#include <sysexits.h>

#include "cli/command.h"

static int run(struct invocation *invocation)
{
    (void)invocation;
    puts("sluice " SLUICE_VERSION);
    return EX_OK;
}

const struct subcommand command_version = {.name = "version", .summary = "Print the version", .run = run};
