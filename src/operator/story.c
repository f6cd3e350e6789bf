#include "operator/story.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "operator/heartbeats.h"
#include "redis/queue_names.h"

/* The limits of a search through dead letters, which may have 64 KiB each. */
enum { LETTERS_A_PAGE = 16, PAGES = 64 };

enum { LOOKS = 3 }; /* a request may move between two questions */

/* --- values --- */

static uint64_t number_of(const struct resp_value *value)
{
    return value && value->type == RESP_INTEGER ? (uint64_t)(value->integer > 0 ? value->integer : 0)
                                                : strtoull(session_text(value), NULL, 10);
}

/* An element of an array; NULL: there is none. */
static const struct resp_value *item_at(const struct resp_value *array, size_t at)
{
    return array && array->type == RESP_ARRAY && at < array->count ? &array->items[at] : NULL;
}

/* Copies foreign bytes as they are in `struct story`. Shapes: to [size]. */
static void keep_printable(char *to, size_t size, const struct resp_value *value)
{
    size_t length = value && value->bytes ? value->length : 0;
    length = length < size ? length : size - 1;
    if (length > 0) { memcpy(to, value->bytes, length); }
    to[length] = '\0';
    for (size_t at = 0; at < length;) {
        size_t printable = utf8_printable(to + at, length - at);
        if (printable == 0 && to[at] != '\\') { to[at] = '?'; }
        at += printable > 0 ? printable : 1;
    }
}

/* A number among the members of `info`; 0: it has none. */
static uint64_t member_number(const struct resp_value *info, const char *name)
{
    uint64_t number;
    (void)json_member_number(info ? info->bytes : NULL, info ? info->length : 0, name, &number);
    return number;
}

/* Copies a member of `info` as keep_printable does. */
static void keep_member(char *to, size_t size, const struct resp_value *info, const char *name)
{
    char text[STORY_TEXT];
    (void)json_member_text(info ? info->bytes : NULL, info ? info->length : 0, name, text, sizeof text);
    keep_printable(to, size, &(struct resp_value){.bytes = text, .length = strlen(text)});
}

static bool take_name(struct story *story, const char *name)
{
    if (!request_name_parse(name, strlen(name), &story->class, &story->entry)) { return false; }
    snprintf(story->name, sizeof story->name, "%s", name);
    story->first_ms = story->entry.ms;
    return true;
}

/* session_ask, except that `*out` is NULL if the login may not ask, or the key does not exist (ERR, as that has no code
 * of its own). */
static enum status ask_if(struct session *session, size_t count, const char *const *words,
                          const struct resp_value **out, struct err *err)
{
    enum status status = session_ask(session, count, words, out, err);
    bool none = *out && (resp_is_error(*out, "NOPERM") || resp_is_error(*out, "NOGROUP") || resp_is_error(*out, "ERR"));
    if (none) { *out = NULL; }
    return none ? STATUS_OK : status;
}

#define ASK_IF(session, out, err, ...)                                                                                 \
    ask_if(session, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *),                                 \
           (const char *const[]){__VA_ARGS__}, out, err)

/* --- where to look --- */

static enum status read_reply(struct session *session, const char *id, struct story *story, struct err *err)
{
    static const char *const ends[] = {"done", "error", "cancelled"};
    char key[SESSION_KEY];
    const struct resp_value *reply;
    struct entry_id letter;
    TRY(SESSION_ASK(session, &reply, err, "HMGET", session_key(session, "reply:", id, key), "status", "code", "message",
                    "info"));
    const char *status = session_text(item_at(reply, 0));
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (strcmp(status, ends[i]) == 0) { story->status = ends[i]; }
    }
    if (status[0] == '\0') { return STATUS_OK; }
    keep_printable(story->code, sizeof story->code, item_at(reply, 1));
    keep_printable(story->message, sizeof story->message, item_at(reply, 2));
    const struct resp_value *info = item_at(reply, 3);
    char name[REQUEST_NAME_MAX], dead[ENTRY_ID_TEXT];
    keep_member(name, sizeof name, info, "entry");
    (void)take_name(story, name);
    uint64_t first_ms = member_number(info, "first_at");
    story->first_ms = first_ms > 1 ? first_ms : story->first_ms; /* 1: cancelled, and not known */
    story->done_ms = member_number(info, "done_at");
    story->attempts = (unsigned long)member_number(info, "attempts");
    keep_member(story->tenant, sizeof story->tenant, info, "tenant");
    keep_member(story->queued_ms, sizeof story->queued_ms, info, "queued_ms");
    keep_member(story->compute_ms, sizeof story->compute_ms, info, "compute_ms");
    keep_member(story->ignored, sizeof story->ignored, info, "ignored");
    keep_member(dead, sizeof dead, info, "dead");
    if (entry_id_parse(dead, strlen(dead), &letter)) { memcpy(story->letter, dead, sizeof dead); }
    TRY(ASK_IF(session, &reply, err, "PTTL", key));
    story->expires_ms = number_of(reply) > 0 ? story->now_ms + number_of(reply) : 0;
    if (story->letter[0] == '\0') { return STATUS_OK; }
    TRY(ASK_IF(session, &reply, err, "XRANGE", session_key(session, "dead", "", key), story->letter, story->letter));
    story->letter_gone = !item_at(reply, 0);
    return STATUS_OK;
}

static enum status read_trouble(struct session *session, struct story *story, struct err *err)
{
    char key[SESSION_KEY], record[512], carrier[ENTRY_ID_TEXT];
    const struct resp_value *reply;
    struct entry_id entry;
    TRY(SESSION_ASK(session, &reply, err, "HGET", session_key(session, "trouble", "", key), story->name));
    keep_printable(record, sizeof record, reply);
    if (record[0] == '\0') { return STATUS_OK; }
    int read = sscanf(record, "%lu %lu %41s %255s %lu", &story->attempts, &story->runs_alone, carrier, story->runs,
                      &story->taken);
    if (read < 3 || !entry_id_parse(carrier, strlen(carrier), &entry)) {
        return err_set(err, STATUS_INTERNAL, "the record of %s in trouble has an unknown shape", story->name);
    }
    story->came_back = entry_id_compare(entry, story->entry) != 0;
    story->entry = entry;
    if (strcmp(story->runs, "-") == 0) { story->runs[0] = '\0'; }
    return STATUS_OK;
}

/* Reads when the worker's last heartbeat was, and whether it said that it holds nothing although it was given this
 * request earlier. The entry may have been on its way to the worker, but hardly for as long as ARRIVES_MS. */
static void read_heartbeat(struct story *story, const struct resp_value *heartbeat)
{
    enum { ARRIVES_MS = 2000 };
    char held[32] = "";
    const char *words = session_text(heartbeat);
    story->spoke_ms = number_of(heartbeat);
    (void)heartbeat_value(&(struct heartbeat_line){.words = words}, "held", held, sizeof held);
    story->idle = strcmp(held, "0") == 0 && story->held_ms + ARRIVES_MS < story->spoke_ms;
}

/* Reads which consumer has it: a worker, one that is no worker, or none since a worker gave it back (`released`) or set
 * it aside (`ahead`). */
static enum status read_pending(struct session *session, const char *stream, const char *entry, struct story *story,
                                struct err *err)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    TRY(ASK_IF(session, &reply, err, "XPENDING", stream, "sluice", entry, entry, "1"));
    const struct resp_value *pending = item_at(reply, 0), *owner = item_at(pending, 1);
    if (!owner || !owner->bytes) { return STATUS_OK; }
    story->given_back = resp_equals(owner, "released") || resp_equals(owner, "ahead");
    story->foreign = !story->given_back && !queue_worker_name_is(owner->bytes, owner->length);
    story->status = story->given_back || story->foreign ? "queued" : "running";
    if (story->given_back) { return STATUS_OK; }
    uint64_t idle_ms = number_of(item_at(pending, 2));
    story->deliveries = (unsigned long)number_of(item_at(pending, 3));
    story->held_ms = idle_ms < story->now_ms ? story->now_ms - idle_ms : 0; /* or a little later: `now_ms` is older */
    if (story->held_ms < story->entry.ms) { story->held_ms = story->entry.ms; }
    keep_printable(story->foreign ? story->consumer : story->worker, sizeof story->worker, owner);
    if (story->foreign) { return STATUS_OK; }
    TRY(ASK_IF(session, &reply, err, "HGET", session_key(session, "workers", "", key), story->worker));
    read_heartbeat(story, reply);
    if (story->idle) { story->status = "queued"; }
    return STATUS_OK;
}

/* Finds out whether it waits in its stream. If its entry must not be read, the ids of other entries decide. */
static enum status read_unread(struct session *session, const char *stream, const char *text, bool tenant,
                               struct story *story, struct err *err)
{
    const struct resp_value *reply = NULL, *group;
    struct entry_id delivered = {0}, first, last;
    bool pending = strcmp(story->status, "unknown") != 0;
    if (tenant) { TRY(ASK_IF(session, &reply, err, "XRANGE", stream, text, text)); }
    bool readable = reply, there = item_at(reply, 0);
    if (there) {
        keep_printable(story->tenant, sizeof story->tenant, resp_field(item_at(item_at(reply, 0), 1), "tenant"));
    }
    if (pending || (readable && !there)) { return STATUS_OK; }
    TRY(ASK_IF(session, &reply, err, "XINFO", "GROUPS", stream));
    if (reply && (group = session_group(reply))) {
        (void)resp_entry_id(resp_field(group, "last-delivered-id"), &delivered);
    }
    bool behind = entry_id_compare(story->entry, delivered) > 0;
    if (!readable) {
        TRY(ASK_IF(session, &reply, err, "XINFO", "STREAM", stream));
        if (!reply) { return STATUS_OK; }
        (void)resp_entry_id(item_at(resp_field(reply, "first-entry"), 0), &first);
        (void)resp_entry_id(item_at(resp_field(reply, "last-entry"), 0), &last);
        there = behind && entry_id_compare(story->entry, first) >= 0 && entry_id_compare(story->entry, last) <= 0;
    }
    story->lost = there && !behind;
    story->status = there ? "queued" : story->status;
    return STATUS_OK;
}

/* Looks for a request without a reply in `later`, then in its stream. */
static enum status read_place(struct session *session, bool tenant, struct story *story, struct err *err)
{
    char key[SESSION_KEY], entry[ENTRY_ID_TEXT];
    const struct resp_value *reply;
    TRY(SESSION_ASK(session, &reply, err, "ZSCORE", session_key(session, "later", "", key), story->name));
    if (reply->bytes) {
        story->status = "later";
        story->due_ms = (uint64_t)strtod(reply->bytes, NULL);
    }
    TRY(read_trouble(session, story, err));
    if (story->due_ms != 0) { return STATUS_OK; }
    entry_id_format(story->entry, entry);
    session_key(session, class_streams[story->class], "", key);
    TRY(read_pending(session, key, entry, story, err));
    return read_unread(session, key, entry, tenant, story, err);
}

static bool is_its_own(const struct story *story, const char *id, const struct resp_value *fields)
{
    const struct resp_value *name = resp_field(fields, "_entry"), *given = resp_field(fields, "id");
    return (name && story->name[0] && resp_equals(name, story->name)) || (given && resp_equals(given, id));
}

static void take_letter(struct story *story, const struct resp_value *id, const struct resp_value *fields)
{
    story->status = "dead";
    (void)take_name(story, session_text(resp_field(fields, "_entry")));
    keep_printable(story->letter, sizeof story->letter, id);
    keep_printable(story->code, sizeof story->code, resp_field(fields, "_code"));
    keep_printable(story->message, sizeof story->message, resp_field(fields, "_message"));
    keep_member(story->tenant, sizeof story->tenant, resp_field(fields, "_info"), "tenant");
    story->attempts = (unsigned long)member_number(resp_field(fields, "_info"), "attempts");
}

/* Looks for the request among dead letters; if it died more than once, the last time counts. */
static enum status read_letters(struct session *session, const char *id, struct story *story, struct err *err)
{
    char key[SESSION_KEY], from[ENTRY_ID_TEXT + 1], most[8];
    size_t count = LETTERS_A_PAGE;
    snprintf(from, sizeof from, "%" PRIu64, story->first_ms);
    snprintf(most, sizeof most, "%d", LETTERS_A_PAGE);
    session_key(session, "dead", "", key);
    for (int page = 0; count == LETTERS_A_PAGE; page++) {
        const struct resp_value *reply;
        story->letters_left = page == PAGES;
        if (story->letters_left) { break; }
        TRY(ASK_IF(session, &reply, err, "XRANGE", key, from, "+", "COUNT", most));
        for (count = 0; item_at(reply, count); count++) {
            const struct resp_value *letter = item_at(item_at(reply, count), 0),
                                    *fields = item_at(item_at(reply, count), 1);
            if (fields && is_its_own(story, id, fields)) { take_letter(story, letter, fields); }
            snprintf(from, sizeof from, "(%.41s", session_text(letter));
        }
    }
    return STATUS_OK;
}

/* --- telling --- */

PRINTF_LIKE(4, 5)
static void tell_event(struct story *story, uint64_t at_ms, const char *name, const char *format, ...)
{
    struct story_event event = {.at_ms = at_ms, .name = name};
    va_list args;
    if (at_ms == 0 || story->event_count == STORY_EVENTS) { return; }
    va_start(args, format);
    vsnprintf(event.text, sizeof event.text, format, args);
    va_end(args);
    size_t at = story->event_count++;
    for (; at > 0 && story->events[at - 1].at_ms > at_ms; at--) { story->events[at] = story->events[at - 1]; }
    story->events[at] = event;
}

static const char *plural_s(unsigned long count)
{
    return count == 1 ? "" : "s";
}

static void tell_compute(struct story *story)
{
    uint64_t began_ms = story->first_ms + strtoull(story->queued_ms, NULL, 10);
    if (story->queued_ms[0] == '\0' || story->first_ms == 0) { return; }
    tell_event(story, began_ms, "started", "compute began, %s ms after it was submitted", story->queued_ms);
    tell_event(story, began_ms + strtoull(story->compute_ms, NULL, 10), "computed", "computed in %s ms",
               story->compute_ms);
}

static void tell_end(struct story *story)
{
    const char *gone = story->letter_gone ? "; the letter is gone: requeued, deleted or trimmed" : "";
    bool failed = story->code[0] != '\0';
    bool ignored = story->ignored[0] != '\0';
    tell_event(story, story->done_ms, "answered", "%s%s%s%s%s%s%s", story->status, failed ? ": " : "", story->code,
               failed ? ": " : "", story->message, ignored ? "; unknown fields, ignored: " : "", story->ignored);
    if (story->letter[0] != '\0') {
        tell_event(story, strtoull(story->letter, NULL, 10), "dead", "dead letter %s after %lu attempt%s: %s: %s%s",
                   story->letter, story->attempts, plural_s(story->attempts), story->code, story->message, gone);
    }
    tell_event(story, story->expires_ms, "expires", "the reply expires");
}

static void tell_place(struct story *story)
{
    bool running = strcmp(story->status, "running") == 0, queued = strcmp(story->status, "queued") == 0;
    double silent_s = story->spoke_ms < story->now_ms ? (double)(story->now_ms - story->spoke_ms) / 1e3 : 0;
    if (story->came_back) {
        char entry[ENTRY_ID_TEXT];
        entry_id_format(story->entry, entry);
        tell_event(story, story->due_ms ? 0 : story->entry.ms, "returned",
                   "back from later as entry %s, for attempt %lu", entry, story->attempts + 1);
    }
    if (running && story->spoke_ms == 0) {
        tell_event(story, story->held_ms, "held",
                   "delivery %lu, to worker %s, which has not spoken for long or signed off", story->deliveries,
                   story->worker);
    } else if (running) {
        tell_event(story, story->held_ms, "held", "delivery %lu, to worker %s, which spoke %.1f s ago",
                   story->deliveries, story->worker, silent_s);
    }
    if (queued && story->foreign) {
        tell_event(story, story->held_ms, "waiting",
                   "delivery %lu, to \"%s\", which is no worker: a worker takes it over", story->deliveries,
                   story->consumer);
    } else if (queued && story->idle) {
        tell_event(story, story->held_ms, "waiting",
                   "with worker %s since then, which spoke %.1f s ago and held nothing: it looks for such entries",
                   story->worker, silent_s);
    } else if (queued) {
        tell_event(story, story->now_ms, "waiting", "%s",
                   story->given_back ? "given back by a worker, or set aside for another one"
                   : story->lost     ? "read, and nobody's since: the housekeeper will find it"
                                     : "nobody has read it");
    }
    if (story->runs_alone > 0 || story->runs[0] != '\0' || story->taken > 0) {
        tell_event(story, story->now_ms, "suspect",
                   "suspected of crashing workers: %lu run%s alone, open runs of %s, taken over %lu time%s",
                   story->runs_alone, plural_s(story->runs_alone), story->runs[0] ? story->runs : "nobody",
                   story->taken, plural_s(story->taken));
    }
    tell_event(story, story->due_ms, "due", "parked until then, for attempt %lu", story->attempts + 1);
}

/* Names the other unfinished requests with its id. */
static void tell_others(struct story *story)
{
    enum { SHOWN = 8 };
    const struct own_id_found *found = &story->unfinished;
    char names[SHOWN * (REQUEST_NAME_MAX + 2)] = "";
    for (size_t i = 1, length = 0; i < found->count && i <= SHOWN; i++) {
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i == 1 ? "" : ", ", found->names[i]);
    }
    if (found->count < 2) { return; }
    size_t others = found->count - 1;
    tell_event(story, story->now_ms, "shared", "%zu older unfinished request%s with this id: %s%s", others,
               plural_s(others), names, others > SHOWN ? ", ..." : "");
}

static void tell_all(struct story *story)
{
    const char *tenant = story->tenant;
    if (story->name[0] != '\0') {
        tell_event(story, story->first_ms, "submitted", "as %s in class %s%s%s%s", story->name,
                   class_names[story->class], tenant[0] ? ", tenant " : "", tenant,
                   strcmp(story->status, "unknown") == 0 ? ", if it ever was: only the name says so" : "");
    }
    tell_compute(story);
    tell_place(story);
    tell_others(story);
    tell_end(story);
}

/* Searches for the requests of an id that has no reply. They may be answered meanwhile, so if it finds none, it looks
 * for the reply once more. */
static enum status search_id(struct session *session, const char *id, uint64_t most, struct story *story,
                             struct err *err)
{
    if (most == 0 || !request_id_usable(id, strlen(id))) { return STATUS_OK; }
    TRY(own_id_find(session, id, most, &story->unfinished, err));
    if (story->unfinished.count > 0) {
        (void)take_name(story, story->unfinished.names[0]);
        return STATUS_OK;
    }
    return read_reply(session, id, story, err);
}

enum status story_read(struct session *session, const char *id, uint64_t most, bool tenant, struct story *story,
                       struct err *err)
{
    *story = (struct story){.status = "unknown"};
    TRY(session_ask_time(session, err));
    story->now_ms = session->redis_ms;
    (void)take_name(story, id);
    for (int i = 0; i < LOOKS && strcmp(story->status, "unknown") == 0; i++) {
        TRY(read_reply(session, id, story, err));
        if (i == 0 && story->done_ms == 0) { TRY(search_id(session, id, most, story, err)); }
        if (story->name[0] == '\0') { break; }
        if (story->done_ms == 0) { TRY(read_place(session, tenant, story, err)); }
    }
    if (strcmp(story->status, "unknown") == 0) { TRY(read_letters(session, id, story, err)); }
    tell_all(story);
    return STATUS_OK;
}

enum status story_find(struct session *session, const char *id, uint64_t most, const struct resp_value **reply,
                       struct place *place, struct err *err)
{
    char key[SESSION_KEY];
    struct story story = {.done_ms = 1};
    *place = (struct place){.status = "unknown"};
    *reply = NULL;
    while (story.done_ms > 0) { /* it may be answered between two looks */
        TRY(SESSION_ASK(session, reply, err, "HGETALL", session_key(session, "reply:", id, key)));
        if ((*reply)->type == RESP_ARRAY && (*reply)->count > 0) { return STATUS_OK; }
        *reply = NULL;
        enum status status = story_read(session, id, most, false, &story, err);
        place->denied = status == STATUS_DENIED;
        if (status != STATUS_OK) { return place->denied ? STATUS_OK : status; }
    }
    place->status = story.status;
    place->due_at = (double)story.due_ms;
    place->more = story.unfinished.more;
    if (story.unfinished.count > 0) { memcpy(place->name, story.name, sizeof place->name); }
    snprintf(place->worker, sizeof place->worker, "%s", story.worker);
    return STATUS_OK;
}
