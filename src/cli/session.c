#include "cli/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "daemon/config.h"

static enum status ask_time(struct session *session, struct err *err)
{
    const struct resp_value *reply;
    TRY(SESSION_ASK(session, &reply, err, "TIME"));
    if (reply->type != RESP_ARRAY || reply->count != 2) {
        return err_set(err, STATUS_INTERNAL, "TIME answered in an unknown shape");
    }
    session->redis_ms =
        strtoull(reply->items[0].bytes, NULL, 10) * 1000 + strtoull(reply->items[1].bytes, NULL, 10) / 1000;
    return STATUS_OK;
}

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
    return ask_time(session, err) ? advise_login(err) : STATUS_OK;
}

void session_close(struct session *session)
{
    if (session->client) { client_close(session->client); }
    address_free(&session->address);
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

const char *session_key(const struct session *session, const char *suffix, const char *more, char key[SESSION_KEY])
{
    snprintf(key, SESSION_KEY, "sluice:{%s}:%s%s", session->queue, suffix, more);
    return key;
}

enum status session_ask(struct session *session, size_t count, const char *const *words, const struct resp_value **out,
                        struct err *err)
{
    enum status status = client_command(session->client, count, words, NULL, out, err);
    return status == STATUS_OK ? status : err_prefix(err, "%s", words[0]);
}

enum status session_ask_number(struct session *session, size_t count, const char *const *words, long long *out,
                               struct err *err)
{
    const struct resp_value *reply;
    *out = 0;
    TRY(session_ask(session, count, words, &reply, err));
    if (reply->type != RESP_INTEGER) {
        return err_set(err, STATUS_INTERNAL, "%s did not answer with a number", words[0]);
    }
    *out = reply->integer;
    return STATUS_OK;
}

enum status session_load(struct session *session, enum script script, char digest[SCRIPT_DIGEST + 1], struct err *err)
{
    const struct resp_value *reply;
    TRY(SESSION_ASK(session, &reply, err, "SCRIPT", "LOAD", script_sources[script].text));
    if (!reply->bytes || reply->length != SCRIPT_DIGEST) {
        return err_set(err, STATUS_INTERNAL, "SCRIPT LOAD answered in an unknown shape");
    }
    memcpy(digest, reply->bytes, SCRIPT_DIGEST + 1);
    return STATUS_OK;
}

const struct resp_value *session_group(const struct resp_value *groups)
{
    for (size_t i = 0; groups->type == RESP_ARRAY && i < groups->count; i++) {
        const struct resp_value *name = resp_field(&groups->items[i], "name");
        if (name && resp_equals(name, "sluice")) { return &groups->items[i]; }
    }
    return NULL;
}

const char *session_text(const struct resp_value *value)
{
    return !value || !value->bytes ? "" : value->bytes;
}

/* `workers` holds a heartbeat under each name, and orders under `command:<name>`. */
static bool is_order(const struct resp_value *field)
{
    return strncmp(session_text(field), "command:", 8) == 0;
}

static struct heartbeat_line read_line(const struct session *session, const struct resp_value *answer, size_t at)
{
    char *words, order[SESSION_KEY];
    uint64_t spoke_ms = strtoull(session_text(&answer->items[at + 1]), &words, 10);
    struct heartbeat_line line = {.worker = session_text(&answer->items[at]),
                                  .words = words,
                                  .age_ms = session->redis_ms > spoke_ms ? session->redis_ms - spoke_ms : 0};
    snprintf(order, sizeof order, "command:%s", line.worker);
    line.command = session_text(resp_field(answer, order));
    return line;
}

enum status heartbeats_read(struct session *session, struct heartbeats *out, struct err *err)
{
    char key[SESSION_KEY];
    const struct resp_value *answer;
    *out = (struct heartbeats){0};
    TRY(SESSION_ASK(session, &answer, err, "HGETALL", session_key(session, "workers", "", key)));
    out->answer = resp_clone(answer);
    out->lines = calloc(answer->count / 2 + 1, sizeof *out->lines);
    if (!out->answer || !out->lines) { return err_set(err, STATUS_NO_MEMORY, "no memory for the workers"); }
    for (size_t i = 0; i + 1 < out->answer->count; i += 2) {
        if (!is_order(&out->answer->items[i])) { out->lines[out->count++] = read_line(session, out->answer, i); }
    }
    for (size_t i = 0; i < out->count; i++) {
        long long exists;
        TRY(SESSION_ASK_NUMBER(session, &exists, err, "EXISTS",
                               session_key(session, "alive:", out->lines[i].worker, key)));
        out->lines[i].alive = exists == 1;
    }
    return STATUS_OK;
}

void heartbeats_free(struct heartbeats *heartbeats)
{
    free(heartbeats->answer);
    free(heartbeats->lines);
    *heartbeats = (struct heartbeats){0};
}

const char *heartbeat_value(const struct heartbeat_line *line, const char *word, char *value, size_t size)
{
    size_t length = strlen(word);
    value[0] = '\0';
    for (const char *at = line->words; (at = strstr(at, word)) != NULL; at += length) {
        if (at > line->words && at[-1] == ' ' && at[length] == ' ') {
            at += length + 1;
            snprintf(value, size, "%.*s", (int)strcspn(at, " "), at);
            break;
        }
    }
    return value;
}
