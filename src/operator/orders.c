#include "operator/orders.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/queue_names.h"

enum status order_pause(struct session *session, uint64_t for_ms, const char *why, struct pause *out, bool *changed,
                        struct err *err)
{
    char key[SESSION_KEY], value[PAUSE_VALUE], span[24], host[QUEUE_HOST_MAX + 1];
    const struct resp_value *reply;
    TRY(counts_read_pause(session, out, err));
    *changed = !out->on || out->until_ms > 0 || for_ms > 0 || why;
    if (!*changed) { return STATUS_OK; }
    if (!out->on) { out->since_ms = session->redis_ms; }
    if (why) { snprintf(out->why, sizeof out->why, "%s", why); }
    queue_host(host);
    snprintf(out->by, sizeof out->by, "%.80s@%s", session->address.user ? session->address.user : "default", host);
    pause_format(out, value);
    session_key(session, "paused", "", key);
    if (for_ms > 0) {
        snprintf(span, sizeof span, "%" PRIu64, for_ms);
        TRY(SESSION_ASK(session, &reply, err, "SET", key, value, "PX", span));
    } else {
        TRY(SESSION_ASK(session, &reply, err, "SET", key, value));
    }
    return counts_read_pause(session, out, err);
}

enum status order_resume(struct session *session, bool *changed, struct err *err)
{
    char key[SESSION_KEY];
    long long removed;
    TRY(SESSION_ASK_NUMBER(session, &removed, err, "DEL", session_key(session, "paused", "", key)));
    *changed = removed == 1;
    return STATUS_OK;
}

enum status order_caps(struct session *session, long long caps[CAPS], struct err *err)
{
    char key[SESSION_KEY], fields[CAPS][16], number[24];
    const struct resp_value *reply;
    session_key(session, "meta", "", key);
    for (int i = 0; i < CAPS; i++) {
        snprintf(fields[i], sizeof fields[i], "cap_%s", cap_names[i]);
        snprintf(number, sizeof number, "%lld", caps[i]);
        if (caps[i] >= 0) { TRY(SESSION_ASK(session, &reply, err, "HSET", key, fields[i], number)); }
    }
    TRY(SESSION_ASK(session, &reply, err, "HMGET", key, fields[0], fields[1], fields[2], fields[3]));
    for (size_t i = 0; i < CAPS; i++) {
        long long cap = i < reply->count ? atoll(session_text(&reply->items[i])) : 0;
        caps[i] = cap > 0 ? cap : 0;
    }
    return STATUS_OK;
}

static const char *const orders[] = {"quiet", "resume", "drain", "stop"};

bool order_is(const char *word)
{
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        if (strcmp(orders[i], word) == 0) { return true; }
    }
    return false;
}

enum status order_worker(struct session *session, const char *worker, const char *order, struct err *err)
{
    char key[SESSION_KEY], field[SESSION_KEY];
    const struct resp_value *reply;
    snprintf(field, sizeof field, "command:%s", worker);
    return SESSION_ASK(session, &reply, err, "HSET", session_key(session, "workers", "", key), field, order);
}
