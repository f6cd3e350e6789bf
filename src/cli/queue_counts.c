#include "cli/queue_counts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pending entries of a stream; 0 if it does not exist or has no group yet. */
static enum status count_pending(struct session *session, const char *key, long long *out, struct err *err)
{
    const struct resp_value *reply;
    *out = 0;
    enum status status = SESSION_ASK(session, &reply, err, "XPENDING", key, "sluice");
    if (status != STATUS_OK && reply && resp_is_error(reply, "NOGROUP")) { return STATUS_OK; }
    if (status == STATUS_OK && reply->type == RESP_ARRAY && reply->count > 0) { *out = reply->items[0].integer; }
    return status;
}

static enum status count_classes(struct session *session, struct queue_counts *counts, struct err *err)
{
    char key[SESSION_KEY];
    for (int i = 0; i < CLASS_COUNT; i++) {
        long long length, pending;
        session_key(session, class_streams[i], "", key);
        TRY(SESSION_ASK_NUMBER(session, &length, err, "XLEN", key));
        TRY(count_pending(session, key, &pending, err));
        counts->classes[i].pending = pending;
        counts->classes[i].unread = length > pending ? length - pending : 0;
    }
    return STATUS_OK;
}

/* What the workers publish, and the caps and the precision that an operator has set. */
static enum status read_meta(struct session *session, struct queue_counts *counts, struct err *err)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    TRY(SESSION_ASK(session, &reply, err, "HMGET", session_key(session, "meta", "", key), "wait_ms_high",
                    "wait_ms_normal", "wait_ms_low", "cap_high", "cap_normal", "cap_low", "precision", "published_at"));
    if (reply->type != RESP_ARRAY || reply->count != 2 * CLASS_COUNT + 2) {
        return err_set(err, STATUS_INTERNAL, "HMGET answered in an unknown shape");
    }
    for (size_t i = 0; i < CLASS_COUNT; i++) {
        long long cap = atoll(session_text(&reply->items[CLASS_COUNT + i]));
        counts->classes[i].wait_ms = reply->items[i].bytes ? atoll(reply->items[i].bytes) : -1;
        counts->classes[i].cap = cap > 0 ? cap : 0;
    }
    snprintf(counts->pinned, sizeof counts->pinned, "%s", session_text(&reply->items[2 * CLASS_COUNT]));
    uint64_t published = strtoull(session_text(&reply->items[2 * CLASS_COUNT + 1]), NULL, 10);
    counts->published_ms_ago = session->redis_ms > published ? session->redis_ms - published : 0;
    return STATUS_OK;
}

static void count_precision(struct queue_counts *counts, const char *name)
{
    size_t i = 0;
    while (i + 1 < PRECISIONS_MAX && counts->precisions[i].workers > 0 &&
           strcmp(counts->precisions[i].name, name) != 0) {
        i++;
    }
    snprintf(counts->precisions[i].name, sizeof counts->precisions[i].name, "%s", name);
    counts->precisions[i].workers++;
}

/* The totals that lua/pulse has counted. */
static enum status read_totals(struct session *session, struct queue_counts *counts, struct err *err)
{
    char key[SESSION_KEY], field[64];
    const struct resp_value *totals;
    TRY(SESSION_ASK(session, &totals, err, "HGETALL", session_key(session, "stats", "", key)));
    counts->since_ms = strtoull(session_text(resp_field(totals, "since")), NULL, 10);
    counts->died = strtoull(session_text(resp_field(totals, "died")), NULL, 10);
    for (int i = 0; i < CLASS_COUNT; i++) {
        for (int end = 0; end < ENDS; end++) {
            snprintf(field, sizeof field, "%s:%s", class_names[i], end_name(end));
            counts->ended[i][end] = strtoull(session_text(resp_field(totals, field)), NULL, 10);
        }
    }
    return STATUS_OK;
}

static void count_workers(struct queue_counts *counts, const struct heartbeats *heartbeats)
{
    char value[32];
    for (size_t i = 0; i < heartbeats->count; i++) {
        const struct heartbeat_line *line = &heartbeats->lines[i];
        if (!line->alive) { continue; }
        counts->workers++;
        heartbeat_value(line, "precision", value, sizeof value);
        count_precision(counts, value[0] != '\0' ? value : "unknown"); /* a worker of an older version */
        counts->quiet += strcmp(heartbeat_value(line, "state", value, sizeof value), "quiet") == 0;
        if (strcmp(heartbeat_value(line, "state", value, sizeof value), "tight") == 0) {
            counts->tight++;
            heartbeat_value(line, "reason", counts->reason, sizeof counts->reason);
        }
        counts->devices += strtoul(heartbeat_value(line, "devices", value, sizeof value), NULL, 10);
        counts->devices_lost += strtoul(heartbeat_value(line, "devices_lost", value, sizeof value), NULL, 10);
    }
}

/* An estimate may be by a worker that is gone; workers that do not know their speed yet publish none. */
static void check_waits(struct queue_counts *counts)
{
    bool gone = counts->workers == 0 || counts->published_ms_ago > HEARTBEAT_FRESH_MS;
    bool serve = counts->workers > counts->quiet && !counts->paused;
    for (int i = 0; i < CLASS_COUNT; i++) {
        long long *wait_ms = &counts->classes[i].wait_ms;
        if (gone) {
            *wait_ms = -1;
        } else if (serve && *wait_ms < 0 && counts->classes[i].unread == 0) {
            *wait_ms = 0;
        }
    }
}

enum status queue_counts_read(struct session *session, struct queue_counts *counts, struct heartbeats *heartbeats,
                              struct err *err)
{
    char key[SESSION_KEY], value[32];
    *counts = (struct queue_counts){0};
    *heartbeats = (struct heartbeats){0};
    TRY(count_classes(session, counts, err));
    TRY(read_meta(session, counts, err));
    TRY(read_totals(session, counts, err));
    TRY(SESSION_ASK_NUMBER(session, &counts->later, err, "ZCARD", session_key(session, "later", "", key)));
    snprintf(value, sizeof value, "%" PRIu64, session->redis_ms);
    TRY(SESSION_ASK_NUMBER(session, &counts->due, err, "ZCOUNT", key, "-inf", value));
    TRY(SESSION_ASK_NUMBER(session, &counts->dead, err, "XLEN", session_key(session, "dead", "", key)));
    TRY(SESSION_ASK_NUMBER(session, &counts->paused, err, "EXISTS", session_key(session, "paused", "", key)));
    TRY(heartbeats_read(session, heartbeats, err));
    count_workers(counts, heartbeats);
    check_waits(counts);
    return STATUS_OK;
}
