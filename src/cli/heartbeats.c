#include "cli/heartbeats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND_PREFIX "command:"

static bool is_command(const struct resp_value *field)
{
    return strncmp(session_text(field), COMMAND_PREFIX, strlen(COMMAND_PREFIX)) == 0;
}

static const char *find_command(const struct resp_value *answer, const char *worker)
{
    for (size_t i = 0; i + 1 < answer->count; i += 2)
        if (is_command(&answer->items[i]) &&
            strcmp(session_text(&answer->items[i]) + strlen(COMMAND_PREFIX), worker) == 0)
            return session_text(&answer->items[i + 1]);
    return "";
}

static void read_line(const struct session *session, const struct resp_value *answer, size_t at,
                      struct heartbeat_line *line)
{
    char *words;
    uint64_t spoke_ms = strtoull(session_text(&answer->items[at + 1]), &words, 10);
    *line = (struct heartbeat_line){.worker = session_text(&answer->items[at]),
                                    .words = words,
                                    .age_ms = session->redis_ms > spoke_ms ? session->redis_ms - spoke_ms : 0};
    line->command = find_command(answer, line->worker);
}

enum status heartbeats_read(struct session *session, struct heartbeats *out, struct err *err)
{
    char key[SESSION_KEY];
    const struct resp_value *answer;
    *out = (struct heartbeats){0};
    TRY(SESSION_ASK(session, &answer, err, "HGETALL", session_key(session, "workers", "", key)));
    out->answer = resp_clone(answer);
    out->lines = calloc(answer->count / 2 + 1, sizeof *out->lines);
    if (out->answer == NULL || out->lines == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the workers");
    for (size_t i = 0; i + 1 < out->answer->count; i += 2)
        if (!is_command(&out->answer->items[i]))
            read_line(session, out->answer, i, &out->lines[out->count++]);
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
    for (const char *at = line->words; (at = strstr(at, word)) != NULL; at += length)
        if (at > line->words && at[-1] == ' ' && at[length] == ' ') {
            at += length + 1;
            snprintf(value, size, "%.*s", (int)strcspn(at, " "), at);
            break;
        }
    return value;
}
