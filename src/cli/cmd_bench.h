/* What the `bench ...` commands share: a table on the terminal, and JSON where --json says. */
#ifndef CLI_CMD_BENCH_H
#define CLI_CMD_BENCH_H

#include "bench/report.h"
#include "cli/command.h"

/* The row of --json. `own` is the struct of the command's options, with a field `json`. */
#define BENCH_JSON(own)                                                                                                \
    {                                                                                                                  \
        .key = "json", .type = SETTING_TEXT, .offset = offsetof(own, json), .most = 4096, .value = "FILE",             \
        .help = "write the figures as JSON; - is standard output, in place of the table"                               \
    }

/* The `run` of them all: calls the command's `measure` and shows the result as table or JSON. */
int benchmark_run(struct invocation *invocation);

#endif
