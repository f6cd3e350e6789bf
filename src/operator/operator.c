#include "operator/operator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* ---- the connection ---- */

enum status session_ask_time(struct session *session, struct err *err)
{
    const struct resp_value *reply;
    TRY(SESSION_ASK(session, &reply, err, "TIME"));
    if (reply->type != RESP_ARRAY || reply->count != 2) {
        return err_set(err, STATUS_INTERNAL, "TIME answered in an unknown shape");
    }
    session->redis_ms =
        strtoull(reply->items[0].bytes, NULL, 10) * 1000 + strtoull(reply->items[1].bytes, NULL, 10) / 1000;
    return STATUS_OK;
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

/* ---- workers ---- */

/* `workers` holds a heartbeat under each name, and orders under `command:<name>`. */
static bool is_order(const struct resp_value *field)
{
    return strncmp(session_text(field), "command:", 8) == 0;
}

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
        if (!is_order(&out->answer->items[i])) { out->lines[out->count++] = read_line(session, out->answer, i); }
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

static const char *const orders[] = {"quiet", "resume", "drain", "stop"};

bool worker_order_is(const char *word)
{
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        if (strcmp(orders[i], word) == 0) { return true; }
    }
    return false;
}

enum status worker_order(struct session *session, const char *worker, const char *order, struct err *err)
{
    char key[SESSION_KEY], field[SESSION_KEY];
    const struct resp_value *reply;
    snprintf(field, sizeof field, "command:%s", worker);
    return SESSION_ASK(session, &reply, err, "HSET", session_key(session, "workers", "", key), field, order);
}

/* ---- queues ---- */

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

/* Reads the fields of lua/pulse for days, `day:<place>`: `<day> <done> <errors>`. Some are of days too old to count. */
static void read_days(const struct session *session, struct queue_counts *counts, const struct resp_value *totals)
{
    uint64_t today = session->redis_ms / DAY_MS, day;
    for (size_t i = 0; i + 1 < totals->count; i += 2) {
        struct day_counts ended;
        bool is_day = strncmp(session_text(&totals->items[i]), "day:", 4) == 0 &&
                      sscanf(session_text(&totals->items[i + 1]), "%" SCNu64 " %" SCNu64 " %" SCNu64, &day, &ended.done,
                             &ended.errors) == 3;
        if (is_day && day <= today && today - day < HISTORY_DAYS) { counts->days[today - day] = ended; }
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

enum status queue_counts_read(struct session *session, struct queue_counts *counts, struct heartbeats *heartbeats,
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
    TRY(pause_read(session, &counts->pause, err));
    TRY(heartbeats_read(session, heartbeats, err));
    count_workers(counts, heartbeats);
    check_waits(counts);
    return STATUS_OK;
}

enum { WALK_CALLS = 10 };
#define WALK_KEYS "1000"
#define WALK_PATTERN "sluice:{*}:requests*"

/* Finds the queue's name in the key of a stream of requests, and returns its length; 0: it is another key. Producers
 * choose the names of replies and results streams, so SCAN's pattern may match those, too. */
static size_t find_name(const struct resp_value *key, const char **name)
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
        size_t length = find_name(&keys->items[i], &name);
        if (length > 0) { add_name(&walk->finding, name, length); }
    }
    return STATUS_OK;
}

enum status queue_walk_on(struct session *session, struct queue_walk *walk, struct err *err)
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

const struct queue_names *queue_walk_names(const struct queue_walk *walk)
{
    return walk->whole ? &walk->found : &walk->finding;
}

enum status queue_exists(struct session *session, bool *out, struct err *err)
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

enum status pause_read(struct session *session, struct pause *out, struct err *err)
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

enum status pause_set(struct session *session, uint64_t for_ms, const char *why, struct pause *out, bool *changed,
                      struct err *err)
{
    char key[SESSION_KEY], value[PAUSE_VALUE], span[24], host[QUEUE_HOST_MAX + 1];
    const struct resp_value *reply;
    TRY(pause_read(session, out, err));
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
    return pause_read(session, out, err);
}

enum status pause_end(struct session *session, bool *changed, struct err *err)
{
    char key[SESSION_KEY];
    long long removed;
    TRY(SESSION_ASK_NUMBER(session, &removed, err, "DEL", session_key(session, "paused", "", key)));
    *changed = removed == 1;
    return STATUS_OK;
}

const char *const cap_names[CAPS] = {"high", "normal", "low", "later"};

enum status caps_set(struct session *session, long long caps[CAPS], struct err *err)
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

/* ---- dead letters ---- */

static bool field_is(const struct letter *letter, const char *name, const char *wanted)
{
    const struct resp_value *value = resp_field(letter->fields, name);
    return value && resp_equals(value, wanted);
}

static bool has_bytes(const struct letter *letter, const char *search)
{
    for (size_t i = 0; i < letter->fields->count; i++) {
        const struct resp_value *text = &letter->fields->items[i];
        if (text->bytes && memmem(text->bytes, text->length, search, strlen(search))) { return true; }
    }
    return false;
}

static bool passes(const struct letter *letter, const struct letter_filter *filter)
{
    if (filter->code && !field_is(letter, "_code", filter->code)) { return false; }
    if (filter->search && !has_bytes(letter, filter->search)) { return false; }
    return !filter->id || field_is(letter, "id", filter->id) || field_is(letter, "_id", filter->id) ||
           field_is(letter, "_entry", filter->id);
}

/* Reads an entry of XRANGE; false when it has another shape. */
static bool read_letter(const struct session *session, const struct resp_value *entry, struct letter *out)
{
    if (entry->type != RESP_ARRAY || entry->count != 2 || !entry->items[0].bytes ||
        entry->items[1].type != RESP_ARRAY) {
        return false;
    }
    uint64_t buried_ms = strtoull(entry->items[0].bytes, NULL, 10);
    *out = (struct letter){.id = entry->items[0].bytes,
                           .fields = &entry->items[1],
                           .age_ms = session->redis_ms > buried_ms ? session->redis_ms - buried_ms : 0};
    return true;
}

/* Copies the answer, because `visit` sends other commands. */
static enum status read_page(struct session *session, const char *command, const char *from, const char *to,
                             struct resp_value **out, struct err *err)
{
    char key[SESSION_KEY], count[16];
    const struct resp_value *page;
    snprintf(count, sizeof count, "%d", LETTER_PAGE);
    TRY(SESSION_ASK(session, &page, err, command, session_key(session, "dead", "", key), from, to, "COUNT", count));
    *out = resp_clone(page);
    if (!*out) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu dead letters", page->count); }
    return STATUS_OK;
}

/* A cursor is a letter's id; if the oldest letters come first, `/` and the time at which the walk began follow. */
bool letters_cursor_is(const char *text)
{
    struct entry_id id;
    size_t length = strcspn(text, "/"), digits = text[length] ? strspn(text + length + 1, "0123456789") : 0;
    bool whole = text[length] == '\0' || (digits > 0 && digits <= 20 && text[length + 1 + digits] == '\0');
    return whole && entry_id_parse(text, length, &id);
}

enum status letters_page(struct session *session, const struct letter_filter *filter, bool newest_first,
                         const char *cursor, char next[LETTER_CURSOR], void *context, letter_visit_fn *visit,
                         struct err *err)
{
    char first[LETTER_CURSOR], last[LETTER_CURSOR], *from = newest_first ? last : first;
    uint64_t now = session->redis_ms, newer_ms = filter->newer_than_ms, older_ms = filter->older_than_ms;
    struct resp_value *page;
    snprintf(first, sizeof first, "%" PRIu64, newer_ms > 0 && newer_ms < now ? now - newer_ms : 0);
    snprintf(last, sizeof last, "%" PRIu64, older_ms < now ? now - older_ms : 0);
    if (cursor) {
        size_t id = strcspn(cursor, "/");
        if (!newest_first && cursor[id] == '/') { snprintf(last, sizeof last, "%s", cursor + id + 1); }
        snprintf(from, sizeof first, "(%.*s", (int)id, cursor);
    }
    next[0] = '\0';
    TRY(newest_first ? read_page(session, "XREVRANGE", last, first, &page, err)
                     : read_page(session, "XRANGE", first, last, &page, err));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < page->count && status == STATUS_OK; i++) {
        struct letter letter;
        if (!read_letter(session, &page->items[i], &letter)) {
            status =
                err_set(err, STATUS_INTERNAL, "%s answered in an unknown shape", newest_first ? "XREVRANGE" : "XRANGE");
        } else {
            if (i + 1 == LETTER_PAGE) {
                snprintf(next, LETTER_CURSOR, "%.41s%s%.20s", letter.id, newest_first ? "" : "/",
                         newest_first ? "" : last);
            }
            if (passes(&letter, filter)) { status = visit(context, &letter, err); }
        }
    }
    free(page);
    return status;
}

enum status letters_each(struct session *session, const struct letter_filter *filter, void *context,
                         letter_visit_fn *visit, struct err *err)
{
    char cursor[LETTER_CURSOR];
    TRY(letters_page(session, filter, false, NULL, cursor, context, visit, err));
    while (cursor[0] != '\0') { TRY(letters_page(session, filter, false, cursor, cursor, context, visit, err)); }
    return STATUS_OK;
}

enum status letters_one(struct session *session, const char *id, void *context, letter_visit_fn *visit, struct err *err)
{
    struct resp_value *page;
    TRY(read_page(session, "XRANGE", id, id, &page, err));
    struct letter letter;
    enum status status = page->count == 1 && read_letter(session, &page->items[0], &letter)
                             ? visit(context, &letter, err)
                             : err_set(err, STATUS_NOT_FOUND, "there is no dead letter %s", id);
    free(page);
    return status;
}

enum status letter_delete(struct session *session, const char *id, bool *removed, struct err *err)
{
    char key[SESSION_KEY];
    long long count;
    TRY(SESSION_ASK_NUMBER(session, &count, err, "XDEL", session_key(session, "dead", "", key), id));
    *removed = count == 1;
    return STATUS_OK;
}

enum status letter_requeue(struct session *session, const char *id, char digest[SCRIPT_DIGEST + 1], enum requeued *out,
                           char *entry, struct err *err)
{
    char dead[SESSION_KEY], high[SESSION_KEY], normal[SESSION_KEY], low[SESSION_KEY];
    if (digest[0] == '\0') { TRY(session_load(session, SCRIPT_REQUEUE, digest, err)); }
    const struct resp_value *reply;
    TRY(SESSION_ASK(session, &reply, err, "EVALSHA", digest, "4", session_key(session, "dead", "", dead),
                    session_key(session, class_streams[CLASS_HIGH], "", high),
                    session_key(session, class_streams[CLASS_NORMAL], "", normal),
                    session_key(session, class_streams[CLASS_LOW], "", low), id));
    if (reply->type != RESP_ARRAY || reply->count == 0) {
        return err_set(err, STATUS_INTERNAL, "lua/requeue answered in an unknown shape");
    }
    long long said = reply->items[0].integer;
    bool done = said == 1 && reply->count == 2;
    *out = done ? REQUEUED : said == -1 ? REQUEUED_EMPTY : said == -2 ? REQUEUED_CUT : REQUEUED_GONE;
    snprintf(entry, ENTRY_ID_TEXT, "%s", done ? session_text(&reply->items[1]) : "");
    return STATUS_OK;
}
