#include "operator/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status session_ask_time(struct session *session, struct err *err)
{
    const struct resp_value *reply;
    TRY(SESSION_ASK(session, &reply, err, "TIME"));
    session->redis_ms = resp_time_ms(reply);
    return session->redis_ms > 0 ? STATUS_OK : err_set(err, STATUS_INTERNAL, "TIME answered in an unknown shape");
}

void session_close(struct session *session)
{
    if (session->client) { client_close(session->client); }
    address_free(&session->address);
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
