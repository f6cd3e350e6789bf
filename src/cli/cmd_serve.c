#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/log.h"
#include "batch/api.h"
#include "cli/command.h"
#include "daemon/server.h"
#include "gateway/thread.h"

/* After the worker has ended: for replies that are on their way to HTTP clients. Other workers may answer the rest, but
 * this process cannot wait for them. */
enum { LAST_REPLIES_MS = 500 };

static int run_serve(struct invocation *invocation)
{
    const struct config *config = &invocation->config;
    log_setup((enum log_level)config->log_level, (enum log_format)config->log, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    struct server server;
    struct gateway_thread *gateway = NULL;
    struct err err;
    enum status status = server_open(&server, config, invocation->config_path, &err);
    if (status == STATUS_OK && config->listen[0] != '\0') {
        status = gateway_thread_start(config, &batches_extension, NULL, NULL, &gateway, &err);
    }
    if (status != STATUS_OK) {
        server_close(&server);
        return log_flush() ? print_error(invocation, &err) : status_exit_code(status); /* nobody reads the log */
    }
    status = server_run(&server);
    gateway_thread_stop(gateway, LAST_REPLIES_MS);
    /* Threads may still compute a batch that nobody waits for (others reclaim its requests), and closing a lost device
     * may hang: do not wait for either. */
    if (!server.clean || server.devices_lost > 0) {
        (void)log_flush();
        _exit(status_exit_code(status));
    }
    server_close(&server);
    return status_exit_code(status);
}

const struct subcommand command_serve = {
    .name = "serve",
    .bit = FOR_SERVE,
    .summary = "Run the daemon: answer the requests of one queue or several",
    .explanation =
        "SIGTERM or SIGINT: finish what is running, give the rest back, exit 0; a second one exits at once (75),\n"
        "and other daemons take over what was left. SIGTSTP: take nothing more, stay up; SIGCONT: go on.\n"
        "SIGHUP: read the configuration again. SIGUSR2: write what is held into the log.\n"
        "Exit 77: Redis refuses the login. Exit 70: the last device is lost, or a batch did not come back in time.\n"
        "Several queues, each with its own model and weight: see `queues` in share/sluice/sluice.json.",
    .run = run_serve,
};
