#include "operator/counts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/duration.h"

const char *const cap_names[CAPS] = {"high", "normal", "low", "later"};

enum status counts_read_pause(struct session *session, struct pause *out, struct err *err)
{
    char key[SESSION_KEY];
    const struct resp_value *reply = NULL;
    long long until_ms;
    *out = (struct pause){0};
    enum status status = SESSION_ASK(session, &reply, err, "GET", session_key(session, "paused", "", key));
    bool other_type = reply && resp_is_error(reply, "WRONGTYPE"); /* a key of any type is a pause */
    if (status != STATUS_OK && !other_type) { return status; }
    if (!other_type && !reply->bytes) { return STATUS_OK; }
    pause_parse(other_type ? "" : reply->bytes, other_type ? 0 : reply->length, out);
    TRY(SESSION_ASK_NUMBER(session, &until_ms, err, "PEXPIRETIME", key));
    out->on = until_ms != -2; /* -2: it ended between the two commands */
    out->until_ms = until_ms > 0 ? (uint64_t)until_ms : 0;
    return STATUS_OK;
}

/* Pending entries of a stream, and the first of them; 0 if it does not exist or has no group yet. */
static enum status count_pending(struct session *session, const char *key, long long *out, struct entry_id *first,
                                 struct err *err)
{
    const struct resp_value *reply;
    *out = 0;
    enum status status = SESSION_ASK(session, &reply, err, "XPENDING", key, "sluice");
    if (status != STATUS_OK && reply && resp_is_error(reply, "NOGROUP")) { return STATUS_OK; }
    if (status == STATUS_OK && reply->type == RESP_ARRAY && reply->count > 1) {
        *out = reply->items[0].integer;
        (void)resp_entry_id(&reply->items[1], first);
    }
    return status;
}

static enum status count_class(struct session *session, struct class_counts *counts, const char *key, struct err *err)
{
    long long length, pending;
    struct entry_id first = {0};
    TRY(SESSION_ASK_NUMBER(session, &length, err, "XLEN", key));
    TRY(count_pending(session, key, &pending, &first, err));
    counts->pending = pending;
    counts->unread = length > pending ? length - pending : 0;
    if (pending == 0 && length > 0) {
        const struct resp_value *reply, *entry;
        TRY(SESSION_ASK(session, &reply, err, "XINFO", "STREAM", key));
        entry = resp_field(reply, "first-entry");
        (void)resp_entry_id(entry && entry->count > 0 ? &entry->items[0] : NULL, &first);
    }
    uint64_t now = session->redis_ms;
    counts->oldest_ms = pending + length == 0 ? -1 : first.ms < now ? (long long)(now - first.ms) : 0;
    return STATUS_OK;
}

/* Reads the values that the workers publish, and the caps and the precision that an operator has set. */
static enum status read_meta(struct session *session, struct queue_counts *counts, struct err *err)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    TRY(SESSION_ASK(session, &reply, err, "HMGET", session_key(session, "meta", "", key), "wait_ms_high",
                    "wait_ms_normal", "wait_ms_low", "cap_high", "cap_normal", "cap_low", "cap_later", "precision",
                    "published_at"));
    if (reply->type != RESP_ARRAY || reply->count != CLASS_COUNT + CAPS + 2) {
        return err_set(err, STATUS_INTERNAL, "HMGET answered in an unknown shape");
    }
    for (size_t i = 0; i < CLASS_COUNT; i++) {
        long long cap = atoll(session_text(&reply->items[CLASS_COUNT + i]));
        counts->classes[i].wait_ms = reply->items[i].bytes ? atoll(reply->items[i].bytes) : -1;
        counts->classes[i].cap = cap > 0 ? cap : 0;
    }
    const struct resp_value *later = &reply->items[2 * CLASS_COUNT];
    counts->cap_later = atoll(session_text(later));
    snprintf(counts->pinned, sizeof counts->pinned, "%s", session_text(later + 1));
    uint64_t published = strtoull(session_text(later + 2), NULL, 10);
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

/* Reads the fields of lua/pulse for days, `day:<place>`. Some are of days too old to count. */
static void read_days(const struct session *session, struct queue_counts *counts, const struct resp_value *totals)
{
    uint64_t today = session->redis_ms / DAY_MS, day;
    for (size_t i = 0; i + 1 < totals->count; i += 2) {
        struct day_counts ended;
        bool is_day = strncmp(session_text(&totals->items[i]), "day:", 4) == 0 &&
                      day_counts_parse(session_text(&totals->items[i + 1]), &day, &ended);
        if (is_day && day <= today && today - day < DAYS_KEPT) { counts->days[today - day] = ended; }
    }
}

/* The totals that lua/pulse has counted. */
static enum status read_totals(struct session *session, struct queue_counts *counts, struct err *err)
{
    char key[SESSION_KEY], field[64];
    const struct resp_value *totals;
    TRY(SESSION_ASK(session, &totals, err, "HGETALL", session_key(session, "stats", "", key)));
    counts->since_ms = strtoull(session_text(resp_field(totals, "since")), NULL, 10);
    counts->died = strtoull(session_text(resp_field(totals, "died")), NULL, 10);
    counts->ignored = strtoull(session_text(resp_field(totals, "ignored")), NULL, 10);
    for (int i = 0; i < CLASS_COUNT; i++) {
        for (int end = 0; end < ENDS; end++) {
            snprintf(field, sizeof field, "%s:%s", class_names[i], end_name(end));
            counts->ended[i][end] = strtoull(session_text(resp_field(totals, field)), NULL, 10);
        }
    }
    read_days(session, counts, totals);
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

/* An estimate of a worker that is gone becomes unknown. Workers that do not know their speed yet publish none; if
 * nothing waits, the wait is 0. */
static void check_waits(struct queue_counts *counts)
{
    bool gone = counts->workers == 0 || counts->published_ms_ago > HEARTBEAT_FRESH_MS;
    bool serve = counts->workers > counts->quiet && !counts->pause.on;
    for (int i = 0; i < CLASS_COUNT; i++) {
        long long *wait_ms = &counts->classes[i].wait_ms;
        if (gone) {
            *wait_ms = -1;
        } else if (serve && *wait_ms < 0 && counts->classes[i].unread == 0) {
            *wait_ms = 0;
        }
    }
}

enum status counts_read(struct session *session, struct queue_counts *counts, struct heartbeats *heartbeats,
                        struct err *err)
{
    char key[SESSION_KEY], value[32];
    const struct resp_value *reply;
    *counts = (struct queue_counts){0};
    *heartbeats = (struct heartbeats){0};
    for (int i = 0; i < CLASS_COUNT; i++) {
        TRY(count_class(session, &counts->classes[i], session_key(session, class_streams[i], "", key), err));
    }
    TRY(read_meta(session, counts, err));
    TRY(read_totals(session, counts, err));
    TRY(SESSION_ASK_NUMBER(session, &counts->later, err, "ZCARD", session_key(session, "later", "", key)));
    snprintf(value, sizeof value, "%" PRIu64, session->redis_ms);
    TRY(SESSION_ASK_NUMBER(session, &counts->due, err, "ZCOUNT", key, "-inf", value));
    TRY(SESSION_ASK_NUMBER(session, &counts->dead, err, "XLEN", session_key(session, "dead", "", key)));
    TRY(SESSION_ASK(session, &reply, err, "MEMORY", "USAGE", key, "SAMPLES", "1000"));
    counts->dead_bytes = reply->type == RESP_INTEGER ? reply->integer : 0;
    TRY(counts_read_pause(session, &counts->pause, err));
    TRY(heartbeats_read(session, heartbeats, err));
    count_workers(counts, heartbeats);
    check_waits(counts);
    return STATUS_OK;
}

long long counts_above_cap(const struct queue_counts *counts, int class)
{
    long long cap = counts->classes[class].cap, above = counts->classes[class].unread - cap;
    return cap > 0 && above > 0 ? above : 0;
}
