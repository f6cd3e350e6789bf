#include "operator/queues.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "schedule/request.h"

enum { WALK_CALLS = 10 };
#define WALK_KEYS "1000"
#define WALK_PATTERN "sluice:{*}:requests*"

/* Producers choose the names of replies and results streams, so SCAN's pattern may match those, too. */
size_t queues_find_name(const struct resp_value *key, const char **name)
{
    static const char *const ends[] = {"}:requests", "}:requests:high", "}:requests:low"};
    enum { BEGIN = sizeof "sluice:{" - 1 };
    if (!key->bytes || key->length <= BEGIN || strlen(key->bytes) != key->length) { return 0; }
    size_t length = strcspn(key->bytes + BEGIN, "}");
    *name = key->bytes + BEGIN;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (strcmp(*name + length, ends[i]) == 0) { return queue_name_is(*name, length) ? length : 0; }
    }
    return 0;
}

static void add_name(struct queue_names *names, const char *name, size_t length)
{
    char text[QUEUE_NAME_MAX + 1];
    size_t at = 0;
    snprintf(text, sizeof text, "%.*s", (int)length, name);
    while (at < names->count && strcmp(names->items[at], text) < 0) { at++; }
    if (at < names->count && strcmp(names->items[at], text) == 0) { return; }
    names->more = names->more || names->count == QUEUES_FOUND_MAX;
    if (at == QUEUES_FOUND_MAX) { return; }
    size_t moved = names->count - at - (names->count == QUEUES_FOUND_MAX);
    memmove(names->items[at + 1], names->items[at], moved * sizeof names->items[0]);
    memcpy(names->items[at], text, sizeof text);
    names->count += names->count < QUEUES_FOUND_MAX;
}

static enum status walk_a_step(struct session *session, struct queue_walk *walk, struct err *err)
{
    const struct resp_value *reply;
    const char *name;
    TRY(SESSION_ASK(session, &reply, err, "SCAN", walk->cursor[0] != '\0' ? walk->cursor : "0", "MATCH", WALK_PATTERN,
                    "COUNT", WALK_KEYS, "TYPE", "stream"));
    if (reply->type != RESP_ARRAY || reply->count != 2 || !reply->items[0].bytes ||
        reply->items[0].length >= sizeof walk->cursor) {
        return err_set(err, STATUS_INTERNAL, "SCAN answered in an unknown shape");
    }
    memcpy(walk->cursor, reply->items[0].bytes, reply->items[0].length + 1);
    const struct resp_value *keys = &reply->items[1];
    for (size_t i = 0; i < keys->count; i++) {
        size_t length = queues_find_name(&keys->items[i], &name);
        if (length > 0) { add_name(&walk->finding, name, length); }
    }
    return STATUS_OK;
}

enum status queues_walk(struct session *session, struct queue_walk *walk, struct err *err)
{
    enum status status = STATUS_OK;
    if (clock_now_ms() < walk->rests_until_ms) { return STATUS_OK; }
    for (int call = 0; call < WALK_CALLS && status == STATUS_OK; call++) {
        status = walk_a_step(session, walk, err);
        if (status != STATUS_OK || strcmp(walk->cursor, "0") != 0) { continue; }
        walk->found = walk->finding;
        walk->whole = true;
        break;
    }
    if (status == STATUS_OK && strcmp(walk->cursor, "0") != 0) { return STATUS_OK; }
    walk->finding = (struct queue_names){0};
    walk->cursor[0] = '\0';
    walk->rests_until_ms = clock_now_ms() + QUEUES_REST_MS;
    return status;
}

const struct queue_names *queues_names(const struct queue_walk *walk)
{
    return walk->whole ? &walk->found : &walk->finding;
}

enum status queues_exists(struct session *session, bool *out, struct err *err)
{
    char high[SESSION_KEY], normal[SESSION_KEY], low[SESSION_KEY];
    long long streams = 0;
    enum status status =
        SESSION_ASK_NUMBER(session, &streams, err, "EXISTS", session_key(session, class_streams[CLASS_HIGH], "", high),
                           session_key(session, class_streams[CLASS_NORMAL], "", normal),
                           session_key(session, class_streams[CLASS_LOW], "", low));
    *out = streams > 0;
    return status;
}
