#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/doctor.h"
#include "cli/print.h"
#include "engine/engine.h"
#include "operator/counts.h"
#include "operator/heartbeats.h"
#include "operator/queues.h"
#include "redis/queue_names.h"
#include "redis/rights.h"
#include "schedule/reply.h"
#include "schedule/request.h"

/* If Redis refuses us a command that the role needs, the role's own process fails, too. With --user the role's process
 * has another login than we. */
static void cannot_tell(struct doctor *doctor, const char *what, const char *right, const struct err *err)
{
    size_t count;
    const struct right *table = rights_table(&count);
    bool needed = false;
    for (size_t i = 0; i < count; i++) {
        needed |= (table[i].roles & doctor->role) != 0 && strcmp(table[i].command, right) == 0;
    }
    bool fails = needed && err->status == STATUS_DENIED && !doctor->user;
    doctor_report(doctor, fails ? FINDING_FAIL : FINDING_WARN, what, "cannot tell: %s", err->message);
}

static const struct {
    const char *suffix, *type;
} keys[] = {
    {"requests:high", "stream"}, {"requests", "stream"}, {"requests:low", "stream"},
    {"dead", "stream"},          {"later", "zset"},      {"later:data", "hash"},
    {"trouble", "hash"},         {"workers", "hash"},    {"meta", "hash"},
    {"control", "stream"},       {"stats", "hash"},
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
            cannot_tell(doctor, "keys", "TYPE @requests*", &err);
            return;
        }
        const char *type = session_text(reply);
        if (strcmp(type, "none") == 0 || strcmp(type, keys[i].type) == 0) { continue; }
        doctor_report(doctor, FINDING_FAIL, "keys", "%s is a %s and must be a %s: rename it", key, type, keys[i].type);
        wrong++;
    }
    if (wrong == 0) {
        doctor_report(doctor, FINDING_OK, "keys", "none of queue %s has a wrong type", doctor->session.queue);
    }
}

/* Redis deletes a key with a TTL, and with a stream all its requests. Only a stranger sets a TTL on these keys. */
static void check_expiry(struct doctor *doctor)
{
    char key[SESSION_KEY];
    unsigned expire = 0;
    struct err err;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        long long left_ms;
        session_key(&doctor->session, keys[i].suffix, "", key);
        if (SESSION_ASK_NUMBER(&doctor->session, &left_ms, &err, "PTTL", key) != STATUS_OK) {
            cannot_tell(doctor, "expiry", "PTTL @requests*", &err);
            return;
        }
        if (left_ms < 0) { continue; }
        doctor_report(
            doctor, FINDING_FAIL, "expiry",
            "%s has a TTL: Redis deletes it with all that it holds in %lld s; PERSIST it, and find out who has sent "
            "EXPIRE",
            key, left_ms / 1000);
        expire++;
    }
    if (expire == 0) {
        doctor_report(doctor, FINDING_OK, "expiry", "none of queue %s has a TTL", doctor->session.queue);
    }
}

static void check_group(struct doctor *doctor)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    struct err err;
    session_key(&doctor->session, "requests", "", key);
    enum status status = SESSION_ASK(&doctor->session, &reply, &err, "XINFO", "GROUPS", key);
    if (reply && resp_is_error(reply, "ERR")) { /* no such key, which has no code of its own */
        doctor_report(doctor, FINDING_OK, "group", "no stream yet; the first worker or producer makes it");
    } else if (status != STATUS_OK) {
        cannot_tell(doctor, "group", "XINFO GROUPS @requests*", &err);
    } else if (session_group(reply)) {
        doctor_report(doctor, FINDING_OK, "group", "sluice reads %s", key);
    } else {
        doctor_report(doctor, FINDING_WARN, "group", "%s has no group sluice; the next worker makes it", key);
    }
}

/* The seconds by which an id is ahead of Redis' clock; 0 if a worker would not act on it. */
static unsigned long long seconds_ahead(const struct doctor *doctor, const struct resp_value *id)
{
    struct entry_id parsed;
    uint64_t now_ms = doctor->session.redis_ms + AHEAD_MS;
    bool ahead = resp_entry_id(id, &parsed) && parsed.ms > now_ms;
    return ahead ? (parsed.ms - doctor->session.redis_ms) / 1000 : 0;
}

/* Reports ids of a class that are ahead of the clock, or that it could not find out. Returns whether it reported
 * anything. */
static bool check_ids_of(struct doctor *doctor, const char *suffix)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    struct err err;
    session_key(&doctor->session, suffix, "", key);
    enum status status = SESSION_ASK(&doctor->session, &reply, &err, "XINFO", "STREAM", key);
    unsigned long long stream = status ? 0 : seconds_ahead(doctor, resp_field(reply, "last-generated-id")), group = 0;
    if (!status) { status = SESSION_ASK(&doctor->session, &reply, &err, "XINFO", "GROUPS", key); }
    const struct resp_value *ours = status ? NULL : session_group(reply);
    if (ours) { group = seconds_ahead(doctor, resp_field(ours, "last-delivered-id")); }
    bool none = reply && (resp_is_error(reply, "ERR") || resp_is_error(reply, "WRONGTYPE"));
    if (status && !none) {
        cannot_tell(doctor, "ids", "XINFO STREAM @requests*", &err);
    } else if (stream > 0) {
        doctor_report(
            doctor, FINDING_WARN, "ids",
            "those of %s are %llu s ahead of the clock: a producer has sent an entry with an id of its own, and Redis "
            "counts on from it, or refuses XADD; a worker sets the stream back within seconds, so let one run",
            key, stream);
    } else if (group > 0) {
        doctor_report(
            doctor, FINDING_WARN, "ids",
            "group sluice of %s is %llu s ahead of the clock, so nobody reads what is added; a worker sets it back "
            "within seconds, so let one run",
            key, group);
    }
    return (status && !none) || stream + group > 0;
}

static void check_workers(struct doctor *doctor)
{
    struct heartbeats heartbeats;
    struct err err;
    enum status status = heartbeats_read(&doctor->session, &heartbeats, &err);
    size_t alive = 0;
    char version[64], first[64] = "", other[64] = "";
    for (size_t i = 0; i < heartbeats.count; i++) {
        if (!heartbeats.lines[i].alive) { continue; }
        heartbeat_value(&heartbeats.lines[i], "version", version, sizeof version);
        if (!version[0]) { strcpy(version, "unknown"); } /* an older worker did not say */
        if (alive++ == 0) {
            strcpy(first, version);
        } else if (strcmp(version, first) != 0) {
            strcpy(other, version);
        }
    }
    heartbeats_free(&heartbeats);
    if (status != STATUS_OK) {
        cannot_tell(doctor, "workers", "HGETALL @workers", &err);
    } else if (other[0]) {
        doctor_report(doctor, FINDING_WARN, "workers",
                      "%zu alive, of different versions: %s and %s (`sluice workers list`)", alive, first, other);
    } else if (alive > 0) {
        doctor_report(doctor, FINDING_OK, "workers", "%zu alive", alive);
    } else {
        char *unused = invocation_unused(&doctor->session);
        doctor_report(doctor, FINDING_WARN, "workers", "0 alive%s%s", unused ? "; " : "", unused ? unused : "");
        free(unused);
    }
}

static void check_pause(struct doctor *doctor)
{
    struct pause pause;
    struct err err;
    if (counts_read_pause(&doctor->session, &pause, &err) != STATUS_OK) {
        cannot_tell(doctor, "pause", "GET @paused", &err);
    } else if (!pause.on) {
        doctor_report(doctor, FINDING_OK, "pause", "none");
    } else {
        char *known = NULL;
        size_t length;
        FILE *to = open_memstream(&known, &length);
        if (to) {
            print_pause(to, &pause, doctor->session.redis_ms);
            fclose(to);
        }
        doctor_report(doctor, FINDING_WARN, "pause", "the queue is paused, and nobody takes anything%s (sluice resume)",
                      known ? known : "");
        free(known);
    }
}

static void check_dead(struct doctor *doctor)
{
    char key[SESSION_KEY];
    long long number;
    struct err err;
    session_key(&doctor->session, "dead", "", key);
    if (SESSION_ASK_NUMBER(&doctor->session, &number, &err, "XLEN", key) != STATUS_OK) {
        cannot_tell(doctor, "dead", "XLEN @dead", &err);
    } else if (number > 0) {
        doctor_report(doctor, FINDING_WARN, "dead", "%lld dead letters (sluice dead list)", number);
    } else {
        doctor_report(doctor, FINDING_OK, "dead", "none");
    }
}

static void check_contents(struct doctor *doctor)
{
    check_types(doctor);
    check_expiry(doctor);
    check_group(doctor);
    bool said = false;
    for (int i = 0; i < CLASS_COUNT; i++) { said |= check_ids_of(doctor, class_streams[i]); }
    if (!said) { doctor_report(doctor, FINDING_OK, "ids", "none is ahead of Redis' clock"); }
    check_workers(doctor);
    check_pause(doctor);
    check_dead(doctor);
}

/* Streams that producers have made by a mistyped key, or for a mistyped queue: Redis takes their requests, and no
 * worker reads them. */

enum { STRAYS_NAMED = 8, STRAYS_MS = 2000, CURSOR_TEXT = 24 };

/* Returns whether the queue is none of ours, and never had a worker. */
static bool is_unserved(struct doctor *doctor, const struct resp_value *key, const char *name, size_t length,
                        const struct config *configs, size_t count)
{
    const struct resp_value *reply;
    struct err err;
    for (size_t i = 0; i < count; i++) {
        if (strlen(configs[i].queue) == length && memcmp(configs[i].queue, name, length) == 0) { return false; }
    }
    return SESSION_ASK(&doctor->session, &reply, &err, "XINFO", "GROUPS", key->bytes) == STATUS_OK &&
           !session_group(reply);
}

/* Reports a stream if no worker reads it, and returns whether none does. */
static bool check_stray(struct doctor *doctor, const struct resp_value *key, bool named, const struct config *configs,
                        size_t count)
{
    const char *name;
    size_t length = queues_find_name(key, &name), size;
    if (length > 0 && !is_unserved(doctor, key, name, length, configs, count)) { return false; }
    if (length == 0 && (strstr(key->bytes, "}:results:") || strstr(key->bytes, "}:tokens:"))) { return false; }
    char *shown = NULL;
    FILE *to = named ? open_memstream(&shown, &size) : NULL;
    if (!to) { return true; }
    print_bytes(to, key->bytes, key->length);
    fclose(to);
    if (length > 0) {
        doctor_report(doctor, FINDING_WARN, "strays", "%s: queue %.*s never had a worker; is its name mistyped?", shown,
                      (int)length, name);
    } else {
        doctor_report(doctor, FINDING_WARN, "strays",
                      "nobody reads %s: the streams of a queue are sluice:{NAME}:requests, with :high or :low after it",
                      shown);
    }
    free(shown);
    return true;
}

/* Returns whether our login may SCAN. It asks, because Redis logs each refusal. */
static bool may_scan(struct doctor *doctor)
{
    char user[256], answer[256];
    const struct resp_value *reply;
    struct err err;
    if (SESSION_ASK(&doctor->session, &reply, &err, "ACL", "WHOAMI") != STATUS_OK) { return false; }
    snprintf(user, sizeof user, "%s", session_text(reply));
    return doctor_try(doctor, user, "SCAN 0", answer, &err) == STATUS_OK && answer[0] == '\0';
}

void doctor_check_strays(struct doctor *doctor, const struct config *configs, size_t count)
{
    char cursor[CURSOR_TEXT] = "0";
    size_t found = 0;
    uint64_t ends_ms = clock_now_ms() + STRAYS_MS;
    if (!may_scan(doctor)) {
        doctor_report(doctor, FINDING_OK, "strays",
                      "mistyped keys were not looked for, because this login may not SCAN");
        return;
    }
    do {
        const struct resp_value *reply;
        struct err err;
        enum status status = SESSION_ASK(&doctor->session, &reply, &err, "SCAN", cursor, "MATCH", "*sluice*request*",
                                         "COUNT", "1000", "TYPE", "stream");
        struct resp_value *keys_found = status || reply->count != 2 ? NULL : resp_clone(&reply->items[1]);
        if (!keys_found || !reply->items[0].bytes || reply->items[0].length >= sizeof cursor) {
            doctor_report(doctor, FINDING_WARN, "strays", "cannot tell: %s",
                          status ? err.message : "SCAN answered in an unknown shape");
            free(keys_found);
            return;
        }
        memcpy(cursor, reply->items[0].bytes, reply->items[0].length + 1);
        for (size_t i = 0; i < keys_found->count; i++) {
            found += check_stray(doctor, &keys_found->items[i], found < STRAYS_NAMED, configs, count);
        }
        free(keys_found);
    } while (strcmp(cursor, "0") != 0 && clock_now_ms() < ends_ms);
    if (found > STRAYS_NAMED) {
        doctor_report(doctor, FINDING_WARN, "strays", "and %zu more such streams", found - STRAYS_NAMED);
    } else if (found == 0) {
        doctor_report(doctor, FINDING_OK, "strays", "no stream has a mistyped key%s",
                      strcmp(cursor, "0") != 0 ? ", among the keys seen in two seconds" : "");
    }
}

/* Reads a field of the queue's `meta`, "" for none. If it cannot, reports that about `what`, and returns false. */
static bool read_meta(struct doctor *doctor, const char *what, const char *field, char value[128])
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    struct err err;
    session_key(&doctor->session, "meta", "", key);
    if (SESSION_ASK(&doctor->session, &reply, &err, "HGET", key, field) != STATUS_OK) {
        cannot_tell(doctor, what, "HGET @meta x", &err);
        return false;
    }
    snprintf(value, 128, "%s", session_text(reply));
    return true;
}

static void check_model(struct doctor *doctor)
{
    char pinned[128], name[128];
    const struct model *model = doctor->model;
    if (!read_meta(doctor, "model", "model_id", pinned) || !read_meta(doctor, "model", "model", name)) { return; }
    if (pinned[0] == '\0') {
        doctor_report(doctor, FINDING_OK, "model", "the queue has none yet; the first worker brings its own");
    } else if (!model) {
        doctor_report(doctor, FINDING_WARN, "model", "the queue's is %s (%s), and ours cannot be compared: %s", pinned,
                      name[0] != '\0' ? name : "its name is not known", doctor->no_model.message);
    } else if (strcmp(model->id, pinned) == 0) {
        doctor_report(doctor, FINDING_OK, "model", "%s (%s) is the queue's", model->name, model->id);
    } else {
        doctor_report(doctor, FINDING_FAIL, "model",
                      "the queue belongs to the model %s (%s); %s is %s, and a worker with it will be refused", pinned,
                      name[0] != '\0' ? name : "its name is not known", model->name, model->id);
    }
}

/* Checks whether a worker with our settings may join a queue that is pinned to a precision. */
static void check_precision(struct doctor *doctor)
{
    char pinned[128];
    struct err err;
    const char *ours = precision_name((enum precision)doctor->config->precision);
    if (!read_meta(doctor, "precision", "precision", pinned)) { return; }
    if (pinned[0] == '\0') {
        doctor_report(doctor, FINDING_OK, "precision", "the queue takes any");
    } else if (strcmp(pinned, ours) == 0) {
        doctor_report(doctor, FINDING_OK, "precision", "%s, to which the queue is pinned", ours);
    } else if (doctor->config->precision == PRECISION_AUTO) {
        doctor_report(
            doctor, FINDING_WARN, "precision",
            "the queue is pinned to %s; a worker with precision auto may choose another one and is then refused: set "
            "precision to %s",
            pinned, pinned);
    } else {
        (void)queue_refuse_precision(doctor->session.queue, pinned, ours, &err);
        doctor_report(doctor, FINDING_FAIL, "precision", "%s", err.message);
    }
}

/* Limits of Redis that close a connection, compared with the largest reply and entry of a worker here. */

/* Bytes on the wire in addition to a reply's result, or to an entry's texts: an estimate. */
enum { LIMIT_BESIDE = 8 << 10 };

/* The most restrictive of several settings of Redis; 0 bytes: no limit. */
struct limit {
    const char *name;
    double bytes;
};

static void lower_limit(struct limit *limit, const char *name, double bytes)
{
    if (bytes > 0 && (limit->bytes == 0 || bytes < limit->bytes)) { *limit = (struct limit){name, bytes}; }
}

/* Reads the limits on the bytes that Redis takes, and sends, in one piece. False: we may not ask. */
static bool read_limits(struct doctor *doctor, struct limit *takes, struct limit *sends)
{
    char value[SETTING_MAX], most[64];
    double hard = 0;
    doctor_setting(doctor, "proto-max-bulk-len", value);
    if (value[0] == '\0') { return false; }
    lower_limit(takes, "proto-max-bulk-len", atof(value));
    doctor_setting(doctor, "client-query-buffer-limit", value);
    lower_limit(takes, "client-query-buffer-limit", atof(value));
    doctor_setting(doctor, "client-output-buffer-limit", value);
    const char *normal = strstr(value, "normal ");
    if (normal && sscanf(normal, "normal %lf", &hard) == 1) {
        lower_limit(sends, "client-output-buffer-limit normal", hard);
    }
    doctor_setting(doctor, "maxmemory-clients", value);
    double clients = atof(value), part = strchr(value, '%') ? atof(doctor_info(doctor, "maxmemory", most)) / 100 : 1;
    lower_limit(takes, "maxmemory-clients", clients * part);
    lower_limit(sends, "maxmemory-clients", clients * part);
    return true;
}

/* The longest result of a request with `max_inputs` texts. */
static double largest_reply(const struct doctor *doctor, enum encoding encoding)
{
    const struct model *model = doctor->model;
    struct row row = {0};
    struct request request = {.task = model->head.labels > 0 ? TASK_CLASSIFY : TASK_EMBED,
                              .head = &model->head,
                              .inputs = true,
                              .rows = &row,
                              .row_count = (uint32_t)doctor->config->max_inputs,
                              .output = {.dims = model->dim, .encoding = encoding}};
    return (double)reply_room(&request);
}

static void check_limits(struct doctor *doctor)
{
    static const double MIB = 1 << 20;
    struct limit takes = {0}, sends = {0};
    if (!read_limits(doctor, &takes, &sends)) {
        doctor_report(doctor, FINDING_WARN, "limits", "cannot tell, because this login may not ask (CONFIG GET)");
        return;
    }
    double entry = (double)doctor->config->max_text_bytes;
    bool long_entry = sends.bytes > 0 && entry + LIMIT_BESIDE > sends.bytes, long_reply = false;
    if (long_entry) {
        doctor_report(
            doctor, FINDING_WARN, "limits",
            "a request may carry %.1f MiB (max_text_bytes), and Redis sends a worker %.1f MiB at once (%s): what is "
            "longer is "
            "answered too_large",
            entry / MIB, sends.bytes / MIB, sends.name);
    }
    if (!doctor->model) {
        doctor_report(doctor, FINDING_WARN, "limits",
                      "Redis takes %.1f MiB at once (%s); how long replies are cannot be told: %s", takes.bytes / MIB,
                      takes.name, doctor->no_model.message);
        return;
    }
    double json = largest_reply(doctor, ENCODING_JSON), f32 = largest_reply(doctor, ENCODING_F32);
    long_reply = takes.bytes > 0 && (json > f32 ? json : f32) + LIMIT_BESIDE > takes.bytes;
    if (long_reply) {
        doctor_report(
            doctor, FINDING_WARN, "limits",
            "a reply to %lld texts (max_inputs) may have %.1f MiB as json, %.1f MiB as f32, and Redis takes %.1f MiB "
            "at once "
            "(%s): what is longer is answered too_large",
            (long long)doctor->config->max_inputs, json / MIB, f32 / MIB, takes.bytes / MIB, takes.name);
    } else if (!long_entry) {
        doctor_report(
            doctor, FINDING_OK, "limits",
            "the largest reply (%.1f MiB as json, %.1f MiB as f32) and entry (%.1f MiB) pass: Redis takes %.0f MiB "
            "(%s)",
            json / MIB, f32 / MIB, entry / MIB, takes.bytes / MIB, takes.name);
    }
}

void doctor_check_queue(struct doctor *doctor)
{
    check_contents(doctor);
    check_model(doctor);
    check_precision(doctor);
    check_limits(doctor);
}
