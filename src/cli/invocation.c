#include "cli/invocation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/clock.h"
#include "config/config.h"
#include "operator/queues.h"

/* Names the login that a command needs, if it was run with that of another role or another queue. */
static enum status advise_login(const struct session *session, struct err *err)
{
    char advice[256];
    size_t length = strlen(err->message);
    int bytes =
        snprintf(advice, sizeof advice,
                 " (the command needs the operator's login for queue %s: acl/operator.acl; or is that name mistyped?)",
                 session->queue);
    if (err->status == STATUS_DENIED && strstr(err->message, "NOPERM") &&
        length + (size_t)bytes < sizeof err->message) {
        memcpy(err->message + length, advice, (size_t)bytes + 1);
    }
    return err->status;
}

enum status invocation_connect(struct session *session, const struct invocation *invocation, struct err *err)
{
    *session = (struct session){.queue = invocation->config.queue};
    TRY(config_address(&invocation->config, &session->address, err));
    return client_open(&session->address, SESSION_TIMEOUT_MS, &session->client, err);
}

enum status invocation_open(struct session *session, const struct invocation *invocation, struct err *err)
{
    TRY(invocation_connect(session, invocation, err));
    return session_ask_time(session, err) ? advise_login(session, err) : STATUS_OK;
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

/* ---- a queue that no worker has joined ---- */

enum { NAMES_MAX = 8, LISTING_MS = 1000 };

char *invocation_unused(struct session *session)
{
    char key[SESSION_KEY], *text = NULL;
    const struct resp_value *reply;
    struct queue_walk walk = {0};
    struct err err;
    size_t length, named = 0;
    session_key(session, "meta", "", key);
    if (SESSION_ASK(session, &reply, &err, "HGET", key, "model_id") != STATUS_OK || reply->type != RESP_NIL) {
        return NULL;
    }
    uint64_t ends_ms = clock_now_ms() + LISTING_MS;
    while (!walk.whole && clock_now_ms() < ends_ms && queues_walk(session, &walk, &err) == STATUS_OK) {}
    const struct queue_names *names = queues_names(&walk);
    FILE *to = open_memstream(&text, &length);
    if (!to) { return NULL; }
    fprintf(to, "no worker has ever joined queue %s", session->queue);
    for (size_t i = 0; i < names->count && named <= NAMES_MAX; i++) {
        if (strcmp(names->items[i], session->queue) == 0) { continue; }
        fputs(named == 0 ? "; is that its name? Others in this Redis: " : ", ", to);
        fputs(named++ < NAMES_MAX ? names->items[i] : "...", to);
    }
    fclose(to);
    return text;
}

void invocation_warn_unused(struct session *session, const struct invocation *invocation)
{
    char *text = invocation_unused(session);
    if (text) { fprintf(stderr, "sluice %s: %s\n", invocation->command->name, text); }
    free(text);
}

/* ---- running a command ---- */

static int run_bodies(struct invocation *invocation, bool warns,
                      enum status (*body)(struct session *session, const struct invocation *invocation,
                                          struct err *err))
{
    struct session session;
    struct err err = {0};
    enum status status = invocation_open(&session, invocation, &err);
    int code = status ? print_error(invocation, &err) : EX_OK;
    session.several = queue_count(&invocation->config) > 1;
    for (size_t i = 0; !status && i < queue_count(&invocation->config); i++) {
        session.queue = queue_name(&invocation->config, i);
        if (warns) { invocation_warn_unused(&session, invocation); }
        if (body(&session, invocation, &err)) {
            (void)advise_login(&session, &err);
            (void)(session.several && err_prefix(&err, "queue %s", session.queue));
            int failed = print_error(invocation, &err);
            code = code == EX_OK ? failed : code;
        }
    }
    session_close(&session);
    return code;
}

int invocation_run(struct invocation *invocation,
                   enum status (*body)(struct session *session, const struct invocation *invocation, struct err *err))
{
    return run_bodies(invocation, true, body);
}

int invocation_look(struct invocation *invocation,
                    enum status (*body)(struct session *session, const struct invocation *invocation, struct err *err))
{
    return run_bodies(invocation, false, body);
}

bool invocation_is_one(const struct invocation *invocation)
{
    size_t count = queue_count(&invocation->config);
    if (count == 1) { return true; }
    fprintf(stderr, "sluice %s: name one of the configuration's queues with --queue:", invocation->command->name);
    for (size_t i = 0; i < count; i++) { fprintf(stderr, " %s", queue_name(&invocation->config, i)); }
    fputc('\n', stderr);
    return false;
}

int invocation_run_one(struct invocation *invocation,
                       enum status (*body)(struct session *session, const struct invocation *invocation,
                                           struct err *err))
{
    return invocation_is_one(invocation) ? invocation_run(invocation, body) : EX_USAGE;
}

void print_heading(const struct session *session)
{
    if (session->several) { printf("queue %s\n", session->queue); }
}
