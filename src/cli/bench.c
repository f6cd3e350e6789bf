#include "cli/bench.h"

#include <signal.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/log.h"

int bench_run(struct invocation *invocation, const char *json,
              enum status (*measure)(const struct invocation *invocation, struct sheet *sheet, struct err *err))
{
    struct sheet sheet;
    struct err err;
    log_setup(LOG_ERROR, LOG_TEXT, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    sheet_begin(&sheet, invocation->command->name + strlen("bench "),
                json != NULL && strcmp(json, "-") == 0 ? NULL : stdout);
    enum status status = measure(invocation, &sheet, &err);
    if (status == STATUS_OK)
        status = sheet_end(&sheet, json, &err);
    sheet_free(&sheet);
    return status == STATUS_OK ? EX_OK : report(invocation, &err);
}
