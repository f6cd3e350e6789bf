/* The queue: that its keys are what they should be, who works on it, and whether our model is its model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/doctor.h"
#include "cli/heartbeats.h"
#include "serve/start.h"
#include "work/request.h"

static const struct {
    const char *suffix, *type;
} keys[] = {
    {"requests:high", "stream"}, {"requests", "stream"}, {"requests:low", "stream"}, {"dead", "stream"},
    {"later", "zset"},           {"later:data", "hash"}, {"trouble", "hash"},        {"workers", "hash"},
    {"meta", "hash"},            {"control", "stream"},  {"stats", "hash"},
};

static void check_types(struct doctor *doctor)
{
    char key[SESSION_KEY];
    unsigned wrong = 0;
    struct err err;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct resp_value *reply;
        session_key(&doctor->session, keys[i].suffix, "", key);
        if (SESSION_ASK(&doctor->session, &reply, &err, "TYPE", key) != STATUS_OK) {
            doctor_say(doctor, FINDING_WARN, "keys", "cannot tell: %s", err.message);
            return;
        }
        const char *type = session_text(reply);
        if (strcmp(type, "none") == 0 || strcmp(type, keys[i].type) == 0)
            continue;
        doctor_say(doctor, FINDING_FAIL, "keys", "%s is a %s and must be a %s: rename it", key, type, keys[i].type);
        wrong++;
    }
    if (wrong == 0)
        doctor_say(doctor, FINDING_OK, "keys", "none of queue %s has a wrong type", doctor->session.queue);
}

static bool has_group(const struct resp_value *groups)
{
    for (size_t i = 0; i < groups->count; i++)
        for (size_t j = 0; groups->items[i].type == RESP_ARRAY && j + 1 < groups->items[i].count; j += 2)
            if (resp_equals(&groups->items[i].items[j], "name") &&
                resp_equals(&groups->items[i].items[j + 1], "sluice"))
                return true;
    return false;
}

static void check_group(struct doctor *doctor)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    struct err err;
    session_key(&doctor->session, "requests", "", key);
    enum status status = SESSION_ASK(&doctor->session, &reply, &err, "XINFO", "GROUPS", key);
    if (status != STATUS_OK && strstr(err.message, "no such key") != NULL)
        doctor_say(doctor, FINDING_OK, "group", "no stream yet; the first worker or producer makes it");
    else if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WARN, "group", "cannot tell: %s", err.message);
    else if (has_group(reply))
        doctor_say(doctor, FINDING_OK, "group", "sluice reads %s", key);
    else
        doctor_say(doctor, FINDING_WARN, "group", "%s has no group sluice; the next worker makes it", key);
}

/* How many seconds an id is ahead of Redis' clock; 0 where it is not by so much that a worker would do anything. */
static unsigned long long seconds_ahead(const struct doctor *doctor, const struct resp_value *id)
{
    struct entry_id parsed;
    uint64_t now_ms = doctor->session.redis_ms + AHEAD_MS;
    bool ahead = id && id->bytes && entry_id_parse(id->bytes, id->length, &parsed) && parsed.ms > now_ms;
    return ahead ? (parsed.ms - doctor->session.redis_ms) / 1000 : 0;
}

static const struct resp_value *last_delivered(const struct resp_value *groups)
{
    for (size_t i = 0; i < groups->count; i++) {
        const struct resp_value *group = &groups->items[i], *name = resp_field(group, "name");
        if (name && resp_equals(name, "sluice")) {
            return resp_field(group, "last-delivered-id");
        }
    }
    return NULL;
}

/* Says so when the ids of a class have run ahead of the clock, or when it cannot tell: true then. */
static bool check_ids_of(struct doctor *doctor, const char *suffix)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    struct err err;
    session_key(&doctor->session, suffix, "", key);
    enum status status = SESSION_ASK(&doctor->session, &reply, &err, "XINFO", "STREAM", key);
    unsigned long long stream = status ? 0 : seconds_ahead(doctor, resp_field(reply, "last-generated-id")), group = 0;
    if (!status) {
        status = SESSION_ASK(&doctor->session, &reply, &err, "XINFO", "GROUPS", key);
        group = status ? 0 : seconds_ahead(doctor, last_delivered(reply));
    }
    bool none = status && (strstr(err.message, "no such key") || strstr(err.message, "WRONGTYPE"));
    if (status && !none) {
        doctor_say(doctor, FINDING_WARN, "ids", "cannot tell: %s", err.message);
    } else if (stream > 0) {
        doctor_say(
            doctor, FINDING_WARN, "ids",
            "those of %s are %llu s ahead of the clock: a producer has sent an entry with an id of its own, and Redis "
            "counts on from it, or refuses XADD; a worker sets the stream back within seconds, so let one run",
            key, stream);
    } else if (group > 0) {
        doctor_say(
            doctor, FINDING_WARN, "ids",
            "group sluice of %s is %llu s ahead of the clock, so nobody reads what is added; a worker sets it back "
            "within seconds, so let one run",
            key, group);
    }
    return (status && !none) || stream + group > 0;
}

static void check_ids(struct doctor *doctor)
{
    bool said = false;
    for (int class = 0; class < CLASS_COUNT; class ++) {
        said |= check_ids_of(doctor, class_streams[class]);
    }
    if (!said) {
        doctor_say(doctor, FINDING_OK, "ids", "none is ahead of Redis' clock");
    }
}

static void check_workers(struct doctor *doctor)
{
    struct heartbeats heartbeats;
    struct err err;
    enum status status = heartbeats_read(&doctor->session, &heartbeats, &err);
    size_t alive = 0;
    for (size_t i = 0; i < heartbeats.count; i++)
        alive += heartbeats.lines[i].alive;
    heartbeats_free(&heartbeats);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WARN, "workers", "cannot tell: %s", err.message);
    else
        doctor_say(doctor, alive > 0 ? FINDING_OK : FINDING_WARN, "workers", "%zu alive", alive);
}

/* Something to look at where `command` on a key answers more than 0. */
static void check_none(struct doctor *doctor, const char *what, const char *command, const char *suffix,
                       const char *finding)
{
    char key[SESSION_KEY];
    long long number;
    struct err err;
    session_key(&doctor->session, suffix, "", key);
    if (SESSION_ASK_NUMBER(&doctor->session, &number, &err, command, key) != STATUS_OK)
        doctor_say(doctor, FINDING_WARN, what, "cannot tell: %s", err.message);
    else if (number > 0)
        doctor_say(doctor, FINDING_WARN, what, "%lld %s", number, finding);
    else
        doctor_say(doctor, FINDING_OK, what, "none");
}

void doctor_queue(struct doctor *doctor)
{
    check_types(doctor);
    check_group(doctor);
    check_ids(doctor);
    check_workers(doctor);
    check_none(doctor, "pause", "EXISTS", "paused", "pause of the queue: nobody takes anything (sluice resume)");
    check_none(doctor, "dead", "XLEN", "dead", "dead letters (sluice dead list)");
}

void doctor_model(struct doctor *doctor)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    struct err err;
    session_key(&doctor->session, "meta", "", key);
    if (SESSION_ASK(&doctor->session, &reply, &err, "HGET", key, "model_id") != STATUS_OK) {
        doctor_say(doctor, FINDING_WARN, "model", "cannot tell: %s", err.message);
        return;
    }
    if (reply->bytes == NULL) {
        doctor_say(doctor, FINDING_OK, "model", "the queue has none yet; the first worker brings its own");
        return;
    }
    char pinned[64];
    snprintf(pinned, sizeof pinned, "%s", session_text(reply));
    struct model *model = NULL;
    if (start_model(doctor->config, &model, &err) != STATUS_OK) {
        doctor_say(doctor, FINDING_WARN, "model", "the queue's is %s, and ours cannot be compared: %s", pinned,
                   err.message);
        return;
    }
    if (strcmp(model->id, pinned) == 0)
        doctor_say(doctor, FINDING_OK, "model", "%s (%s) is the queue's", model->name, model->id);
    else
        doctor_say(doctor, FINDING_FAIL, "model",
                   "the queue belongs to the model %s; %s is %s, and a worker with it will be refused", pinned,
                   model->name, model->id);
    model_close(model);
}
