#include "cli/bench.h"

#include <signal.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/log.h"

/* As given, or NULL. */
static const char *json_of(const struct invocation *invocation)
{
    const struct subcommand *command = invocation->command;
    for (size_t i = 0; i < command->own_count; i++)
        if (strcmp(command->own[i].key, "json") == 0)
            return *(char *const *)((const char *)invocation->own + command->own[i].offset);
    return NULL;
}

int bench_run(struct invocation *invocation)
{
    const char *json = json_of(invocation);
    struct sheet sheet;
    struct err err;
    log_setup(LOG_ERROR, LOG_TEXT, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    sheet_begin(&sheet, invocation->command->name + strlen("bench "),
                json != NULL && strcmp(json, "-") == 0 ? NULL : stdout);
    enum status status = invocation->command->measure(invocation, &sheet, &err);
    if (status == STATUS_OK)
        status = sheet_end(&sheet, json, &err);
    sheet_free(&sheet);
    return status == STATUS_OK ? EX_OK : report(invocation, &err);
}
