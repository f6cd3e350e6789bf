#include "cli/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "daemon/config.h"

/* Names the login that a command needs, when it was typed with another role's. */
static enum status advise_login(struct err *err)
{
    static const char advice[] = " (the command needs the operator's login: config/acl/operator.acl)";
    size_t length = strlen(err->message);
    if (err->status == STATUS_DENIED && strstr(err->message, "NOPERM") &&
        length + sizeof advice <= sizeof err->message) {
        memcpy(err->message + length, advice, sizeof advice);
    }
    return err->status;
}

enum status session_connect(struct session *session, const struct invocation *invocation, struct err *err)
{
    *session = (struct session){.queue = invocation->config.queue};
    TRY(config_address(&invocation->config, &session->address, err));
    return client_open(&session->address, SESSION_TIMEOUT_MS, &session->client, err);
}

enum status session_open(struct session *session, const struct invocation *invocation, struct err *err)
{
    TRY(session_connect(session, invocation, err));
    return session_ask_time(session, err) ? advise_login(err) : STATUS_OK;
}

static size_t queue_count(const struct config *config)
{
    bool picked = config_source_of(config, "queue") > SOURCE_FILE;
    return config->queues.count == 0 || picked ? 1 : config->queues.count;
}

static const char *queue_name(const struct config *config, size_t number)
{
    return queue_count(config) == 1 ? config->queue : config_queue_value(&config->queues, number, "queue");
}

int session_run(struct invocation *invocation,
                enum status (*body)(struct session *session, const struct invocation *invocation, struct err *err))
{
    struct session session;
    struct err err = {0};
    enum status status = session_open(&session, invocation, &err);
    int code = status ? print_error(invocation, &err) : EX_OK;
    session.several = queue_count(&invocation->config) > 1;
    for (size_t i = 0; !status && i < queue_count(&invocation->config); i++) {
        session.queue = queue_name(&invocation->config, i);
        if (body(&session, invocation, &err)) {
            (void)advise_login(&err);
            (void)(session.several && err_prefix(&err, "queue %s", session.queue));
            int failed = print_error(invocation, &err);
            code = code == EX_OK ? failed : code;
        }
    }
    session_close(&session);
    return code;
}

bool session_is_one(const struct invocation *invocation)
{
    size_t count = queue_count(&invocation->config);
    if (count == 1) { return true; }
    fprintf(stderr, "sluice %s: name one of the configuration's queues with --queue:", invocation->command->name);
    for (size_t i = 0; i < count; i++) { fprintf(stderr, " %s", queue_name(&invocation->config, i)); }
    fputc('\n', stderr);
    return false;
}

int session_run_one(struct invocation *invocation,
                    enum status (*body)(struct session *session, const struct invocation *invocation, struct err *err))
{
    return session_is_one(invocation) ? session_run(invocation, body) : EX_USAGE;
}

void session_heading(const struct session *session)
{
    if (session->several) { printf("queue %s\n", session->queue); }
}
