#include "operator/answers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "base/float_text.h"
#include "base/json.h"
#include "base/utf8.h"
#include "schedule/encodings.h"

/* A number that is null for 0, as buffer_json writes it with %+lld. */
static long long or_null(uint64_t number)
{
    return number > 0 ? (long long)number : -1;
}

/* ---- queues and workers ---- */

static void put_days(struct buffer *to, const struct session *session, const struct queue_counts *counts)
{
    buffer_json(to, ",'days':[");
    for (uint64_t ago = DAYS_KEPT; ago-- > 0;) {
        const struct day_counts *day = &counts->days[ago];
        if (day->done + day->errors == 0) { continue; }
        buffer_json(to, ",{'at':%" PRIu64 ",'done':%" PRIu64 ",'errors':%" PRIu64 "}",
                    (session->redis_ms / DAY_MS - ago) * DAY_MS, day->done, day->errors);
    }
    buffer_json(to, "]");
}

static void put_totals(struct buffer *to, const struct queue_counts *counts)
{
    buffer_json(to, ",'died':%" PRIu64 ",'ignored':%" PRIu64 ",'since':%+lld,'ended':{", counts->died, counts->ignored,
                or_null(counts->since_ms));
    for (int i = 0; i < CLASS_COUNT; i++) {
        buffer_json(to, ",%s:{'done':%" PRIu64, class_names[i], counts->ended[i][CODE_NONE]);
        for (int end = CODE_NONE + 1; end < ENDS; end++) {
            if (counts->ended[i][end] > 0) { buffer_json(to, ",%s:%" PRIu64, end_name(end), counts->ended[i][end]); }
        }
        buffer_json(to, "}");
    }
    buffer_json(to, "}");
}

void answer_put_pause(struct buffer *to, const struct pause *pause)
{
    buffer_json(to, ",'paused':%hhd,'paused_since_ms':%+lld,'paused_until_ms':%+lld,'paused_by':%s,'paused_why':%s",
                pause->on, or_null(pause->since_ms), or_null(pause->until_ms), pause->by, pause->why);
}

void answer_put_counts(struct buffer *to, const struct session *session, const struct queue_counts *counts)
{
    long long depth = counts->due; /* the number of requests to do now, as /depth of a daemon counts them */
    char reason[32] = "";
    buffer_json(to, ",'queue':%s", session->queue);
    answer_put_pause(to, &counts->pause);
    buffer_json(to, ",'classes':{");
    for (int i = 0; i < CLASS_COUNT; i++) {
        const struct class_counts *of = &counts->classes[i];
        depth += of->unread + of->pending;
        buffer_json(to,
                    ",%s:{'unread':%lld,'pending':%lld,'wait_ms':%+lld,'cap':%+lld,'above_cap':%lld,'oldest_ms':%+lld}",
                    class_names[i], of->unread, of->pending, of->wait_ms, or_null((uint64_t)of->cap),
                    counts_above_cap(counts, i), of->oldest_ms);
    }
    if (counts->tight > 0) {
        snprintf(reason, sizeof reason, "memory:%lu%%",
                 strtoul(counts->reason + strcspn(counts->reason, "0123456789"), NULL, 10));
    }
    buffer_json(to,
                "},'cap_later':%+lld,'depth':%lld,'later':%lld,'due':%lld,'dead':%lld,'dead_bytes':%lld,'workers':%zu,"
                "'quiet':%zu,'devices':%lu,'devices_lost':%lu,'tight':%zu,'reason':%s,'precisions':{",
                counts->cap_later > 0 ? counts->cap_later : -1, depth, counts->later, counts->due, counts->dead,
                counts->dead_bytes, counts->workers, counts->quiet, counts->devices, counts->devices_lost,
                counts->tight, reason);
    for (size_t i = 0; i < PRECISIONS_MAX && counts->precisions[i].workers > 0; i++) {
        buffer_json(to, ",%s:%zu", counts->precisions[i].name, counts->precisions[i].workers);
    }
    buffer_json(to, "},'pinned_precision':%s", counts->pinned);
    put_totals(to, counts);
    put_days(to, session, counts);
    buffer_json(to, ",'at':%" PRIu64, session->redis_ms);
}

static void put_worker(struct buffer *to, const struct heartbeat_line *line)
{
    char value[64];
    buffer_json(to, ",{'worker':%s", line->worker);
    for (size_t i = 0; heartbeat_words[i]; i++) {
        heartbeat_value(line, heartbeat_words[i], value, sizeof value);
        double number = strtod(value, NULL);
        if (i == 0) {
            buffer_json(to, ",%s:%s", heartbeat_words[i], value);
        } else {
            buffer_json(to, ",%s:%g", heartbeat_words[i], isfinite(number) ? number : 0);
        }
    }
    for (size_t i = 0; heartbeat_more_words[i]; i++) {
        buffer_json(to, ",%s:%s", heartbeat_more_words[i],
                    heartbeat_value(line, heartbeat_more_words[i], value, sizeof value));
    }
    buffer_json(to, ",'spoke_ms_ago':%" PRIu64 ",'alive':%hhd,'ordered':%s}", line->age_ms, line->alive, line->command);
}

void answer_put_workers(struct buffer *to, const struct session *session, const struct heartbeats *heartbeats)
{
    buffer_json(to, "{'queue':%s,'workers':[", session->queue);
    for (size_t i = 0; i < heartbeats->count; i++) { put_worker(to, &heartbeats->lines[i]); }
    buffer_json(to, "]}");
}

/* ---- dead letters and requests ---- */

static void put_letter_field(struct buffer *to, const struct letter *letter, const char *name, const char *field)
{
    const struct resp_value *value = resp_field(letter->fields, field);
    if (value && value->bytes && value->length > 0) {
        buffer_json(to, ",%s:%.*s", name, (int)value->length, value->bytes);
    } else {
        buffer_json(to, ",%s:null", name);
    }
}

void answer_put_letter(struct buffer *to, const struct session *session, const struct letter *letter)
{
    char tenant[TENANT_MAX + 1];
    letter_info(letter, "tenant", tenant, sizeof tenant);
    buffer_json(to, "{'queue':%s,'letter':%s", session->queue, letter->id);
    put_letter_field(to, letter, "code", "_code");
    put_letter_field(to, letter, "entry", "_entry");
    put_letter_field(to, letter, "id", "id");
    buffer_json(to, ",'tenant':%s,'attempts':%" PRIu64 ",'age_ms':%" PRIu64, tenant, letter_attempts(letter),
                letter->age_ms);
    put_letter_field(to, letter, "message", "_message");
    buffer_json(to, "}");
}

void answer_put_place(struct buffer *to, const char *id, const struct place *place)
{
    buffer_json(to, "{'id':%.*s,'status':%s", (int)strlen(id), id, place->status);
    if (place->name[0] != '\0') { buffer_json(to, ",'entry':%s", place->name); }
    if (place->worker[0] != '\0') { buffer_json(to, ",'worker':%s", place->worker); }
    if (place->due_at > 0) { buffer_json(to, ",'due_at':%" PRIu64, (uint64_t)place->due_at); }
    buffer_json(to, "}");
}

/* Writes the rows as arrays in an array; `row` 0: one array of all numbers. Shapes: floats [count]. */
static enum status put_floats(struct buffer *to, const float *floats, size_t count, size_t row, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(floats[i])) { return err_set(err, STATUS_BAD_INPUT, "it has a value that is not finite"); }
    }
    if (row == 0) {
        buffer_floats(to, floats, count);
        return STATUS_OK;
    }
    buffer_json(to, "[");
    for (size_t i = 0; i < count; i += row) {
        buffer_json(to, ",");
        buffer_floats(to, floats + i, row < count - i ? row : count - i);
    }
    buffer_json(to, "]");
    return STATUS_OK;
}

static bool is_json_array(const struct resp_value *value)
{
    return value->bytes[0] == '[' && strspn(value->bytes, "[]0123456789+-.eE, ") == value->length;
}

/* Numbers per text in a reply to several texts (packed bits are fewer than `dim`); 0 in a reply to one text, and for
 * scores. */
static size_t numbers_per_text(const struct resp_value *info, size_t numbers)
{
    uint64_t texts = 0, dim;
    bool vectors = info && json_member_number(info->bytes, info->length, "dim", &dim) &&
                   json_member_number(info->bytes, info->length, "count", &texts);
    return !vectors || texts == 0 ? 0 : numbers / texts;
}

/* Writes embedding or scores of a reply, whatever their encoding, as a JSON array of numbers; an embedding of several
 * texts (with a `count`) becomes an array of arrays. Errors: STATUS_BAD_INPUT if it does not match the reply's
 * `encoding`; STATUS_NO_MEMORY. */
static enum status put_numbers(struct buffer *to, const struct resp_value *reply, const struct resp_value *value,
                               struct err *err)
{
    const struct resp_value *info = resp_field(reply, "info");
    char encoding[16];
    if (!info || !json_member_text(info->bytes, info->length, "encoding", encoding, sizeof encoding)) {
        memcpy(encoding, "json", sizeof "json");
    }
    struct buffer floats = {0};
    if (strcmp(encoding, "json") == 0 && is_json_array(value)) {
        buffer_append(to, value->bytes, value->length);
        return STATUS_OK;
    }
    bool understood = encoding_read(encoding, value->bytes, value->length, &floats);
    enum status status = STATUS_OK;
    if (!buffer_ok(&floats)) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for a reply");
    } else if (!understood) {
        status = err_set(err, STATUS_BAD_INPUT, "it is not what its encoding %.20s says", encoding);
    } else {
        size_t numbers = floats.length / sizeof(float);
        status = put_floats(to, (const void *)floats.data, numbers, numbers_per_text(info, numbers), err);
    }
    buffer_free(&floats);
    return status;
}

static bool is_any(const struct resp_value *value, const char *const *names)
{
    while (*names && !resp_equals(value, *names)) { names++; }
    return *names;
}

/* Writes a field of a reply; `numbers`: its value is numbers in the reply's encoding. */
static enum status put_reply_field(struct buffer *to, const struct resp_value *reply, const struct resp_value *name,
                                   const struct resp_value *value, bool numbers, struct err *err)
{
    static const char *const json[] = {"labels", "top", "tokens", "info", NULL};
    if (numbers) { return put_numbers(to, reply, value, err); }
    if (is_any(name, json)) {
        return buffer_json_value(to, value->bytes, value->length) ? STATUS_OK
                                                                  : err_set(err, STATUS_BAD_INPUT, "it is not JSON");
    }
    buffer_json(to, "%.*s", (int)value->length, value->bytes);
    return STATUS_OK;
}

enum status answer_put_reply(struct buffer *to, const char *id, const struct resp_value *reply, struct err *err)
{
    static const char *const encoded[] = {"embedding", "scores", NULL};
    buffer_json(to, "{'id':%.*s", (int)strlen(id), id);
    for (size_t i = 0; i + 1 < reply->count; i += 2) {
        const struct resp_value *name = &reply->items[i], *value = &reply->items[i + 1];
        bool numbers = is_any(name, encoded);
        if (!name->bytes || !value->bytes || (!numbers && !utf8_valid(value->bytes, value->length))) {
            return err_set(err, STATUS_BAD_INPUT, "%s: this is not a reply of Sluice", id);
        }
        buffer_json(to, ",%.*s:", (int)name->length, name->bytes);
        if (put_reply_field(to, reply, name, value, numbers, err) != STATUS_OK) {
            return err_prefix(err, "%s: %s", id, name->bytes);
        }
    }
    buffer_json(to, "}");
    return STATUS_OK;
}

/* ---- stories ---- */

/* Writes a member, unless it is "" or 0. */
static void put_if_text(struct buffer *to, const char *key, const char *text)
{
    if (text[0] != '\0') { buffer_json(to, ",%s:%s", key, text); }
}

static void put_if_number(struct buffer *to, const char *key, uint64_t number)
{
    if (number > 0) { buffer_json(to, ",%s:%" PRIu64, key, number); }
}

void answer_put_story(struct buffer *to, const struct session *session, const char *id, const struct story *story)
{
    buffer_json(to, "{'queue':%s", session->queue);
    put_if_text(to, "id", id);
    put_if_text(to, "status", story->status);
    put_if_text(to, "name", story->name);
    put_if_text(to, "class", story->name[0] ? class_names[story->class] : "");
    for (size_t i = 1; i < story->unfinished.count; i++) {
        buffer_json(to, i == 1 ? ",'others':[%s" : ",%s", story->unfinished.names[i]);
    }
    if (story->unfinished.count > 1) { buffer_json(to, "]"); }
    if (story->unfinished.more) { buffer_json(to, ",'unsearched':true"); }
    put_if_text(to, "tenant", story->tenant);
    put_if_number(to, "at", story->now_ms);
    put_if_number(to, "submitted_at", story->first_ms);
    put_if_text(to, "worker", story->worker);
    put_if_text(to, "consumer", story->consumer);
    if (story->idle) { buffer_json(to, ",'worker_held_nothing':true"); }
    put_if_number(to, "held_since", story->held_ms);
    put_if_number(to, "worker_spoke_at", story->spoke_ms);
    put_if_number(to, "deliveries", story->deliveries);
    put_if_number(to, "due_at", story->due_ms);
    put_if_number(to, "attempts", story->attempts);
    put_if_number(to, "runs_alone", story->runs_alone);
    put_if_text(to, "open_runs", story->runs);
    put_if_number(to, "taken", story->taken);
    put_if_number(to, "done_at", story->done_ms);
    put_if_text(to, "code", story->code);
    put_if_text(to, "message", story->message);
    put_if_text(to, "ignored", story->ignored);
    put_if_text(to, "letter", story->letter);
    if (story->letter_gone) { buffer_json(to, ",'letter_gone':true"); }
    if (story->letters_left) { buffer_json(to, ",'letters_left':true"); }
    put_if_number(to, "expires_at", story->expires_ms);
    buffer_json(to, ",'events':[");
    for (size_t i = 0; i < story->event_count; i++) {
        const struct story_event *event = &story->events[i];
        buffer_json(to, ",{'at':%" PRIu64, event->at_ms);
        put_if_text(to, "event", event->name);
        put_if_text(to, "text", event->text);
        buffer_json(to, "}");
    }
    buffer_json(to, "]}");
}
