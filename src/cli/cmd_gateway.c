#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/log.h"
#include "batch/api.h"
#include "cli/command.h"
#include "daemon/notify.h"
#include "gateway/thread.h"

/* Why Redis has refused us. The gateway's thread writes it once, before it signals the main thread. */
struct denial {
    struct err err;
    atomic_bool happened;
};

static void on_denied(void *context, const struct err *err)
{
    struct denial *denial = context;
    if (atomic_load(&denial->happened)) { return; }
    denial->err = *err;
    atomic_store(&denial->happened, true);
    kill(getpid(), SIGTERM);
}

static int run_gateway(struct invocation *invocation)
{
    const struct config *config = &invocation->config;
    struct gateway_thread *thread;
    struct denial denial;
    struct err err;
    sigset_t ends;
    int number;
    if (config->listen[0] == '\0') {
        fprintf(stderr, "sluice gateway: --listen says where, such as 127.0.0.1:8080\n");
        return EX_USAGE;
    }
    atomic_init(&denial.happened, false);
    log_setup((enum log_level)config->log_level, (enum log_format)config->log, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    if (gateway_thread_start(config, &batches_extension, &denial, on_denied, &thread, &err) != STATUS_OK) {
        return print_error(invocation, &err);
    }
    (void)notify_send("READY=1");
    sigwait(&ends, &number);
    sigprocmask(SIG_UNBLOCK, &ends, NULL); /* the second one ends the process */
    log_info("gateway_stops", log_int("signal", number));
    (void)notify_send("STOPPING=1");
    bool denied = atomic_load(&denial.happened);
    gateway_thread_stop(thread, denied ? 0 : (unsigned)config->shutdown_timeout_ms);
    return denied ? print_error(invocation, &denial.err) : EX_OK;
}

const struct subcommand command_gateway = {
    .name = "gateway",
    .bit = FOR_GATEWAY,
    .summary = "Serve HTTP: clients of OpenAI, TEI or Cohere ask the queues (docs/http.md)",
    .explanation =
        "It computes nothing: workers (sluice serve) do. Any number of gateways may serve the same queues.\n"
        "SIGTERM or SIGINT: take no more calls, let those in flight end, exit 0; a second one exits at once.\n"
        "Exit 77: Redis refuses the login, which is that of a producer (acl/producer.acl).\n"
        "Several queues: see `queues` in share/sluice/sluice.json; a call's `model` picks one.",
    .run = run_gateway,
};
