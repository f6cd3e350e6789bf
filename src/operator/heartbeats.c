#include "operator/heartbeats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Asks for all leases at once, and takes every answer, even after an error: otherwise the next command would get the
 * rest. */
static enum status read_alive(struct session *session, struct heartbeats *heartbeats, struct err *err)
{
    char key[SESSION_KEY];
    enum status status = STATUS_OK;
    for (size_t i = 0; i < heartbeats->count; i++) {
        const char *words[] = {"EXISTS", session_key(session, "alive:", heartbeats->lines[i].worker, key)};
        TRY(client_send(session->client, 2, words, NULL, 0, err));
    }
    for (size_t i = 0; i < heartbeats->count; i++) {
        const struct resp_value *reply;
        enum status one = client_receive(session->client, &reply, status == STATUS_OK ? err : NULL);
        if (status == STATUS_OK) { status = one; }
        heartbeats->lines[i].alive = one == STATUS_OK && reply->integer == 1;
    }
    return status == STATUS_OK ? status : err_prefix(err, "EXISTS");
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
        /* `workers` holds a heartbeat under each name, and orders under `command:<name>`. */
        bool order = strncmp(session_text(&out->answer->items[i]), "command:", 8) == 0;
        if (!order) { out->lines[out->count++] = read_line(session, out->answer, i); }
    }
    return read_alive(session, out, err);
}

void heartbeats_free(struct heartbeats *heartbeats)
{
    free(heartbeats->answer);
    free(heartbeats->lines);
    *heartbeats = (struct heartbeats){0};
}

bool heartbeats_alive(const struct heartbeats *heartbeats, const char *worker)
{
    for (size_t i = 0; i < heartbeats->count; i++) {
        const struct heartbeat_line *line = &heartbeats->lines[i];
        if (line->alive && strcmp(line->worker, worker) == 0) { return true; }
    }
    return false;
}

const char *const heartbeat_words[] = {"state",  "held",   "waiting",         "computing",    "done",
                                       "errors", "dead",   "devices",         "devices_lost", "batches",
                                       "rows",   "tokens", "computed_tokens", "rows_per_s",   NULL};
const char *const heartbeat_more_words[] = {"precision", "int8_products", "reason", "version", NULL};

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
