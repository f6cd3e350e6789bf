/* SCRIPT LOAD, EVALSHA, and recovery from NOSCRIPT. */
#include "redis/scripts.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "redis/resp.h"

enum { LOAD_TIMEOUT_MS = 5000 };

/* A call without an answer yet; its bytes are kept for NOSCRIPT. */
struct call {
    struct scripts *scripts;
    struct command command;
    uint32_t timeout_ms;
    uint64_t sent_ns;
    bool repeated;
    connection_reply_fn *reply;
    void *context;
};

static void on_digest(void *context, const struct resp_value *reply)
{
    struct scripts *scripts = context;
    if (!reply) { return; /* on_down informs the owner */ }
    unsigned index = SCRIPT_COUNT - scripts->loading--;
    struct err bad = {0};
    if (resp_check(reply, &bad)) {
        err_prefix(&bad, "loading lua/%s.lua", script_sources[index].name);
    } else if (reply->type != RESP_STRING || reply->length != SCRIPT_DIGEST) {
        err_set(&bad, STATUS_INTERNAL, "SCRIPT LOAD answered without a digest");
    } else {
        memcpy(scripts->digest[index], reply->bytes, SCRIPT_DIGEST + 1);
    }
    if (bad.status) {
        scripts->on_loaded(scripts->context, &bad);
    } else if (scripts->loading == 0) {
        scripts->on_loaded(scripts->context, NULL);
    }
}

static enum status load_all(struct scripts *scripts, connection_reply_fn *reply, struct err *err)
{
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        const char *const words[] = {"SCRIPT", "LOAD", script_sources[i].text};
        const size_t lengths[] = {6, 4, script_sources[i].length};
        enum status status =
            connection_command(scripts->connection, 3, words, lengths, LOAD_TIMEOUT_MS, reply, scripts, err);
        if (status) { return status; }
    }
    return STATUS_OK;
}

enum status scripts_load(struct scripts *scripts, struct err *err)
{
    scripts->loading = SCRIPT_COUNT;
    return load_all(scripts, on_digest, err);
}

void script_begin(const struct scripts *scripts, enum script script, size_t keys, struct command *command)
{
    command_text(command, "EVALSHA");
    command_bytes(command, scripts->digest[script], SCRIPT_DIGEST);
    command_number(command, keys);
}

static void call_free(struct call *call)
{
    command_free(&call->command);
    free(call);
}

static void on_answer(void *context, const struct resp_value *reply);

static enum status call_send(struct call *call, struct err *err)
{
    const char *bytes;
    size_t length;
    enum status status = command_finish(&call->command, &bytes, &length, err);
    if (!status) {
        status = connection_send(call->scripts->connection, bytes, length, call->timeout_ms, on_answer, call, err);
    }
    return status;
}

/* Loads all scripts again and repeats the call after them. */
static bool call_repeat(struct call *call)
{
    struct err err;
    call->repeated = true;
    log_info("redis_scripts_reloaded");
    return !load_all(call->scripts, NULL, &err) && !call_send(call, &err);
}

static void on_answer(void *context, const struct resp_value *reply)
{
    struct call *call = context;
    if (reply && resp_is_error(reply, "NOSCRIPT") && !call->repeated && call_repeat(call)) { return; }
    if (reply) {
        call->scripts->calls++;
        call->scripts->calls_ns += clock_now_ns() - call->sent_ns;
    }
    call->reply(call->context, reply);
    call_free(call);
}

enum status script_send(struct scripts *scripts, struct command *command, uint32_t timeout_ms,
                        connection_reply_fn *reply, void *context, struct err *err)
{
    struct call *call = malloc(sizeof *call);
    if (!call) {
        command_free(command);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a script call");
    }
    *call = (struct call){scripts, *command, timeout_ms, clock_now_ns(), false, reply, context};
    *command = (struct command){0};
    enum status status = call_send(call, err);
    if (status) { call_free(call); }
    return status;
}
